//! One step of a model: a batch of token segments in, logits out.
//!
//! Everything a model computes is a segment: a chunk of a cold prefill, the suffix of a warm conversation, one decode
//! row, several speculative rows. Dense work runs over all rows of all segments at once, state work per segment.

use ds4_units::{BankId, TokenId, TokenPos};
use std::ops::Range;

/// Which rows of a segment need logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogitsWanted {
    /// No row: the segment only fills the bank.
    None,
    /// The last row, to sample the next token from.
    Last,
    /// Every row.
    All,
    /// The last row's likeliest token and no logits: [`StepLogits::drawn`]. Those of guesses too.
    Greedy,
}

/// Consecutive tokens of one conversation.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// The bank whose state the tokens extend.
    pub bank: BankId,
    /// The position of the first token: exactly the bank's frontier.
    pub start: TokenPos,
    /// The tokens; at least one.
    pub tokens: &'a [TokenId],
    /// The rows to return logits for.
    pub logits: LogitsWanted,
    /// So many tokens at the end are guesses. Logits are then returned for each of them beside the last token before
    /// them, and the bank stays as it was until [`crate::Model::accept`] says how many of them were right.
    pub drafted: usize,
}

/// The segments of one step. No bank appears twice.
#[derive(Clone, Copy, Debug)]
pub struct StepBatch<'a> {
    /// The segments, in the order their logits come back.
    pub segments: &'a [Segment<'a>],
}

/// Logits of one step: rows of `vocabulary` values, grouped by segment; and the tokens of greedy segments.
#[derive(Clone, Debug)]
pub struct StepLogits {
    vocabulary: usize,
    values: Vec<f32>,
    rows_of_segment: Vec<Range<usize>>,
    drawn: Vec<Vec<Option<TokenId>>>,
}

impl StepLogits {
    /// Logits for rows of `vocabulary` values; `rows_per_segment[i]` rows belong to segment `i`.
    ///
    /// # Panics
    /// When the number of values is not the number of rows times `vocabulary`.
    pub fn new(vocabulary: usize, rows_per_segment: &[usize], values: Vec<f32>) -> StepLogits {
        let mut next = 0;
        let rows_of_segment: Vec<Range<usize>> = rows_per_segment
            .iter()
            .map(|&rows| {
                next += rows;
                next - rows..next
            })
            .collect();
        assert_eq!(values.len(), next * vocabulary, "logits do not match the rows asked for");
        StepLogits { vocabulary, values, rows_of_segment, drawn: Vec::new() }
    }

    /// The same with the likeliest token of every segment that asked for it.
    pub fn with_drawn(self, drawn: Vec<Option<TokenId>>) -> StepLogits {
        self.with_all_drawn(drawn.into_iter().map(|token| vec![token]).collect())
    }

    /// The same where segments have guesses: a token for each row that was asked for.
    pub fn with_all_drawn(self, drawn: Vec<Vec<Option<TokenId>>>) -> StepLogits {
        StepLogits { drawn, ..self }
    }

    /// The likeliest token after segment `index`, the lowest id of equal ones. None where the segment did not ask with
    /// [`LogitsWanted::Greedy`], and where a logit is not finite.
    pub fn drawn(&self, index: usize) -> Option<TokenId> {
        self.all_drawn(index).last().copied().flatten()
    }

    /// The likeliest token after the last certain token of segment `index`, and after each of its guesses.
    pub fn all_drawn(&self, index: usize) -> &[Option<TokenId>] {
        self.drawn.get(index).map_or(&[], Vec::as_slice)
    }

    /// The logits of segment `index`, one slice per row asked for, in token order.
    pub fn of_segment(&self, index: usize) -> impl DoubleEndedIterator<Item = &[f32]> + ExactSizeIterator {
        let rows = self.rows_of_segment[index].clone();
        self.values[rows.start * self.vocabulary..rows.end * self.vocabulary].chunks_exact(self.vocabulary)
    }

    /// The logits of the last row of segment `index`; `None` when it asked for none.
    pub fn last_of_segment(&self, index: usize) -> Option<&[f32]> {
        self.of_segment(index).next_back()
    }
}
