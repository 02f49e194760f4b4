//! The feed-forward site: six routed experts and a shared one.
//!
//! Rows are grouped by expert, so that an expert's weights are expanded once for all rows that chose it. A row's sum is
//! taken in the order of its routes, shared expert first, whatever other rows share the call.

use super::exp::sigmoid;
use super::multiply::{Product, Size, multiply_all};
use super::workspace::Workspace;
use crate::experts::{EXPERTS_USED, ExpertConstants, Routes};
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
    workspace: &Workspace,
    routed: &Mlp<'_>,
    shared: &Mlp<'_>,
    constants: &ExpertConstants,
    routes: &Routes,
    inputs: &Rows,
) -> Rows {
    let (rows, uses) = (inputs.len(), inputs.len() * EXPERTS_USED);
    let groups = group(routes, routed.gate.stack());
    // Gates of every use, expert by expert, and of every row for the shared one; then as many linear values.
    let half = uses * routed.gate.rows() + rows * shared.gate.rows();
    let mut hidden = workspace.take(2 * half);
    let size = Size { values: 2 * half, columns: inputs.width() };
    multiply_all(workspace, size, &mut hidden, || {
        let halves = [(routed.gate, shared.gate), (routed.up, shared.up)];
        let products = halves.into_iter().flat_map(|(routed, shared)| {
            let own = |uses: &[Use]| uses.iter().map(|of| inputs.row(of.row)).collect();
            let routed = groups.iter().map(move |(expert, uses)| whole(routed, *expert, own(uses)));
            routed.chain([whole(shared, 0, inputs.iter().collect())])
        });
        products.collect()
    });
    workspace.work(|| {
        let (gates, linear) = hidden.split_at_mut(half);
        let pairs = parts(gates, &groups, routed.gate.rows()).into_iter().zip(parts(linear, &groups, routed.up.rows()));
        let min_groups = super::min_rows(inputs.width()).div_ceil(rows.max(1));
        pairs.collect::<Vec<_>>().into_par_iter().enumerate().with_min_len(min_groups).for_each(
            |(index, (gates, linear))| match groups.get(index) {
                Some((_, uses)) => activate(gates, linear, routed.gate.rows(), constants.clamp, |row| {
                    routes.weights[uses[row].row][uses[row].rank]
                }),
                None => activate(gates, linear, shared.gate.rows(), constants.clamp, |_| 1.0),
            },
        );
    });
    let width = shared.down.rows();
    let mut outputs = workspace.take((uses + rows) * width);
    let columns = routed.down.columns().max(shared.down.columns());
    let size = Size { values: (uses + rows) * width, columns };
    multiply_all(workspace, size, &mut outputs, || {
        let hidden = parts(&mut hidden[..half], &groups, routed.down.columns());
        let downs = groups.iter().map(|(expert, _)| (routed.down, *expert)).chain([(shared.down, 0)]);
        let hidden = hidden.into_iter().map(|hidden| &*hidden);
        downs
            .zip(hidden)
            .map(|((matrix, index), hidden)| whole(matrix, index, hidden.chunks_exact(matrix.columns()).collect()))
            .collect()
    });
    let mut result = workspace.rows(rows, width);
    workspace.work(|| sum_by_row(&groups, &outputs, &mut result));
    result
}

/// The uses of every group, `width` values each, and what is left for the shared expert.
fn parts<'a>(mut values: &'a mut [f32], groups: &[(usize, Vec<Use>)], width: usize) -> Vec<&'a mut [f32]> {
    let mut parts = Vec::with_capacity(groups.len() + 1);
    for (_, uses) in groups {
        let (own, others) = values.split_at_mut(uses.len() * width);
        parts.push(own);
        values = others;
    }
    parts.push(values);
    parts
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

/// `silu(gate) * up * weight` of rows of `width`, with the published clamps, in place of the gates.
fn activate(gates: &mut [f32], linear: &[f32], width: usize, clamp: f32, weight: impl Fn(usize) -> f32) {
    for (row, (gates, linear)) in gates.chunks_exact_mut(width).zip(linear.chunks_exact(width)).enumerate() {
        let weight = weight(row);
        for (gate, &linear) in gates.iter_mut().zip(linear) {
            let capped = gate.min(clamp);
            *gate = capped * sigmoid(capped) * linear.clamp(-clamp, clamp) * weight;
        }
    }
}

/// Adds up every row's experts. `outputs` are those of every group's uses, then the shared expert's in row order.
fn sum_by_row(groups: &[(usize, Vec<Use>)], outputs: &[f32], result: &mut Rows) {
    let width = result.width();
    let mut places = vec![[0; EXPERTS_USED]; result.len()];
    for (place, of) in groups.iter().flat_map(|(_, uses)| uses).enumerate() {
        places[of.row][of.rank] = place;
    }
    let (routed, shared) = outputs.split_at(result.len() * EXPERTS_USED * width);
    let rows = result.values_mut().par_chunks_exact_mut(width).zip(shared.par_chunks_exact(width)).zip(places);
    rows.with_min_len(super::min_rows(width)).for_each(|((sum, shared), places)| {
        sum.copy_from_slice(shared);
        for place in places {
            for (sum, part) in sum.iter_mut().zip(&routed[place * width..][..width]) {
                *sum += part;
            }
        }
    });
}
