//! Root-mean-square normalisation. Squares are summed in `f64`, so that the order does not matter for the result's
//! precision.

use crate::Rows;
use rayon::prelude::*;

/// Divides `values` by their root mean square.
pub(crate) fn normalize(values: &mut [f32], epsilon: f32) {
    let squares: f64 = values.iter().map(|&value| f64::from(value) * f64::from(value)).sum();
    let scale = (squares / values.len() as f64 + f64::from(epsilon)).sqrt().recip() as f32;
    for value in values {
        *value *= scale;
    }
}

/// Normalises and multiplies by `weight`.
pub(crate) fn normalize_weighted(values: &mut [f32], weight: &[f32], epsilon: f32) {
    normalize(values, epsilon);
    for (value, weight) in values.iter_mut().zip(weight) {
        *value *= weight;
    }
}

/// Normalises every row.
pub(crate) fn normalize_rows(rows: &mut Rows, weight: &[f32], epsilon: f32) {
    let width = rows.width();
    let rows = rows.values_mut().par_chunks_exact_mut(width).with_min_len(super::min_rows(width));
    rows.for_each(|row| normalize_weighted(row, weight, epsilon));
}
