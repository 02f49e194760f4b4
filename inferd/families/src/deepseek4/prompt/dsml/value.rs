//! Values of parameters: where they end, and what is text of them.

use super::tag::{Kind, Lexed, Spellings, lex};

/// The first character of a closing tag that is meant as text.
const ESCAPED: &str = "&lt;";

/// What reading a part of a value led to, with the bytes taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// The value goes on. What was not taken may be the beginning of its end.
    More(usize),
    /// The value ended; its closing tag is taken.
    Closed(usize),
}

/// Which closing tags end a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Closers {
    /// Plain ones too: the value was opened by a plain tag. Otherwise `</parameter>` is text, as it may be in a file.
    pub(super) plain: bool,
    /// Inside JSON strings too: the JSON turned out to be none.
    pub(super) in_strings: bool,
}

/// Reads a value that is text, appending it to `out`.
pub(super) fn read_text(rest: &str, closers: Closers, out: &mut String) -> Read {
    let mut at = 0;
    while let Some(found) = rest[at..].find(['<', '&']) {
        out.push_str(&rest[at..at + found]);
        at += found;
        let tail = &rest[at..];
        let is_tag = tail.starts_with('<');
        match if is_tag { closer(tail, closers.plain) } else { escaped_closer(tail, closers.plain) } {
            Closer::Is(len) if is_tag => return Read::Closed(at + len),
            Closer::Is(_) => {
                out.push('<');
                at += ESCAPED.len();
            }
            Closer::MayBe => return Read::More(at),
            Closer::No => {
                out.push_str(&tail[..1]);
                at += 1;
            }
        }
    }
    out.push_str(&rest[at..]);
    Read::More(rest.len())
}

/// Reads a value that is JSON: closing tags inside its strings are text.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct JsonReader {
    pub(super) in_string: bool,
    escaped: bool,
}

impl JsonReader {
    pub(super) fn read(&mut self, rest: &str, closers: Closers, out: &mut String) -> Read {
        for (at, c) in rest.char_indices() {
            if c == '<' && (closers.in_strings || !self.in_string) {
                match closer(&rest[at..], closers.plain) {
                    Closer::Is(len) => return Read::Closed(at + len),
                    Closer::MayBe => return Read::More(at),
                    Closer::No => {}
                }
            }
            out.push(c);
            match c {
                _ if self.escaped => self.escaped = false,
                '\\' if self.in_string => self.escaped = true,
                '"' => self.in_string = !self.in_string,
                _ => {}
            }
        }
        Read::More(rest.len())
    }
}

/// Writes text so that [`read_text`] reads it back: closing tags in it get their first character replaced.
pub(super) fn escape_closers(text: &str, replacement: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("</") {
        let is_closer = matches!(closer(&rest[at..], false), Closer::Is(_));
        out.push_str(&rest[..at]);
        out.push_str(if is_closer { replacement } else { "<" });
        rest = &rest[at + 1..];
    }
    out + rest
}

/// Text with closing tags in it marked as text.
pub(super) fn escape_text(text: &str) -> String {
    escape_closers(text, ESCAPED)
}

enum Closer {
    /// A closing tag of so many bytes.
    Is(usize),
    MayBe,
    No,
}

/// Whether text that begins with `<` is the end of a value.
fn closer(text: &str, plain: bool) -> Closer {
    if text.len() > 1 && !text.starts_with("</") {
        return Closer::No;
    }
    match lex(text, Spellings { plain, odd: true }) {
        Lexed::Tag(tag, len) if tag.closing && tag.kind == Kind::Parameter => Closer::Is(len),
        Lexed::Partial => Closer::MayBe,
        _ => Closer::No,
    }
}

/// Whether text that begins with `&` is the end of a value whose first character was replaced.
fn escaped_closer(text: &str, plain: bool) -> Closer {
    let Some(rest) = text.strip_prefix(ESCAPED) else {
        return if ESCAPED.starts_with(text) { Closer::MayBe } else { Closer::No };
    };
    if !rest.is_empty() && !rest.starts_with('/') {
        return Closer::No;
    }
    // A closing tag is short; only this much can matter.
    let end = (0..=rest.len().min(128)).rev().find(|&end| rest.is_char_boundary(end)).unwrap_or(0);
    closer(&format!("<{}", &rest[..end]), plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKED: Closers = Closers { plain: false, in_strings: false };

    fn text(rest: &str, closers: Closers) -> (String, Read) {
        let mut out = String::new();
        let read = read_text(rest, closers, &mut out);
        (out, read)
    }

    #[test]
    fn plain_closing_tags_are_text_unless_the_value_was_opened_plainly() {
        let html = "<p></parameter></p></｜DSML｜parameter>";
        assert_eq!(text(html, MARKED), ("<p></parameter></p>".into(), Read::Closed(html.len())));
        let plain = Closers { plain: true, ..MARKED };
        assert_eq!(text(html, plain), ("<p>".into(), Read::Closed(15)));
    }

    #[test]
    fn only_what_may_still_end_the_value_is_kept_back() {
        assert_eq!(text("a </", MARKED).1, Read::More(2));
        assert_eq!(text("a </d", MARKED).1, Read::More(5));
        assert_eq!(text("a </｜DSML｜para", MARKED).1, Read::More(2));
        assert_eq!(text("a &l", MARKED).1, Read::More(2));
        assert_eq!(text("a &lt;/DSML", MARKED).1, Read::More(2));
        assert_eq!(text("a &lt;b &amp; <", MARKED), ("a &lt;b &amp; ".into(), Read::More(14)));
    }

    #[test]
    fn a_closing_tag_that_is_meant_as_text_comes_back_as_text_and_other_entities_stay() {
        for written in
            ["</｜DSML｜parameter>", "a</DSML｜parameter >b", "</|DSML|parameter>", "&lt;div&gt; </parameter>"]
        {
            let sent = escape_text(written) + "</｜DSML｜parameter>";
            assert_eq!(text(&sent, MARKED), (written.into(), Read::Closed(sent.len())), "{sent}");
        }
    }

    #[test]
    fn json_ends_outside_its_strings_only() {
        let json = r#"["</｜DSML｜parameter>\"<", 1]</｜DSML｜parameter>"#;
        let mut out = String::new();
        let read = JsonReader::default().read(json, MARKED, &mut out);
        assert_eq!((out.as_str(), read), (r#"["</｜DSML｜parameter>\"<", 1]"#, Read::Closed(json.len())));
        out.clear();
        let anywhere = Closers { in_strings: true, ..MARKED };
        assert_eq!(JsonReader::default().read("\"a</｜DSML｜parameter>", anywhere, &mut out), Read::Closed(24));
    }
}
