//! Choosing the compressed rows that a query sees.
//!
//! Formula: the public reference implementation's. On ties the lower row wins; exact zeros are common because of the
//! rectifier.

use super::bank::HostBank;
use super::dot::dot_rows;
use super::workspace::Workspace;
use crate::Rows;
use crate::bank::BlockPlace;
use crate::compression::Selection;
use crate::kv_rows::KvFormat;
use crate::step::Step;
use rayon::prelude::*;

/// What the indexer needs beside the queries.
pub(crate) struct Indexer {
    pub(crate) rows: BlockPlace,
    pub(crate) ratio: usize,
    pub(crate) top: usize,
}

/// The best `top` finished rows for every query; all of them where there are no more.
///
/// `queries` are `[rows][heads * width]`, rotated; `weights` are `[rows][heads]`, unscaled.
pub(crate) fn select<F: KvFormat>(
    workspace: &Workspace,
    step: &Step<'_, HostBank>,
    indexer: &Indexer,
    queries: &Rows,
    weights: &Rows,
) -> Selection {
    let mut selection = Selection::all(step.len());
    for segment in &step.segments {
        let finished = segment.end() / indexer.ratio;
        if finished <= indexer.top {
            continue;
        }
        let mut keys = workspace.rows(finished, indexer.rows.array.width);
        let tasks = workspace.tasks(scratch(queries.width(), weights.width(), finished));
        let chosen = &mut selection.chosen[segment.rows.clone()];
        if workspace.is_tried() {
            chosen.fill(Some((0..indexer.top as u32).collect()));
        }
        workspace.work(|| {
            read_rows::<F>(segment.bank, indexer.rows, &mut keys);
            let keys: Vec<&[f32]> = keys.iter().collect();
            segment.rows.clone().zip(chosen).collect::<Vec<_>>().into_par_iter().for_each(|(row, chosen)| {
                let visible = (step.positions[row].index() + 1) / indexer.ratio;
                if visible > indexer.top {
                    let (query, weights, keys) = (queries.row(row), weights.row(row), &keys[..visible]);
                    let mut scratch = tasks.take(scratch(query.len(), weights.len(), visible));
                    let (scores, order) = scores::<F>(query, weights, keys, &mut scratch);
                    *chosen = Some(best(scores, bytemuck::cast_slice_mut(order), indexer.top));
                }
            });
        });
    }
    selection
}

fn read_rows<F: KvFormat>(bank: &HostBank, place: BlockPlace, rows: &mut Rows) {
    for index in 0..rows.len() {
        let (memory, slot) = bank.row(place, index);
        F::read_index(memory, place.array, slot, rows.row_mut(index));
    }
}

/// Values that a task takes while it runs: its query, the products of its heads with keys, their sums, and an order.
fn scratch(query: usize, heads: usize, keys: usize) -> usize {
    query + heads * keys + 2 * keys
}

/// `sum over heads of weight * max(0, query . key)` for every key, and room for their order.
fn scores<'a, F: KvFormat>(
    query: &[f32],
    weights: &[f32],
    keys: &[&[f32]],
    scratch: &'a mut [f32],
) -> (&'a [f32], &'a mut [f32]) {
    let width = query.len() / weights.len();
    let (own, scratch) = scratch.split_at_mut(query.len());
    let (products, scratch) = scratch.split_at_mut(weights.len() * keys.len());
    let (scores, order) = scratch.split_at_mut(keys.len());
    own.copy_from_slice(query);
    own.chunks_exact_mut(width).for_each(F::round_index_query);
    dot_rows(own, keys, width, products);
    let scale = (query.len() as f32).sqrt().recip();
    scores.fill(0.0);
    for (products, weight) in products.chunks_exact(keys.len()).zip(weights) {
        let weight = weight * scale;
        for (score, product) in scores.iter_mut().zip(products) {
            *score += weight * product.max(0.0);
        }
    }
    (scores, order)
}

/// The rows with the `top` largest scores, ascending; `order` has a place for each.
fn best(scores: &[f32], order: &mut [u32], top: usize) -> Vec<u32> {
    order.iter_mut().zip(0..).for_each(|(place, index)| *place = index);
    let better = |&a: &u32, &b: &u32| scores[b as usize].total_cmp(&scores[a as usize]).then(a.cmp(&b));
    order.select_nth_unstable_by(top - 1, better);
    let mut best = order[..top].to_vec();
    best.sort_unstable();
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lower_row_wins_a_tie() {
        let best = |scores: &[f32], top| best(scores, &mut vec![0; scores.len()], top);
        assert_eq!(best(&[0.0, 1.0, 0.0, 2.0, 0.0], 3), [0, 1, 3]);
        assert_eq!(best(&[-1.0, -1.0, -1.0], 2), [0, 1]);
        // A rectified zero is a zero whatever the sign of its weight.
        assert_eq!(best(&[0.0, 0.0, 3.0], 1), [2]);
    }
}
