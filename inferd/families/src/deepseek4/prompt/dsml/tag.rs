//! Tags and their spellings.
//!
//! The model was trained on one spelling and sometimes writes another: without the first bar, with ASCII bars, with
//! doubled bars, or as plain XML. Every tag is matched by itself, so a block may mix them. All matching is prefix
//! matching: text that may still become a tag is told from text that cannot.

/// A tag with no end after so many bytes is none.
const TAG_BYTES_MAX: usize = 4096;

/// Which element a tag belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Kind {
    Calls,
    Invoke,
    Parameter,
}

/// A tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Tag {
    pub(in super::super) kind: Kind,
    pub(in super::super) closing: bool,
    /// Spelled as plain XML, without the marker.
    pub(in super::super) plain: bool,
    /// The attribute `name`.
    pub(in super::super) name: Option<String>,
    /// The attribute `string`.
    pub(in super::super) string: Option<bool>,
}

/// Which spellings count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Spellings {
    /// Plain XML, without the marker.
    pub(in super::super) plain: bool,
    /// Whatever else was ever seen: other bars, doubled bars, a space after them, a doubled letter.
    pub(in super::super) odd: bool,
}

impl Spellings {
    /// With the marker as trained, or without its first bar.
    #[cfg(test)]
    pub(in super::super) const MARKED: Spellings = Spellings { plain: false, odd: false };
    /// All that count inside a block.
    pub(in super::super) const ANY: Spellings = Spellings { plain: true, odd: true };
}

/// What text that begins with `<` is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum Lexed {
    /// A tag of so many bytes.
    Tag(Tag, usize),
    /// It may become a tag.
    Partial,
    /// No tag, whatever follows.
    NotATag,
}

/// Looks at text that begins with `<`.
pub(in super::super) fn lex(text: &str, spellings: Spellings) -> Lexed {
    let mut cursor = Cursor { text, at: 0 };
    match cursor.tag(spellings) {
        Ok(tag) => Lexed::Tag(tag, cursor.at),
        Err(Stop::End) if text.len() < TAG_BYTES_MAX => Lexed::Partial,
        Err(_) => Lexed::NotATag,
    }
}

/// Why reading stopped.
enum Stop {
    /// The text ended; everything so far fits.
    End,
    /// Something does not fit.
    Other,
}

struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl Cursor<'_> {
    fn tag(&mut self, spellings: Spellings) -> Result<Tag, Stop> {
        self.word("<")?;
        let closing = self.may("/")?;
        let plain = !self.marker(spellings)?;
        if plain && !spellings.plain {
            return Err(Stop::Other);
        }
        let kind = self.kind(spellings)?;
        let mut tag = Tag { kind, closing, plain, name: None, string: None };
        if !self.peek()?.is_ascii_whitespace() && self.peek()? != '>' {
            return Err(Stop::Other);
        }
        loop {
            self.white_space();
            if self.may(">")? {
                return Ok(tag);
            }
            if closing {
                return Err(Stop::Other);
            }
            let (name, value) = self.attribute()?;
            match name.as_str() {
                "name" => tag.name = Some(value),
                "string" => tag.string = parse_bool(&value),
                _ => {}
            }
        }
    }

    /// Takes a marker if there is one.
    fn marker(&mut self, spellings: Spellings) -> Result<bool, Stop> {
        if !spellings.odd {
            return Ok(self.may("｜DSML｜")? || self.may("DSML｜")?);
        }
        let start = self.at;
        self.bars()?;
        if !self.may("DSML")? {
            // Bars without a marker fit nothing.
            return if self.at == start { Ok(false) } else { Err(Stop::Other) };
        }
        if self.bars()? == 0 {
            return Err(Stop::Other);
        }
        while self.may(" ")? {}
        Ok(true)
    }

    /// Takes up to two bars of either kind.
    fn bars(&mut self) -> Result<usize, Stop> {
        let mut count = 0;
        while count < 2 && (self.may("｜")? || self.may("|")?) {
            count += 1;
        }
        Ok(count)
    }

    fn kind(&mut self, spellings: Spellings) -> Result<Kind, Stop> {
        let doubled = spellings.odd && self.may("tool_ccalls")?;
        if doubled || self.may("tool_calls")? {
            Ok(Kind::Calls)
        } else if self.may("invoke")? {
            Ok(Kind::Invoke)
        } else {
            self.word("parameter").map(|()| Kind::Parameter)
        }
    }

    fn attribute(&mut self) -> Result<(String, String), Stop> {
        let start = self.at;
        while self.peek()?.is_ascii_alphanumeric() || matches!(self.peek()?, '_' | '-') {
            self.at += 1;
        }
        let name = self.text[start..self.at].to_owned();
        self.white_space();
        if name.is_empty() {
            return Err(Stop::Other);
        }
        self.word("=")?;
        self.white_space();
        self.word("\"")?;
        let rest = &self.text[self.at..];
        let end = rest.find('"').ok_or(Stop::End)?;
        self.at += end + 1;
        Ok((name, undo_entities(&rest[..end])))
    }

    fn white_space(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_ascii_start().len();
    }

    fn peek(&self) -> Result<char, Stop> {
        self.text[self.at..].chars().next().ok_or(Stop::End)
    }

    /// Takes `word`, or says whether it may still come.
    fn word(&mut self, word: &str) -> Result<(), Stop> {
        if self.may(word)? { Ok(()) } else { Err(Stop::Other) }
    }

    /// Takes `word` if it is there. The text may end inside it: then nothing is known yet.
    fn may(&mut self, word: &str) -> Result<bool, Stop> {
        let rest = &self.text.as_bytes()[self.at..];
        if rest.starts_with(word.as_bytes()) {
            self.at += word.len();
            return Ok(true);
        }
        if word.as_bytes().starts_with(rest) { Err(Stop::End) } else { Ok(false) }
    }
}

