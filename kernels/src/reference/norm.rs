//! Root-mean-square normalisation, in `f64` with one rounding at the end: rows are rounded to few bits right after it,
//! and a value near a tie must not fall to the other side because of noise that is easily avoided.

use crate::Rows;
use rayon::prelude::*;

/// Divides `values` by their root mean square.
pub(crate) fn normalize(values: &mut [f32], epsilon: f32) {
    let scale = scale(values, epsilon);
    for value in values {
        *value = (f64::from(*value) * scale) as f32;
    }
}

/// Normalises and multiplies by `weight`.
pub(crate) fn normalize_weighted(values: &mut [f32], weight: &[f32], epsilon: f32) {
    let scale = scale(values, epsilon);
    for (value, &weight) in values.iter_mut().zip(weight) {
        *value = (f64::from(*value) * scale * f64::from(weight)) as f32;
    }
}

fn scale(values: &[f32], epsilon: f32) -> f64 {
    let squares: f64 = values.iter().map(|&value| f64::from(value) * f64::from(value)).sum();
    (squares / values.len() as f64 + f64::from(epsilon)).sqrt().recip()
}

/// Normalises every row.
pub(crate) fn normalize_rows(rows: &mut Rows, weight: &[f32], epsilon: f32) {
    let width = rows.width();
    let rows = rows.values_mut().par_chunks_exact_mut(width).with_min_len(super::min_rows(width));
    rows.for_each(|row| normalize_weighted(row, weight, epsilon));
}
