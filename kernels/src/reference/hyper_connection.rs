//! Mixing streams into a block's input and merging its output back.
//!
//! Formula: the public reference implementation's.

use super::exp::{exp, sigmoid};
use super::multiply::multiply;
use super::norm;
use crate::hyper_connection::{HyperConstants, MIX_WIDTH, Mixed, STREAMS};
use crate::{Matrix, Rows};
use rayon::prelude::*;

/// A site's own weights.
pub(crate) struct Site<'a> {
    pub(crate) mix: &'a Matrix,
    pub(crate) base: &'a [f32],
    pub(crate) scale: &'a [f32],
}

/// Gates, the stream matrix and the normalised block input of every row.
pub(crate) fn mix(site: &Site<'_>, norm_weight: &[f32], constants: &HyperConstants, streams: &Rows) -> Mixed<Rows> {
    let mut mixes = mix_logits(site, constants, streams);
    let width = streams.width() / STREAMS;
    let mut input = Rows::zeros(streams.len(), width);
    let mut merge = Rows::zeros(streams.len(), MIX_WIDTH - STREAMS);
    let rows = input
        .values_mut()
        .par_chunks_exact_mut(width)
        .zip(merge.values_mut().par_chunks_exact_mut(MIX_WIDTH - STREAMS));
    let sources =
        mixes.values_mut().par_chunks_exact_mut(MIX_WIDTH).zip(streams.values().par_chunks_exact(streams.width()));
    rows.zip(sources).with_min_len(super::min_rows(streams.width())).for_each(|((input, merge), (mix, streams))| {
        let (gates, rest) = mix.split_at_mut(STREAMS);
        for (gate, base) in gates.iter_mut().zip(site.base) {
            *gate = sigmoid(*gate * site.scale[0] + base) + constants.mix_epsilon;
        }
        weighted_sum(gates, streams, input);
        norm::normalize_weighted(input, norm_weight, constants.norm_epsilon);
        merge.copy_from_slice(rest);
        finish_merge(site, constants, merge);
    });
    Mixed { input, merge }
}

/// `streams_k = post_k * output + sum_j matrix[j][k] * streams_j`, in place.
pub(crate) fn merge(streams: &mut Rows, merge: &Rows, output: &Rows) {
    let width = output.width();
    let rows = streams.values_mut().par_chunks_exact_mut(width * STREAMS);
    rows.zip(merge.values().par_chunks_exact(merge.width()))
        .zip(output.values().par_chunks_exact(width))
        .with_min_len(super::min_rows(width * STREAMS))
        .for_each(|((streams, merge), output)| {
            let (post, matrix) = merge.split_at(STREAMS);
            for channel in 0..width {
                let old: [f32; STREAMS] = std::array::from_fn(|j| streams[j * width + channel]);
                for k in 0..STREAMS {
                    let mut sum = post[k] * output[channel];
                    for (j, old) in old.iter().enumerate() {
                        sum += matrix[j * STREAMS + k] * old;
                    }
                    streams[k * width + channel] = sum;
                }
            }
        });
}

/// The head's own site: streams to one normalised row.
pub(crate) fn collapse(site: &Site<'_>, norm_weight: &[f32], constants: &HyperConstants, streams: &Rows) -> Rows {
    let gates = mix_logits(site, constants, streams);
    let width = streams.width() / STREAMS;
    let mut result = Rows::zeros(streams.len(), width);
    for (index, (gates, streams)) in gates.iter().zip(streams.iter()).enumerate() {
        let gates: [f32; STREAMS] =
            std::array::from_fn(|i| sigmoid(gates[i] * site.scale[0] + site.base[i]) + constants.mix_epsilon);
        let row = result.row_mut(index);
        weighted_sum(&gates, streams, row);
        norm::normalize_weighted(row, norm_weight, constants.norm_epsilon);
    }
    result
}

/// The mixing matrix applied to the normalised streams of every row.
fn mix_logits(site: &Site<'_>, constants: &HyperConstants, streams: &Rows) -> Rows {
    let mut flat = streams.clone();
    let width = flat.width();
    let rows = flat.values_mut().par_chunks_exact_mut(width).with_min_len(super::min_rows(width));
    rows.for_each(|row| norm::normalize(row, constants.norm_epsilon));
    multiply(site.mix, &flat)
}

fn weighted_sum(weights: &[f32], streams: &[f32], out: &mut [f32]) {
    let width = out.len();
    for (channel, out) in out.iter_mut().enumerate() {
        *out = weights.iter().enumerate().map(|(i, weight)| weight * streams[i * width + channel]).sum();
    }
}

/// Output gates and the doubly stochastic stream matrix from their logits, in place.
fn finish_merge(site: &Site<'_>, constants: &HyperConstants, merge: &mut [f32]) {
    let (post, matrix) = merge.split_at_mut(STREAMS);
    let (post_base, matrix_base) = site.base[STREAMS..].split_at(STREAMS);
    for (post, base) in post.iter_mut().zip(post_base) {
        *post = 2.0 * sigmoid(*post * site.scale[1] + base);
    }
    for (value, base) in matrix.iter_mut().zip(matrix_base) {
        *value = *value * site.scale[2] + base;
    }
    let matrix = matrix.as_chunks_mut::<STREAMS>().0;
    for row in matrix.iter_mut() {
        let top = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        *row = row.map(|value| exp(value - top));
        let sum: f32 = row.iter().sum();
        *row = row.map(|value| value / sum + constants.mix_epsilon);
    }
    divide_columns(matrix, constants.mix_epsilon);
    for _ in 1..constants.iterations {
        for row in matrix.iter_mut() {
            let sum = row.iter().sum::<f32>() + constants.mix_epsilon;
            *row = row.map(|value| value / sum);
        }
        divide_columns(matrix, constants.mix_epsilon);
    }
}

fn divide_columns(matrix: &mut [[f32; STREAMS]], epsilon: f32) {
    let sums: [f32; STREAMS] = std::array::from_fn(|k| matrix.iter().map(|row| row[k]).sum::<f32>() + epsilon);
    for row in matrix {
        for (value, sum) in row.iter_mut().zip(sums) {
            *value /= sum;
        }
    }
}
