//! JSON string escapes, total: a lone surrogate becomes U+FFFD, so that the result is always text.

use std::fmt::Write;

/// Decodes a JSON string token (with its quotes). The token was checked before; anything odd is kept as it stands.
pub(super) fn decode(token: &str) -> String {
    let body = token.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(token);
    let mut out = String::with_capacity(body.len());
    let mut rest = body;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let (decoded, len) = escape(&rest[at..]);
        out.push(decoded);
        rest = &rest[at + len..];
    }
    out.push_str(rest);
    out
}

/// The character an escape at the start of `text` stands for, and the escape's length in bytes.
fn escape(text: &str) -> (char, usize) {
    match text.as_bytes().get(1) {
        Some(b'b') => ('\u{8}', 2),
        Some(b'f') => ('\u{c}', 2),
        Some(b'n') => ('\n', 2),
        Some(b'r') => ('\r', 2),
        Some(b't') => ('\t', 2),
        Some(b'u') => unicode_escape(text),
        Some(&byte) if byte.is_ascii() => (byte as char, 2),
        _ => ('\\', 1),
    }
}

fn unicode_escape(text: &str) -> (char, usize) {
    let Some(high) = code_unit(text) else { return ('\\', 1) };
    if let 0xD800..=0xDBFF = high
        && let Some(low @ 0xDC00..=0xDFFF) = text.get(6..).and_then(code_unit)
    {
        let scalar = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
        return (char::from_u32(scalar).unwrap_or(char::REPLACEMENT_CHARACTER), 12);
    }
    (char::from_u32(high).unwrap_or(char::REPLACEMENT_CHARACTER), 6)
}

/// The UTF-16 unit of a `\uXXXX` escape at the start of `text`.
fn code_unit(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    u32::from_str_radix(digits, 16).ok()
}

/// Appends `text` as a JSON string token, escaping quotes, backslashes and control characters only.
pub(super) fn encode(text: &str, out: &mut String) {
    out.push('"');
    encode_inside(text, out);
    out.push('"');
}

/// The same without the quotes.
pub(super) fn encode_inside(text: &str, out: &mut String) {
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn surrogate_pairs_join_and_lone_ones_become_the_replacement_character() {
        assert_eq!(decode(r#""\ud83d\ude00""#), "😀");
        assert_eq!(decode(r#""\ud83d!""#), "\u{FFFD}!");
        assert_eq!(decode(r#""\ud83d\ud83d\ude00""#), "\u{FFFD}😀");
        assert_eq!(decode(r#""\ude00\u0041""#), "\u{FFFD}A");
        assert_eq!(decode(r#""\ud83dé""#), "\u{FFFD}é");
    }

    #[test]
    fn every_escape_decodes_and_encodes_back() {
        let text = "\"\\/\u{8}\u{c}\n\r\t\u{1}\u{7f}é｜";
        let mut token = String::new();
        encode(text, &mut token);
        assert_eq!(token, "\"\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\u{7f}é｜\"");
        assert_eq!(decode(&token), text);
        assert_eq!(decode(r#""\/\u00e9""#), "/é");
    }
}
