//! What compressors, the indexer and attention agree on.

use crate::bank::{BlockPlace, PoolPlace};
use crate::rope::Rope;
use ds4_units::TokenPos;

/// Which rows a compressor makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowKind {
    /// Keys and values for attention.
    Attention,
    /// Keys for the indexer.
    Index,
}

/// A compressor: one row out of every `ratio` tokens.
#[derive(Clone, Debug)]
pub struct Compressor<Vector> {
    /// Tokens per row.
    pub ratio: usize,
    /// Channels of a row.
    pub channels: usize,
    /// Whether a row also pools the window before its own; then values and gates have two halves, the first for the
    /// next window's row and the second for the current one's.
    pub overlapped: bool,
    /// Added to the gates by position in the window: `[ratio][gate width]`.
    pub position_bias: Vector,
    /// Multiplies the normalised row.
    pub norm: Vector,
    /// Under the root of the row's norm.
    pub norm_epsilon: f32,
    /// Rotates the row, at the position of its window's first token.
    pub rope: Rope,
    /// The unfinished row.
    pub pool: PoolPlace,
    /// Where finished rows go.
    pub rows: BlockPlace,
    /// How they are stored.
    pub kind: RowKind,
}

impl<Vector> Compressor<Vector> {
    /// Finished rows once `tokens` tokens are in.
    pub fn finished(&self, tokens: usize) -> usize {
        tokens / self.ratio
    }

    /// Position that row `row` is rotated at.
    pub(crate) fn row_position(&self, row: usize) -> TokenPos {
        TokenPos((row * self.ratio) as u32)
    }
}

/// The compressed rows each query of a step sees.
#[derive(Clone, Debug, PartialEq)]
pub struct Selection {
    /// For every row of the step: `None` for all finished rows, else the chosen ones in ascending order.
    pub(crate) chosen: Vec<Option<Vec<u32>>>,
}

impl Selection {
    /// The rows that query `query` sees, ascending; `None` when it sees every finished one.
    pub fn of(&self, query: usize) -> Option<&[u32]> {
        self.chosen[query].as_deref()
    }

    /// Number of queries.
    pub fn len(&self) -> usize {
        self.chosen.len()
    }

    /// Whether there is no query.
    pub fn is_empty(&self) -> bool {
        self.chosen.is_empty()
    }

    /// Every finished row, for each of `rows` queries.
    pub fn all(rows: usize) -> Selection {
        Selection { chosen: vec![None; rows] }
    }
}