fn parse_bool(value: &str) -> Option<bool> {
    match value.trim().to_ascii_lowercase().as_str() {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

/// The five entities of XML, undone once.
fn undo_entities(value: &str) -> String {
    const ENTITIES: [(&str, char); 5] =
        [("&amp;", '&'), ("&lt;", '<'), ("&gt;", '>'), ("&quot;", '"'), ("&apos;", '\'')];
    let mut out = String::with_capacity(value.len());
    let mut rest = value;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let found = ENTITIES.iter().find(|(entity, _)| rest.starts_with(entity));
        let (len, c) = found.map_or((1, '&'), |(entity, c)| (entity.len(), *c));
        out.push(c);
        rest = &rest[len..];
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind_of(text: &str, spellings: Spellings) -> Option<(Kind, bool, bool)> {
        match lex(text, spellings) {
            Lexed::Tag(tag, len) if len == text.len() => Some((tag.kind, tag.closing, tag.plain)),
            _ => None,
        }
    }

    #[test]
    fn every_spelling_is_a_tag_inside_a_block() {
        for tag in [
            "<｜DSML｜invoke>",
            "<DSML｜invoke>",
            "<|DSML|invoke>",
            "<｜｜DSML｜｜invoke>",
            "<｜DSML｜ invoke>",
            "<｜DSML|invoke >",
        ] {
            assert_eq!(kind_of(tag, Spellings::ANY), Some((Kind::Invoke, false, false)), "{tag}");
        }
        assert_eq!(kind_of("</invoke>", Spellings::ANY), Some((Kind::Invoke, true, true)));
        assert_eq!(kind_of("</｜DSML｜tool_ccalls>", Spellings::ANY), Some((Kind::Calls, true, false)));
        for tag in ["<|DSML|tool_calls>", "<｜DSML｜tool_ccalls>", "<tool_calls>"] {
            assert_eq!(lex(tag, Spellings::MARKED), Lexed::NotATag, "{tag}");
        }
    }

    #[test]
    fn every_prefix_of_a_tag_may_become_one_and_nothing_else_does() {
        for tag in
            ["<｜DSML｜parameter name=\"a b\" string=\"false\">", "</DSML｜tool_calls >", "<｜DSML｜invoke x=\"\" >"]
        {
            for end in (1..tag.len()).filter(|&end| tag.is_char_boundary(end)) {
                assert_eq!(lex(&tag[..end], Spellings::MARKED), Lexed::Partial, "{}", &tag[..end]);
                assert_eq!(lex(&tag[..end], Spellings::ANY), Lexed::Partial, "{}", &tag[..end]);
            }
        }
        for text in
            ["< ", "<a", "<invoker", "<｜DSML｜invoker>", "<｜User", "<DSML>", "<parameter=", "<｜DSML｜invoke name=x"]
        {
            assert_eq!(lex(text, Spellings::ANY), Lexed::NotATag, "{text}");
        }
    }

    #[test]
    fn attributes_come_in_any_order_and_are_decoded_once() {
        let text = "<｜DSML｜parameter  string=\"True\" id=\"7\" name=\"a&amp;lt;&quot;&nbsp;\">x";
        let Lexed::Tag(tag, len) = lex(text, Spellings::MARKED) else { panic!("a tag") };
        assert_eq!((tag.name.as_deref(), tag.string, len), (Some("a&lt;\"&nbsp;"), Some(true), text.len() - 1));
    }

    #[test]
    fn a_tag_without_an_end_is_given_up() {
        let long = format!("<invoke name=\"{}", "x".repeat(TAG_BYTES_MAX));
        assert_eq!(lex(&long, Spellings::ANY), Lexed::NotATag);
    }
}
