//! The record: pieces and token ids. The text is the container's.

use super::FileFault;
use super::bytes::Cursor;
use crate::transcript::{PieceEnd, PieceKind, Transcript};
use ds4_units::TokenId;

pub(crate) fn encode_record(transcript: &Transcript) -> Vec<u8> {
    let (pieces, tokens) = (transcript.ends(), transcript.tokens());
    let mut bytes = Vec::with_capacity(8 + pieces.len() * 12 + tokens.len() * 4);
    bytes.extend((pieces.len() as u32).to_le_bytes());
    for piece in pieces {
        let kind: u32 = match piece.kind {
            PieceKind::Control => 1,
            PieceKind::Text => 2,
            PieceKind::Cut => 3,
        };
        [kind, piece.text_end, piece.tokens_end].iter().for_each(|number| bytes.extend(number.to_le_bytes()));
    }
    bytes.extend((tokens.len() as u32).to_le_bytes());
    tokens.iter().for_each(|token| bytes.extend(token.0.to_le_bytes()));
    bytes
}

/// The transcript of a file with this text. Every token id must lie below `vocabulary`.
pub(crate) fn decode_record(bytes: &[u8], text: Vec<u8>, vocabulary: u32) -> Result<Transcript, FileFault> {
    let mut cursor = Cursor::new("record", bytes);
    let count = cursor.count(12)?;
    let mut pieces = Vec::with_capacity(count);
    for _ in 0..count {
        let kind = match cursor.u32()? {
            1 => PieceKind::Control,
            2 => PieceKind::Text,
            3 => PieceKind::Cut,
            other => return Err(FileFault::TooLarge { what: "kind of piece", found: other.into(), max: 3 }),
        };
        pieces.push(PieceEnd { kind, text_end: cursor.u32()?, tokens_end: cursor.u32()? });
    }
    let count = cursor.count(4)?;
    let mut tokens = Vec::with_capacity(count);
    for _ in 0..count {
        let token = cursor.u32()?;
        if token >= vocabulary {
            return Err(FileFault::TooLarge { what: "token", found: token.into(), max: u64::from(vocabulary) - 1 });
        }
        tokens.push(TokenId(token));
    }
    cursor.end()?;
    Transcript::new(text, tokens, pieces).map_err(|error| FileFault::Record(error.to_string()))
}
