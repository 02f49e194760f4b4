//! Looking for the beginning of a block of calls in text.

use super::surface::MARKER;
use crate::deepseek4::prompt::dsml::{Kind, Lexed, Spellings, Tag, lex};

/// What counts in the text that is looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watch {
    /// A block may also be opened by a plain tag at the start of a line, when a call follows.
    pub(super) plain: bool,
    /// Closing tags that nothing opened are left out.
    pub(super) drops_orphans: bool,
    /// The text is preceded by nothing or by a line end.
    pub(super) at_line_start: bool,
    /// A call without a block around it opens one. Not where text about markup, or a garbled opening, came before.
    pub(super) bare_calls: bool,
}

/// What was found first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing; text from here on may still become something.
    Nothing { hold_from: usize },
    /// A block opens: `space` is where the white space before it begins, `tag` the opening tag, `inside` where the
    /// block's inside begins.
    Opening { space: usize, tag: usize, inside: usize },
    /// A closing tag that nothing opened.
    Orphan { start: usize, end: usize },
}

/// Looks through `text`.
pub(super) fn scan(text: &str, watch: Watch) -> Found {
    let mut at = 0;
    while let Some(found) = text[at..].find('<') {
        at += found;
        let plain = watch.plain && is_line_start(text, at, watch);
        let rest = &text[at..];
        match lex(rest, Spellings { plain, odd: false }) {
            Lexed::Partial => return nothing(text, at),
            Lexed::Tag(tag, len) if !tag.closing && tag.kind == Kind::Calls => {
                let opening = Found::Opening { space: space_before(text, at), tag: at, inside: at + len };
                match if tag.plain { call_follows(&rest[len..]) } else { Some(true) } {
                    Some(true) => return opening,
                    Some(false) => {}
                    None => return nothing(text, at),
                }
            }
            // The block's own opening was forgotten.
            Lexed::Tag(tag, _) if opens_bare(&tag) && watch.bare_calls && !text[..at].contains(MARKER) => {
                return Found::Opening { space: space_before(text, at), tag: at, inside: at };
            }
            Lexed::Tag(tag, len) if tag.closing && !tag.plain && watch.drops_orphans => {
                return Found::Orphan { start: at, end: at + len };
            }
            _ => {}
        }
        at += 1;
    }
    nothing(text, text.len())
}

fn opens_bare(tag: &Tag) -> bool {
    !tag.closing && tag.kind == Kind::Invoke && !tag.plain
}

/// White space before what is held goes with it: it is left out when a block follows.
fn nothing(text: &str, at: usize) -> Found {
    Found::Nothing { hold_from: space_before(text, at) }
}

fn space_before(text: &str, at: usize) -> usize {
    text[..at].trim_end().len()
}

fn is_line_start(text: &str, at: usize, watch: Watch) -> bool {
    match text[..at].chars().next_back() {
        Some(before) => before == '\n',
        None => watch.at_line_start,
    }
}

/// Whether a call opens after white space; `None` when that is not known yet.
fn call_follows(text: &str) -> Option<bool> {
    let rest = text.trim_start();
    if rest.is_empty() {
        return None;
    }
    match if rest.starts_with('<') { lex(rest, Spellings::ANY) } else { Lexed::NotATag } {
        Lexed::Partial => None,
        Lexed::Tag(tag, _) => Some(tag.kind == Kind::Invoke && !tag.closing),
        Lexed::NotATag => Some(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARMED: Watch = Watch { plain: true, drops_orphans: true, at_line_start: true, bare_calls: true };

    #[test]
    fn only_what_may_become_an_opening_is_held_with_the_space_before_it() {
        let held = |text: &str| match scan(text, ARMED) {
            Found::Nothing { hold_from } => text[hold_from..].to_owned(),
            found => panic!("{text}: {found:?}"),
        };
        assert_eq!(held("2 <"), " <");
        assert_eq!(held("a < b"), "");
        assert_eq!(held("a\n\n"), "\n\n");
        assert_eq!(held("a\n\n<｜DSM"), "\n\n<｜DSM");
        assert_eq!(held("in <tool_calls"), "");
        assert_eq!(held("\n<tool_calls>\n"), "\n<tool_calls>\n");
        assert_eq!(held("\n<tool_calls>\n text"), "");
        assert_eq!(held("<div></div>"), "");
    }

    #[test]
    fn openings_are_found_with_the_space_before_them() {
        let text = "ok\n\n<｜DSML｜tool_calls>\n<";
        assert_eq!(scan(text, ARMED), Found::Opening { space: 2, tag: 4, inside: text.len() - 2 });
        let plain = "x\n<tool_calls>\n<invoke name=\"f\">";
        assert_eq!(scan(plain, ARMED), Found::Opening { space: 1, tag: 2, inside: 14 });
        assert_eq!(scan("<DSML｜invoke name=\"f\">", ARMED), Found::Opening { space: 0, tag: 0, inside: 0 });
        let mid_line = Watch { at_line_start: false, ..ARMED };
        assert!(matches!(scan("<tool_calls>\n<invoke name=\"f\">", mid_line), Found::Nothing { .. }));
    }

    #[test]
    fn orphans_are_found_where_they_are_dropped_only() {
        let text = "done</｜DSML｜tool_calls>";
        assert_eq!(scan(text, ARMED), Found::Orphan { start: 4, end: text.len() });
        let kept = Watch { drops_orphans: false, ..ARMED };
        assert_eq!(scan(text, kept), Found::Nothing { hold_from: text.len() });
    }
}
