//! The rows of one step, as the operations see them.

use crate::experts::EXPERTS_USED;
use ds4_units::{TokenId, TokenPos};
use std::ops::Range;

/// Rows of one conversation.
pub struct StepSegment<'a, Bank> {
    /// Which rows of the step.
    pub rows: Range<usize>,
    /// Position of the first row.
    pub start: TokenPos,
    /// The conversation's memory.
    pub bank: &'a mut Bank,
}

/// All rows of a step, segment by segment.
pub struct Step<'a, Bank> {
    /// Token of every row.
    pub tokens: Vec<TokenId>,
    /// Position of every row.
    pub positions: Vec<TokenPos>,
    /// The segments, covering every row once, in order.
    pub segments: Vec<StepSegment<'a, Bank>>,
    /// The rows whose logits are wanted.
    pub wanted: Vec<usize>,
}

impl<'a, Bank> Step<'a, Bank> {
    /// A step over these segments: start, tokens and bank of each.
    pub fn new(
        segments: impl IntoIterator<Item = (TokenPos, &'a [TokenId], &'a mut Bank)>,
        wanted: Vec<usize>,
    ) -> Step<'a, Bank> {
        let mut step = Step { tokens: Vec::new(), positions: Vec::new(), segments: Vec::new(), wanted };
        for (start, tokens, bank) in segments {
            let first = step.tokens.len();
            step.tokens.extend_from_slice(tokens);
            step.positions.extend((start.0..).take(tokens.len()).map(TokenPos));
            step.segments.push(StepSegment { rows: first..step.tokens.len(), start, bank });
        }
        step
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether the step has no rows.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Tokens that the longest bank holds after the step.
    pub fn end(&self) -> usize {
        self.segments.iter().map(StepSegment::end).max().unwrap_or(0)
    }

    /// The same, rounded up, so that consecutive steps are of one shape.
    pub fn reach(&self) -> usize {
        self.end().next_power_of_two()
    }

    /// Rows of the longest segment.
    pub fn longest(&self) -> usize {
        self.segments.iter().map(|segment| segment.rows.len()).max().unwrap_or(0)
    }

    /// The experts a token-routed layer gives every row.
    pub(crate) fn fixed_experts(&self, table: &[[u32; EXPERTS_USED]]) -> Vec<[u32; EXPERTS_USED]> {
        self.tokens.iter().map(|token| table[token.index()]).collect()
    }
}

impl<Bank> StepSegment<'_, Bank> {
    /// Tokens the bank holds after the step.
    pub fn end(&self) -> usize {
        self.start.index() + self.rows.len()
    }
}
