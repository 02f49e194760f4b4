//! Writing a grammar in the engine's notation, a variant of Lark's.

use crate::grammars::with_options;
use ds4_model::{Piece, Tokenizer};
use serde_json::Value;
use std::fmt::Write;

/// Rules, one a line.
pub(crate) struct Lark<'a> {
    tokenizer: &'a Tokenizer,
    rules: String,
}

impl Lark<'_> {
    pub(crate) fn new(tokenizer: &Tokenizer) -> Lark<'_> {
        Lark { tokenizer, rules: String::new() }
    }

    pub(crate) fn rule(&mut self, name: &str, body: &str) {
        // Writing to a string does not fail.
        let _ = writeln!(self.rules, "{name}: {body}");
    }

    pub(crate) fn finish(self) -> String {
        self.rules
    }

    /// A text in which control tokens are spelled out.
    pub(crate) fn literal(&self, text: &str) -> String {
        if text.is_empty() {
            return "\"\"".into();
        }
        let prompt = self.tokenizer.parse_trusted(text);
        prompt.pieces().iter().map(symbol).collect::<Vec<_>>().join(" ")
    }

    /// Any text, and then `end`: it begins with text before its first control token, which any text may contain; what
    /// only the end has is the control token.
    pub(crate) fn text_up_to(&self, end: &str) -> String {
        let prompt = self.tokenizer.parse_trusted(end);
        let mut symbols: Vec<String> = prompt.pieces().iter().map(symbol).collect();
        if let Some(Piece::Text(first)) = prompt.pieces().first() {
            symbols[0] = format!("/(?s:.*){}/", quoted(first.as_str()));
        } else {
            symbols.insert(0, "/(?s:.*)/".into());
        }
        symbols.join(" ")
    }

    /// A text that is only text.
    pub(crate) fn text(text: &str) -> String {
        Value::from(text).to_string()
    }

    /// A JSON value that follows a schema.
    pub(crate) fn json(schema: &Value) -> String {
        format!("%json {}", with_options(schema))
    }
}

fn symbol(piece: &Piece) -> String {
    match piece {
        Piece::Control(token) => format!("<[{}]>", token.0),
        Piece::Text(text) => Lark::text(text.as_str()),
    }
}

/// A text as a regular expression between slashes.
fn quoted(text: &str) -> String {
    let special = |c: char| r"\.+*?()|[]{}^$/".contains(c);
    text.chars().flat_map(|c| special(c).then_some('\\').into_iter().chain([c])).collect()
}
