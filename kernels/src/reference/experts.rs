//! The feed-forward site: six routed experts and a shared one.
//!
//! Rows are grouped by expert, so that an expert's weights are expanded once for all rows that chose it. A row's sum is
//! taken in the order of its routes, shared expert first, whatever other rows share the call.

use super::exp::sigmoid;
use super::multiply::{Product, multiply_all};
use crate::experts::{ExpertConstants, Routes};
use crate::{Matrix, Rows};
use rayon::prelude::*;

/// Gate, up and down matrices: a stack with one of each per routed expert, or a stack of one.
pub(crate) struct Mlp<'a> {
    pub(crate) gate: &'a Matrix,
    pub(crate) up: &'a Matrix,
    pub(crate) down: &'a Matrix,
}

/// A routed expert's use by one row.
struct Use {
    row: usize,
    rank: usize,
}

/// `shared(x) + sum of weight * expert(x)` for every row.
pub(crate) fn feed_forward(
    routed: &Mlp<'_>,
    shared: &Mlp<'_>,
    constants: &ExpertConstants,
    routes: &Routes,
    inputs: &Rows,
) -> Rows {
    let groups = group(routes, routed.gate.stack());
    let mut first = Vec::new();
    for half in [(routed.gate, shared.gate), (routed.up, shared.up)] {
        first.extend(
            groups
                .iter()
                .map(|(expert, uses)| whole(half.0, *expert, uses.iter().map(|of| inputs.row(of.row)).collect())),
        );
        first.push(whole(half.1, 0, inputs.iter().collect()));
    }
    let mut hidden = multiply_all(&first);
    let linear = hidden.split_off(groups.len() + 1);
    let min_groups = super::min_rows(inputs.width()).div_ceil(inputs.len());
    hidden.par_iter_mut().zip(&linear).enumerate().with_min_len(min_groups).for_each(|(index, (gates, linear))| {
        let uses = groups.get(index).map(|(_, uses)| uses.as_slice());
        activate(gates, linear, constants.clamp, |row| {
            uses.map_or(1.0, |uses| routes.weights[uses[row].row][uses[row].rank])
        });
    });
    let downs = groups.iter().map(|(expert, _)| (routed.down, *expert)).chain([(shared.down, 0)]);
    let second: Vec<_> =
        downs.zip(&hidden).map(|((matrix, index), hidden)| whole(matrix, index, hidden.iter().collect())).collect();
    sum_by_row(&groups, multiply_all(&second), inputs.len())
}

fn whole<'a>(matrix: &'a Matrix, index: usize, inputs: Vec<&'a [f32]>) -> Product<'a> {
    Product { matrix, index, rows: 0..matrix.rows(), inputs }
}

/// The experts in use, in order of id, each with its uses in order of row.
fn group(routes: &Routes, experts: usize) -> Vec<(usize, Vec<Use>)> {
    let mut by_expert: Vec<Vec<Use>> = (0..experts).map(|_| Vec::new()).collect();
    for (row, chosen) in routes.experts.iter().enumerate() {
        for (rank, &expert) in chosen.iter().enumerate() {
            by_expert[expert as usize].push(Use { row, rank });
        }
    }
    by_expert.into_iter().enumerate().filter(|(_, uses)| !uses.is_empty()).collect()
}

/// `silu(gate) * up * weight`, with the published clamps, in place of the gates.
fn activate(gates: &mut Rows, linear: &Rows, clamp: f32, weight: impl Fn(usize) -> f32) {
    for row in 0..linear.len() {
        let weight = weight(row);
        for (gate, &linear) in gates.row_mut(row).iter_mut().zip(linear.row(row)) {
            let capped = gate.min(clamp);
            *gate = capped * sigmoid(capped) * linear.clamp(-clamp, clamp) * weight;
        }
    }
}

/// Adds up every row's experts. The last of `outputs` is the shared expert's, in row order.
fn sum_by_row(groups: &[(usize, Vec<Use>)], mut outputs: Vec<Rows>, rows: usize) -> Rows {
    let mut result = outputs.pop().expect("the shared expert always runs");
    let mut by_rank: Vec<Vec<(usize, &[f32])>> = (0..rows).map(|_| Vec::new()).collect();
    for ((_, uses), output) in groups.iter().zip(&outputs) {
        for (of, output) in uses.iter().zip(output.iter()) {
            by_rank[of.row].push((of.rank, output));
        }
    }
    let width = result.width();
    result.values_mut().par_chunks_exact_mut(width).zip(by_rank).with_min_len(super::min_rows(width)).for_each(
        |(sum, mut parts)| {
            parts.sort_unstable_by_key(|(rank, _)| *rank);
            for (_, part) in parts {
                for (sum, part) in sum.iter_mut().zip(part) {
                    *sum += part;
                }
            }
        },
    );
    result
}
