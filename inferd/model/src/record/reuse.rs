//! Reuse of a kept conversation by a prompt that is tokenised already.

use super::{PromptRecord, RecordContent, RecordPiece};
use ds4_units::Tokens;

/// How much of a prompt a record covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// Tokens, from the start, that are the record's own.
    pub reused: Tokens,
    /// Tokens of the whole prompt when these are taken over.
    pub total: Tokens,
}

impl PromptRecord {
    /// How much of `prompt` this record covers, without building anything.
    pub fn overlap(&self, prompt: &PromptRecord) -> Overlap {
        let (_, mine, theirs) = self.common_pieces(prompt);
        let same = self.tokens[mine..].iter().zip(&prompt.tokens[theirs..]).take_while(|(a, b)| a == b).count();
        Overlap { reused: Tokens((mine + same) as u32), total: Tokens((mine + prompt.tokens.len() - theirs) as u32) }
    }

    /// `prompt` with this record's token ids for the pieces both have in common from the start. Text is tokenised
    /// piece by piece, so the other pieces keep their ids.
    pub fn adopt(&self, prompt: &PromptRecord) -> PromptRecord {
        let (pieces, mine, theirs) = self.common_pieces(prompt);
        let mut tokens = self.tokens[..mine].to_vec();
        tokens.extend_from_slice(&prompt.tokens[theirs..]);
        let mut adopted = self.pieces[..pieces].to_vec();
        adopted.extend(prompt.pieces[pieces..].iter().cloned().map(|mut piece| {
            piece.tokens_end = piece.tokens_end - theirs + mine;
            piece
        }));
        PromptRecord { pieces: adopted, tokens, answers: prompt.answers.clone() }
    }

    /// Forgets what lies beyond the first `count` tokens. A text cut in two keeps its tokens but equals no text any more.
    pub fn truncate(&mut self, count: Tokens) {
        self.tokens.truncate(count.index());
        self.pieces.retain(|piece| piece.tokens_end <= count.index());
        let whole = self.pieces.last().map_or(0, |piece| piece.tokens_end);
        if whole < self.tokens.len() {
            self.pieces.push(RecordPiece { content: RecordContent::Cut, tokens_end: self.tokens.len() });
        }
    }

    /// How many control tokens the record ends with.
    pub fn trailing_controls(&self) -> usize {
        let is_control = |content: &RecordContent| matches!(content, RecordContent::Control(_));
        self.pieces.iter().rev().take_while(|piece| is_control(&piece.content)).count()
    }

    /// Leading pieces equal in both, and where they end in either token list.
    fn common_pieces(&self, prompt: &PromptRecord) -> (usize, usize, usize) {
        let pairs = self.pieces.iter().zip(&prompt.pieces);
        let same = |mine: &RecordPiece, theirs: &RecordPiece| {
            mine.content == theirs.content && mine.content != RecordContent::Cut
        };
        let count = pairs.take_while(|(mine, theirs)| same(mine, theirs)).count();
        let end = |record: &PromptRecord| count.checked_sub(1).map_or(0, |last| record.pieces[last].tokens_end);
        (count, end(self), end(prompt))
    }
}
