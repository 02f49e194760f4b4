//! Pooling tokens into compressed rows.
//!
//! Formula: the public reference implementation's. Per channel, a row is the softmax of its tokens' gates applied to
//! their values. The softmax is kept running (largest gate so far, sum of weights, weighted sum of values), token by
//! token, so that the result does not depend on how tokens are cut into steps and an unfinished row is three numbers a
//! channel.

use super::bank::HostBank;
use super::exp::exp;
use super::norm;
use super::workspace::Workspace;
use crate::Rows;
use crate::compression::{Compressor, RowKind};
use crate::kv_rows::KvFormat;
use crate::step::Step;
use rayon::prelude::*;

/// Channels that are pooled together; the state of a group is contiguous.
const LANES: usize = 16;

type Lanes = [f32; LANES];

/// One group's running softmax.
struct Pool<'a> {
    top: &'a mut Lanes,
    weight: &'a mut Lanes,
    sum: &'a mut Lanes,
}

/// Feeds every row's values and gates to the compressor of its bank and stores the rows this completes.
pub(crate) fn compress<F: KvFormat>(
    workspace: &Workspace,
    step: &mut Step<'_, HostBank>,
    compressor: &Compressor<Vec<f32>>,
    values: &Rows,
    gates: &Rows,
) {
    for segment in &mut step.segments {
        let first_row = compressor.finished(segment.start.index());
        let count = compressor.finished(segment.end()) - first_row;
        let groups = compressor.channels / LANES;
        let mut pooled = workspace.take(groups * count.max(1) * LANES);
        workspace.work(|| {
            let state = segment.bank.next_floats(compressor.pool.offset, compressor.pool.floats);
            let group_floats = state.len() / groups;
            state
                .par_chunks_exact_mut(group_floats)
                .zip(pooled.par_chunks_exact_mut(count.max(1) * LANES))
                .enumerate()
                .with_min_len(if segment.rows.len() < 8 { usize::MAX } else { 1 })
                .for_each(|(group, (state, pooled))| {
                    let tokens = segment.rows.clone().map(|row| (values.row(row), gates.row(row)));
                    pool_group(compressor, group, (state, pooled), segment.start.index(), tokens);
                });
            let mut row = vec![0.0; compressor.channels];
            for index in 0..count {
                for (lanes, pooled) in row.as_chunks_mut::<LANES>().0.iter_mut().zip(pooled.chunks_exact(count * LANES))
                {
                    lanes.copy_from_slice(&pooled[index * LANES..][..LANES]);
                }
                finish::<F>(compressor, segment.bank, first_row + index, &mut row);
            }
        });
    }
}

/// Runs one group of channels over the tokens; the rows they complete go to `pooled`.
fn pool_group<'a>(
    compressor: &Compressor<Vec<f32>>,
    group: usize,
    (state, pooled): (&mut [f32], &mut [f32]),
    start: usize,
    tokens: impl Iterator<Item = (&'a [f32], &'a [f32])>,
) {
    let at = group * LANES;
    let bias_width = compressor.position_bias.len() / compressor.ratio;
    let current_half = if compressor.overlapped { compressor.channels } else { 0 };
    let sets_of_lanes = state.as_chunks_mut::<LANES>().0;
    let mut rows = pooled.as_chunks_mut::<LANES>().0.iter_mut();
    for (position, (value, gate)) in (start..).zip(tokens) {
        let phase = position % compressor.ratio;
        if position == 0 {
            clear(sets_of_lanes);
        }
        let bias = &compressor.position_bias[phase * bias_width..][..bias_width];
        let (current, next) = sets_of_lanes.split_at_mut(3);
        pool(current).add(
            lanes(value, current_half + at),
            lanes(gate, current_half + at),
            lanes(bias, current_half + at),
        );
        if compressor.overlapped {
            pool(next).add(lanes(value, at), lanes(gate, at), lanes(bias, at));
        }
        if phase + 1 == compressor.ratio {
            let current = pool(current);
            let row = rows.next().expect("there is room for every row that is completed");
            *row = std::array::from_fn(|lane| current.sum[lane] / current.weight[lane]);
            finish_window(sets_of_lanes);
        }
    }
}

/// After a row: what was pooled for the next one becomes current.
fn finish_window(sets: &mut [Lanes]) {
    let (current, next) = sets.split_at_mut(3);
    if next.is_empty() {
        clear(current);
    } else {
        current.copy_from_slice(next);
        clear(next);
    }
}

fn clear(sets: &mut [Lanes]) {
    for set in sets.as_chunks_mut::<3>().0 {
        *set = [[f32::NEG_INFINITY; LANES], [0.0; LANES], [0.0; LANES]];
    }
}

fn pool(set: &mut [Lanes]) -> Pool<'_> {
    match set {
        [top, weight, sum] => Pool { top, weight, sum },
        _ => unreachable!("a pool is three groups of lanes"),
    }
}

fn lanes(row: &[f32], at: usize) -> &Lanes {
    row[at..at + LANES].try_into().expect("channels come in whole groups")
}

impl Pool<'_> {
    fn add(self, value: &Lanes, gate: &Lanes, bias: &Lanes) {
        for lane in 0..LANES {
            let gate = gate[lane] + bias[lane];
            let higher = gate > self.top[lane];
            // The larger of the two has weight one, so one exponential serves both.
            let smaller = exp(-(self.top[lane] - gate).abs());
            let (shrink, weight) = if higher { (smaller, 1.0) } else { (1.0, smaller) };
            self.top[lane] = if higher { gate } else { self.top[lane] };
            self.weight[lane] = self.weight[lane] * shrink + weight;
            self.sum[lane] = self.sum[lane] * shrink + value[lane] * weight;
        }
    }
}

/// Normalises, rotates and stores a finished row.
fn finish<F: KvFormat>(compressor: &Compressor<Vec<f32>>, bank: &mut HostBank, index: usize, row: &mut [f32]) {
    norm::normalize_weighted(row, &compressor.norm, compressor.norm_epsilon);
    compressor.rope.at(compressor.row_position(index)).apply(row);
    let (memory, slot) = bank.row_mut(compressor.rows, index);
    match compressor.kind {
        RowKind::Attention => F::write_attention(memory, compressor.rows.array, slot, row),
        RowKind::Index => F::write_index(memory, compressor.rows.array, slot, row),
    }
}
