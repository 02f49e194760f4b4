//! What is known of a cached conversation, and how much of it a new prompt may reuse.
//!
//! Prefixes are compared piece by piece: a control token never equals its spelling typed by a user. What matched takes
//! the record's token ids, because the model may have chosen other tokens for a text than the tokenizer would.

mod parts;
mod reuse;

pub use parts::{PartContent, RecordPart};
pub use reuse::Overlap;

use crate::{Piece, Prompt, SampledPart, TextTooLarge, Tokenizer};
use ds4_units::{TokenId, Tokens};

/// A prompt is counted exactly up to so many times what is allowed: clients shorten theirs by the figure they are told.
const COUNTED_BEYOND: usize = 4;

/// The pieces and token ids of a conversation whose state is kept: its prompt and what was generated after it.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct PromptRecord {
    pieces: Vec<RecordPiece>,
    tokens: Vec<TokenId>,
    /// What its answers said exactly; more may be here than its tokens hold.
    answers: Vec<SampledPart>,
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

    /// The record of tokens whose pieces are not known any more: every control token is one, and so is what lies between
    /// two of them. Texts are what their tokens spell, whatever they were typed as.
    pub fn of_tokens(tokens: &[TokenId], tokenizer: &Tokenizer) -> PromptRecord {
        let mut record = PromptRecord::default();
        tokens.iter().for_each(|&token| record.push_generated(token, tokenizer));
        record
    }

    /// As [`PromptRecord::new`], for prompts of any size: it gives up on one that has more than `most` tokens. The
    /// number of tokens of one that is not far longer than that is exact.
    pub fn within(prompt: &Prompt, tokenizer: &Tokenizer, most: Tokens) -> Result<PromptRecord, TextTooLarge> {
        let mut record = PromptRecord::default();
        let counted = most.index().saturating_mul(COUNTED_BEYOND);
        for piece in prompt.pieces() {
            if let Piece::Text(text) = piece {
                tokenizer.encode_text_within(text.as_str(), &mut record.tokens, counted)?;
                let content = RecordContent::Text(text.as_str().as_bytes().to_vec());
                record.pieces.push(RecordPiece { content, tokens_end: record.tokens.len() });
            } else {
                record.extend(std::slice::from_ref(piece), tokenizer);
            }
        }
        let at_least = Tokens(record.tokens.len() as u32);
        if at_least > most { Err(TextTooLarge::Tokens { at_least }) } else { Ok(record) }
    }

    /// Bytes that the record takes.
    pub fn bytes(&self) -> u64 {
        let text = self.pieces.iter().map(|piece| match &piece.content {
            RecordContent::Text(text) => text.len(),
            RecordContent::Control(_) | RecordContent::Cut => 0,
        });
        (text.sum::<usize>() + size_of_val(self.tokens.as_slice()) + size_of_val(self.pieces.as_slice())) as u64
    }

    /// Notes what answers in it said exactly, for whoever keeps the record longer than the process lives.
    pub fn note_answers(&mut self, answers: impl IntoIterator<Item = SampledPart>) {
        self.answers.extend(answers);
    }

    /// What was noted of its answers.
    pub fn answers(&self) -> &[SampledPart] {
        &self.answers
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

    /// Appends a prompt; its tokens are its own, whatever came before.
    pub fn append(&mut self, prompt: &Prompt, tokenizer: &Tokenizer) {
        self.extend(prompt.pieces(), tokenizer);
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
