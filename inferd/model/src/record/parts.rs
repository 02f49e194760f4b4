//! Records taken apart and put together again, for what keeps them elsewhere.

use super::{PromptRecord, RecordContent, RecordPiece};
use ds4_units::TokenId;

/// What a piece of a record is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum PartContent<'a> {
    /// A control token.
    Control,
    /// Text, whole. It may stop inside a character.
    Text(&'a [u8]),
    /// The first tokens of a text whose rest is not known.
    Cut,
}

/// A piece of a record with its tokens; a control token has one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RecordPart<'a> {
    /// What it is.
    pub content: PartContent<'a>,
    /// Its tokens.
    pub tokens: &'a [TokenId],
}

impl PromptRecord {
    /// The pieces, in order.
    pub fn parts(&self) -> impl Iterator<Item = RecordPart<'_>> {
        let starts = std::iter::once(0).chain(self.pieces.iter().map(|piece| piece.tokens_end));
        self.pieces.iter().zip(starts).map(|(piece, start)| RecordPart {
            content: match &piece.content {
                RecordContent::Control(_) => PartContent::Control,
                RecordContent::Text(text) => PartContent::Text(text),
                RecordContent::Cut => PartContent::Cut,
            },
            tokens: &self.tokens[start..piece.tokens_end],
        })
    }

    /// The record with these pieces. A control piece without exactly one token counts as cut, and equals nothing.
    pub fn from_parts<'a>(parts: impl Iterator<Item = RecordPart<'a>>) -> PromptRecord {
        let mut record = PromptRecord::default();
        for part in parts {
            record.tokens.extend_from_slice(part.tokens);
            let content = match (part.content, part.tokens) {
                (PartContent::Control, [token]) => RecordContent::Control(*token),
                (PartContent::Text(text), _) => RecordContent::Text(text.to_vec()),
                _ => RecordContent::Cut,
            };
            record.pieces.push(RecordPiece { content, tokens_end: record.tokens.len() });
        }
        record
    }
}
