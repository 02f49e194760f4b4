//! Activations: a batch of rows of equal width, row-major, `f32`.

use crate::reference::Piece;
use std::fmt;

/// `len` rows of `width` values.
pub struct Rows {
    len: usize,
    width: usize,
    /// Nothing while operations are only tried out.
    values: Piece,
}

impl Rows {
    /// `len` rows of zeros.
    pub fn zeros(len: usize, width: usize) -> Rows {
        Rows::over(len, width, Piece::from(vec![0.0; len * width]))
    }

    /// Rows over these values.
    ///
    /// # Panics
    /// When the values do not fill whole rows.
    pub fn from_values(width: usize, values: Vec<f32>) -> Rows {
        assert!(values.len().is_multiple_of(width), "{} values are not rows of {width}", values.len());
        Rows::over(values.len() / width, width, Piece::from(values))
    }

    /// `len` rows of `width` values, which are as many.
    pub(crate) fn over(len: usize, width: usize, values: Piece) -> Rows {
        Rows { len, width, values }
    }

    /// The same values as rows of `width`.
    pub(crate) fn reshaped(self, width: usize) -> Rows {
        Rows { len: self.len * self.width / width, width, values: self.values }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Values in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Row `index`.
    pub fn row(&self, index: usize) -> &[f32] {
        &self.values[index * self.width..][..self.width]
    }

    /// Row `index`, to change.
    pub fn row_mut(&mut self, index: usize) -> &mut [f32] {
        &mut self.values[index * self.width..][..self.width]
    }

    /// Every row, in order.
    pub fn iter(&self) -> std::slice::ChunksExact<'_, f32> {
        self.values.chunks_exact(self.width)
    }

    /// All values, row by row.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// All values, to change.
    pub fn values_mut(&mut self) -> &mut [f32] {
        &mut self.values
    }

    /// The values themselves.
    pub fn into_values(self) -> Vec<f32> {
        self.values.into()
    }
}

impl Clone for Rows {
    fn clone(&self) -> Rows {
        Rows::over(self.len, self.width, Piece::from(self.values.to_vec()))
    }
}

impl PartialEq for Rows {
    fn eq(&self, other: &Rows) -> bool {
        (self.len, self.width) == (other.len, other.width) && self.values() == other.values()
    }
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows").field("width", &self.width).field("values", &self.values()).finish()
    }
}
