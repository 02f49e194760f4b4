//! What is known of a cached conversation, and how much of it a new prompt may reuse.
//!
//! Prefixes are compared piece by piece: a control token never equals its spelling typed by a user. What matched takes
//! the record's token ids, because the model may have chosen other tokens for a text than the tokenizer would.

mod reuse;

pub use reuse::Overlap;

use crate::{Piece, Prompt, Tokenizer};
use ds4_units::TokenId;

/// The pieces and token ids of a conversation whose state is kept: its prompt and what was generated after it.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct PromptRecord {
    pieces: Vec<RecordPiece>,
    tokens: Vec<TokenId>,
}

/// One piece, and where its tokens end.
#[derive(Clone, PartialEq, Eq)]
struct RecordPiece {
    content: RecordContent,
    tokens_end: usize,
}

/// Generated text may stop inside a character, so it is kept as bytes.
#[derive(Clone, PartialEq, Eq)]
enum RecordContent {
    Control(TokenId),
    Text(Vec<u8>),
    /// The first tokens of a text whose rest was forgotten. Equals nothing.
    Cut,
}

impl PromptRecord {
    /// The record of a prompt and its tokens.
    pub fn new(prompt: &Prompt, tokenizer: &Tokenizer) -> PromptRecord {
        let mut record = PromptRecord::default();
        record.extend(prompt.pieces(), tokenizer);
        record
    }

    /// All token ids, in order.
    pub fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    /// Appends a generated token. Tokens of text join the text before them.
    pub fn push_generated(&mut self, token: TokenId, tokenizer: &Tokenizer) {
        self.tokens.push(token);
        let tokens_end = self.tokens.len();
        if tokenizer.is_control(token) {
            self.pieces.push(RecordPiece { content: RecordContent::Control(token), tokens_end });
            return;
        }
        let bytes = tokenizer.token_bytes(token).unwrap_or_default();
        match self.pieces.last_mut() {
            Some(RecordPiece { content: RecordContent::Text(text), tokens_end: end }) => {
                text.extend_from_slice(bytes);
                *end = tokens_end;
            }
            _ => self.pieces.push(RecordPiece { content: RecordContent::Text(bytes.to_vec()), tokens_end }),
        }
    }

    fn extend(&mut self, pieces: &[Piece], tokenizer: &Tokenizer) {
        for piece in pieces {
            let content = match piece {
                Piece::Control(token) => {
                    self.tokens.push(*token);
                    RecordContent::Control(*token)
                }
                Piece::Text(text) => {
                    tokenizer.encode_text(text.as_str(), &mut self.tokens);
                    RecordContent::Text(text.as_str().as_bytes().to_vec())
                }
            };
            self.pieces.push(RecordPiece { content, tokens_end: self.tokens.len() });
        }
    }
}
