//! Prompts as lists of pieces: control tokens and text that can never become one.
//!
//! A piece list is what prefixes are compared by, so a control token never equals its spelling typed by a user.

use ds4_units::TokenId;
use std::fmt;

/// Text of a prompt. It has no `Display`, and `Debug` shows its length only: prompts stay out of logs unless a trace
/// was asked for.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct PromptText(String);

impl PromptText {
    /// Wraps text.
    pub fn new(text: impl Into<String>) -> PromptText {
        PromptText(text.into())
    }

    /// The text itself, for tokenising and for traces.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for PromptText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PromptText({} bytes)", self.0.len())
    }
}

/// One piece of a prompt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Piece {
    /// A control token, by id.
    Control(TokenId),
    /// Text, encoded with control tokens disabled.
    Text(PromptText),
}

/// A rendered prompt. Adjacent text pieces are merged, so that every text piece is one tokenizer call.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Prompt {
    pieces: Vec<Piece>,
    /// Bytes of text in all pieces.
    text_len: usize,
}

impl Prompt {
    /// An empty prompt.
    pub fn new() -> Prompt {
        Prompt::default()
    }

    /// The pieces, in order.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Bytes of text in it; control tokens do not count.
    pub fn text_len(&self) -> usize {
        self.text_len
    }

    /// Appends another prompt's pieces.
    pub fn push_all(&mut self, pieces: &[Piece]) {
        for piece in pieces {
            match piece {
                Piece::Control(token) => self.push_control(*token),
                Piece::Text(text) => self.push_text(text.as_str()),
            }
        }
    }

    /// Appends a control token.
    pub fn push_control(&mut self, token: TokenId) {
        self.pieces.push(Piece::Control(token));
    }

    /// Appends text; it joins the text piece before it.
    pub fn push_text(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        self.text_len += text.len();
        match self.pieces.last_mut() {
            Some(Piece::Text(last)) => last.0.push_str(text),
            _ => self.pieces.push(Piece::Text(PromptText::new(text))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_text_is_one_piece_and_control_tokens_never_equal_text() {
        let mut typed = Prompt::new();
        typed.push_text("<");
        typed.push_text("user>");
        assert_eq!(typed.pieces().len(), 1);

        let mut control = Prompt::new();
        control.push_control(TokenId(7));
        assert_ne!(typed, control);
    }

    #[test]
    fn debug_output_hides_the_text() {
        assert_eq!(format!("{:?}", PromptText::new("secret")), "PromptText(6 bytes)");
    }
}
