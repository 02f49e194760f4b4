//! Text from files, models and peers, made safe for a terminal or a log.

use std::borrow::Cow;
use std::path::Path;

/// Characters that are kept; what a log line or a terminal needs more of is an attack or a mistake.
const LEN_MAX: usize = 16 * 1024;

/// The text with every character that could move the cursor, forge a line, hide or reorder text written as an
/// escape (`\n`, `\u{1b}`), cut after 16 Ki characters.
pub fn printable(text: &str) -> Cow<'_, str> {
    let long = text.len() > LEN_MAX && text.chars().nth(LEN_MAX).is_some();
    if !long && text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len().min(LEN_MAX) + 16);
    for c in text.chars().take(LEN_MAX) {
        if is_plain(c) {
            clean.push(c);
        } else {
            clean.extend(c.escape_default());
        }
    }
    if long {
        clean.push('…');
    }
    Cow::Owned(clean)
}

/// [`printable`] for a path; bytes that are not UTF-8 show as the replacement character.
pub fn printable_path(path: &Path) -> String {
    printable(&path.to_string_lossy()).into_owned()
}

/// Whether a character shows as itself and does nothing else.
fn is_plain(c: char) -> bool {
    let invisible = matches!(c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}');
    !c.is_control() && !invisible
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_text_is_borrowed_unchanged() {
        assert!(matches!(printable("Modell größer — 模型.gguf"), Cow::Borrowed("Modell größer — 模型.gguf")));
    }

    #[test]
    fn control_sequences_and_forged_lines_are_escaped() {
        assert_eq!(printable("a\u{1b}[2Jb"), "a\\u{1b}[2Jb");
        assert_eq!(printable("x\nready manifest=/evil"), "x\\nready manifest=/evil");
        assert_eq!(printable("\u{9b}31m"), "\\u{9b}31m");
    }

    #[test]
    fn hidden_and_reordering_characters_are_escaped() {
        assert_eq!(printable("abc\u{202e}fugg.\u{200b}"), "abc\\u{202e}fugg.\\u{200b}");
    }

    #[test]
    fn endless_text_is_cut() {
        let clean = printable(&"x".repeat(LEN_MAX + 1)).into_owned();
        assert_eq!(clean.chars().count(), LEN_MAX + 1);
        assert!(clean.ends_with('…'));
    }
}
