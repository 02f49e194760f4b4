//! Activations: a batch of rows of equal width, row-major, `f32`.

/// `len` rows of `width` values.
#[derive(Clone, Debug, PartialEq)]
pub struct Rows {
    width: usize,
    values: Vec<f32>,
}

impl Rows {
    /// `len` rows of zeros.
    pub fn zeros(len: usize, width: usize) -> Rows {
        Rows { width, values: vec![0.0; len * width] }
    }

    /// Rows over these values.
    ///
    /// # Panics
    /// When the values do not fill whole rows.
    pub fn from_values(width: usize, values: Vec<f32>) -> Rows {
        assert!(values.len().is_multiple_of(width), "{} values are not rows of {width}", values.len());
        Rows { width, values }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.values.len() / self.width
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
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
        self.values
    }
}
