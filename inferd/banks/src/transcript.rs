//! What a stored conversation says: its rendered text, its pieces and the model's own token ids.

use crate::limits::{TEXT_MAX, TOKENS_MAX};
use ds4_units::TokenId;
use std::fmt;
use thiserror::Error;

/// What a piece is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PieceKind {
    /// One control token.
    Control,
    /// Whole text.
    Text,
    /// The first tokens of a text whose rest is not known. Only the last piece may be one.
    Cut,
}

/// One piece, and where its text and its tokens end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PieceEnd {
    /// What it is.
    pub kind: PieceKind,
    /// End in the text, in bytes.
    pub text_end: u32,
    /// End in the tokens.
    pub tokens_end: u32,
}

/// One piece with what it holds.
#[derive(Clone, Copy)]
pub struct Piece<'a> {
    /// What it is.
    pub kind: PieceKind,
    /// Its text; of a control token, the token's spelling.
    pub text: &'a [u8],
    /// Its tokens.
    pub tokens: &'a [TokenId],
}

/// A conversation's text, pieces and tokens. It has no `Display`, and `Debug` shows lengths only.
#[derive(Clone, PartialEq, Eq)]
pub struct Transcript {
    text: Vec<u8>,
    tokens: Vec<TokenId>,
    pieces: Vec<PieceEnd>,
}

/// Pieces that do not fit their text and tokens.
#[derive(Debug, Error, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum TranscriptError {
    #[error("a conversation without tokens")]
    Empty,
    #[error("{text} bytes of text and {tokens} tokens are more than a file may hold")]
    TooLong { text: usize, tokens: usize },
    #[error("piece {piece} does not follow the one before it")]
    Order { piece: usize },
    #[error("piece {piece} is a control token of {tokens} tokens")]
    Control { piece: usize, tokens: u32 },
    #[error("piece {piece} of {pieces} is cut, and not the last")]
    CutInside { piece: usize, pieces: usize },
    #[error("the pieces end at byte {text_end} of {text} and token {tokens_end} of {tokens}")]
    Ends { text_end: u32, text: usize, tokens_end: u32, tokens: usize },
}

impl Transcript {
    /// A transcript, checked.
    pub fn new(text: Vec<u8>, tokens: Vec<TokenId>, pieces: Vec<PieceEnd>) -> Result<Transcript, TranscriptError> {
        if tokens.is_empty() {
            return Err(TranscriptError::Empty);
        }
        if text.len() > TEXT_MAX.index() || tokens.len() > TOKENS_MAX as usize {
            return Err(TranscriptError::TooLong { text: text.len(), tokens: tokens.len() });
        }
        let (mut text_at, mut tokens_at) = (0, 0);
        for (piece, end) in pieces.iter().enumerate() {
            if end.text_end < text_at || end.tokens_end <= tokens_at {
                return Err(TranscriptError::Order { piece });
            }
            let count = end.tokens_end - tokens_at;
            match end.kind {
                PieceKind::Control if count != 1 => return Err(TranscriptError::Control { piece, tokens: count }),
                PieceKind::Cut if piece + 1 < pieces.len() => {
                    return Err(TranscriptError::CutInside { piece, pieces: pieces.len() });
                }
                _ => {}
            }
            (text_at, tokens_at) = (end.text_end, end.tokens_end);
        }
        if text_at as usize != text.len() || tokens_at as usize != tokens.len() {
            let (text, tokens) = (text.len(), tokens.len());
            return Err(TranscriptError::Ends { text_end: text_at, text, tokens_end: tokens_at, tokens });
        }
        Ok(Transcript { text, tokens, pieces })
    }

    /// The rendered text.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// The token ids.
    pub fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    /// How many tokens.
    pub fn len(&self) -> u32 {
        self.tokens.len() as u32
    }

    /// Never: a transcript has at least one token.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Where its pieces end.
    pub fn ends(&self) -> &[PieceEnd] {
        &self.pieces
    }

    /// Its pieces, in order.
    pub fn pieces(&self) -> impl Iterator<Item = Piece<'_>> {
        let starts = std::iter::once((0, 0)).chain(self.pieces.iter().map(|end| (end.text_end, end.tokens_end)));
        self.pieces.iter().zip(starts).map(|(end, (text, tokens))| Piece {
            kind: end.kind,
            text: &self.text[text as usize..end.text_end as usize],
            tokens: &self.tokens[tokens as usize..end.tokens_end as usize],
        })
    }
}

impl fmt::Debug for Transcript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Transcript({} bytes, {} tokens)", self.text.len(), self.tokens.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(kind: PieceKind, text_end: u32, tokens_end: u32) -> PieceEnd {
        PieceEnd { kind, text_end, tokens_end }
    }

    #[test]
    fn pieces_must_cover_text_and_tokens_in_order() {
        use PieceKind::*;
        let with = |pieces: &[PieceEnd]| {
            Transcript::new(b"abcd".to_vec(), vec![TokenId(1), TokenId(2), TokenId(3)], pieces.to_vec())
        };
        assert!(with(&[end(Control, 1, 1), end(Text, 4, 3)]).is_ok());
        assert!(with(&[end(Text, 4, 2), end(Cut, 4, 3)]).is_ok());
        let wrong = [
            (vec![], TranscriptError::Ends { text_end: 0, text: 4, tokens_end: 0, tokens: 3 }),
            (vec![end(Control, 4, 3)], TranscriptError::Control { piece: 0, tokens: 3 }),
            (vec![end(Text, 2, 2), end(Text, 1, 3)], TranscriptError::Order { piece: 1 }),
            (vec![end(Text, 2, 2), end(Text, 4, 2)], TranscriptError::Order { piece: 1 }),
            (vec![end(Cut, 2, 2), end(Text, 4, 3)], TranscriptError::CutInside { piece: 0, pieces: 2 }),
        ];
        for (pieces, error) in wrong {
            assert_eq!(with(&pieces).unwrap_err(), error);
        }
    }
}
