//! Mixing streams into a block's input and merging its output back.
//!
//! Formula: the public reference implementation's.

use super::multiply::multiply;
use super::norm;
use super::workspace::Workspace;
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
pub(crate) fn mix(
    workspace: &Workspace,
    site: &Site<'_>,
    norm_weight: &[f32],
    constants: &HyperConstants,
    streams: &Rows,
) -> Mixed<Rows> {
    let mut mixes = mix_logits(workspace, site, constants, streams);
    let width = streams.width() / STREAMS;
    let mut input = workspace.rows(streams.len(), width);
    let mut merge = workspace.rows(streams.len(), MIX_WIDTH - STREAMS);
    let rows = input
        .values_mut()
        .par_chunks_exact_mut(width)
        .zip(merge.values_mut().par_chunks_exact_mut(MIX_WIDTH - STREAMS));
    let sources =
        mixes.values_mut().par_chunks_exact_mut(MIX_WIDTH).zip(streams.values().par_chunks_exact(streams.width()));
    rows.zip(sources).with_min_len(super::min_rows(streams.width())).for_each(|((input, merge), (mix, streams))| {
        let (gates, rest) = mix.split_at_mut(STREAMS);
        for (gate, &base) in gates.iter_mut().zip(site.base) {
            *gate = self::gate(*gate, site.scale[0], base, constants.mix_epsilon);
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
pub(crate) fn collapse(
    workspace: &Workspace,
    site: &Site<'_>,
    norm_weight: &[f32],
    constants: &HyperConstants,
    streams: &Rows,
) -> Rows {
    let gates = mix_logits(workspace, site, constants, streams);
    let width = streams.width() / STREAMS;
    let mut result = workspace.rows(streams.len(), width);
    for (index, (gates, streams)) in gates.iter().zip(streams.iter()).enumerate() {
        let gates: [f32; STREAMS] =
            std::array::from_fn(|i| gate(gates[i], site.scale[0], site.base[i], constants.mix_epsilon));
        let row = result.row_mut(index);
        weighted_sum(&gates, streams, row);
        norm::normalize_weighted(row, norm_weight, constants.norm_epsilon);
    }
    result
}

/// The mixing matrix applied to the normalised streams of every row.
fn mix_logits(workspace: &Workspace, site: &Site<'_>, constants: &HyperConstants, streams: &Rows) -> Rows {
    let width = streams.width();
    let mut flat = workspace.rows(streams.len(), width);
    flat.values_mut().copy_from_slice(streams.values());
    let rows = flat.values_mut().par_chunks_exact_mut(width).with_min_len(super::min_rows(width));
    rows.for_each(|row| norm::normalize(row, constants.norm_epsilon));
    multiply(workspace, site.mix, &flat)
}

fn weighted_sum(weights: &[f32], streams: &[f32], out: &mut [f32]) {
    let width = out.len();
    for (channel, out) in out.iter_mut().enumerate() {
        *out = weights.iter().enumerate().map(|(i, weight)| weight * streams[i * width + channel]).sum();
    }
}

/// Output gates and the doubly stochastic stream matrix from their logits, in place. In `f64`: it is twenty-four numbers,
/// and forty divisions in a row would give all channels the same avoidable error.
fn finish_merge(site: &Site<'_>, constants: &HyperConstants, merge: &mut [f32]) {
    let (post, matrix) = merge.split_at_mut(STREAMS);
    let (post_base, matrix_base) = site.base[STREAMS..].split_at(STREAMS);
    for (post, &base) in post.iter_mut().zip(post_base) {
        *post = (2.0 * sigmoid(scaled(*post, site.scale[1], base))) as f32;
    }
    let logits = matrix.iter().zip(matrix_base).map(|(&value, &base)| scaled(value, site.scale[2], base));
    let mut rows = [[0.0f64; STREAMS]; STREAMS];
    rows.as_flattened_mut().iter_mut().zip(logits).for_each(|(value, logit)| *value = logit);
    balance(&mut rows, f64::from(constants.mix_epsilon), constants.iterations);
    matrix.iter_mut().zip(rows.as_flattened()).for_each(|(out, &value)| *out = value as f32);
}

/// Row-wise softmax, then alternating column and row passes, the last one over columns.
fn balance(matrix: &mut [[f64; STREAMS]; STREAMS], epsilon: f64, iterations: usize) {
    for row in matrix.iter_mut() {
        let top = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        *row = row.map(|value| (value - top).exp());
        let sum: f64 = row.iter().sum();
        *row = row.map(|value| value / sum + epsilon);
    }
    divide_columns(matrix, epsilon);
    for _ in 1..iterations {
        for row in matrix.iter_mut() {
            let sum = row.iter().sum::<f64>() + epsilon;
            *row = row.map(|value| value / sum);
        }
        divide_columns(matrix, epsilon);
    }
}

fn divide_columns(matrix: &mut [[f64; STREAMS]; STREAMS], epsilon: f64) {
    let sums: [f64; STREAMS] = std::array::from_fn(|k| matrix.iter().map(|row| row[k]).sum::<f64>() + epsilon);
    for row in matrix {
        for (value, sum) in row.iter_mut().zip(sums) {
            *value /= sum;
        }
    }
}

/// How much of a stream goes into a block.
fn gate(logit: f32, scale: f32, base: f32, epsilon: f32) -> f32 {
    (sigmoid(scaled(logit, scale, base)) + f64::from(epsilon)) as f32
}

fn scaled(logit: f32, scale: f32, base: f32) -> f64 {
    f64::from(logit) * f64::from(scale) + f64::from(base)
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}
