//! Choosing the compressed rows that a query sees.
//!
//! Formula: the public reference implementation's. On ties the lower row wins; exact zeros are common because of the
//! rectifier.

use super::bank::HostBank;
use super::dot::dot_rows;
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
        let keys = read_rows::<F>(segment.bank, indexer.rows, finished);
        let keys: Vec<&[f32]> = keys.iter().collect();
        let rows = segment.rows.clone().zip(&mut selection.chosen[segment.rows.clone()]);
        rows.collect::<Vec<_>>().into_par_iter().for_each(|(row, chosen)| {
            let visible = (step.positions[row].index() + 1) / indexer.ratio;
            if visible > indexer.top {
                let scores = scores::<F>(queries.row(row), weights.row(row), &keys[..visible]);
                *chosen = Some(best(&scores, indexer.top));
            }
        });
    }
    selection
}

fn read_rows<F: KvFormat>(bank: &HostBank, place: BlockPlace, count: usize) -> Rows {
    let mut rows = Rows::zeros(count, place.array.width);
    for index in 0..count {
        let (memory, slot) = bank.row(place, index);
        F::read_index(memory, place.array, slot, rows.row_mut(index));
    }
    rows
}

/// `sum over heads of weight * max(0, query . key)` for every key.
fn scores<F: KvFormat>(query: &[f32], weights: &[f32], keys: &[&[f32]]) -> Vec<f32> {
    let width = query.len() / weights.len();
    let mut query = query.to_vec();
    query.chunks_exact_mut(width).for_each(F::round_index_query);
    let mut products = vec![0.0; weights.len() * keys.len()];
    dot_rows(&query, keys, width, &mut products);
    let scale = (query.len() as f32).sqrt().recip();
    let mut scores = vec![0.0; keys.len()];
    for (products, weight) in products.chunks_exact(keys.len()).zip(weights) {
        let weight = weight * scale;
        for (score, product) in scores.iter_mut().zip(products) {
            *score += weight * product.max(0.0);
        }
    }
    scores
}

/// The rows with the `top` largest scores, ascending.
fn best(scores: &[f32], top: usize) -> Vec<u32> {
    let mut order: Vec<u32> = (0..scores.len() as u32).collect();
    let better = |&a: &u32, &b: &u32| scores[b as usize].total_cmp(&scores[a as usize]).then(a.cmp(&b));
    order.select_nth_unstable_by(top - 1, better);
    order.truncate(top);
    order.sort_unstable();
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lower_row_wins_a_tie() {
        assert_eq!(best(&[0.0, 1.0, 0.0, 2.0, 0.0], 3), [0, 1, 3]);
        assert_eq!(best(&[-1.0, -1.0, -1.0], 2), [0, 1]);
        // A rectified zero is a zero whatever the sign of its weight.
        assert_eq!(best(&[0.0, 0.0, 3.0], 1), [2]);
    }
}
