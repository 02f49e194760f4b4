//! Latent attention: queries of all heads against one row per token, which is key and value at once.
//!
//! Formula: the public reference implementation's. A query sees the raw rows of the last 128 tokens, itself included,
//! and the compressed rows of its selection, in that order; a learnt logit per head takes part in the softmax without a
//! value.

use super::bank::HostBank;
use super::dot::{dot_rows, multiply_add};
use super::exp::exp;
use super::workspace::{Tasks, Workspace};
use crate::Rows;
use crate::bank::{BlockPlace, WINDOW, WindowPlace};
use crate::compression::Selection;
use crate::kv_rows::KvFormat;
use crate::step::{Step, StepSegment};
use rayon::prelude::*;
use std::ops::Range;

/// Heads that one thread takes when a segment has a single row: enough to be worth handing over.
const HEADS_PER_TASK: usize = 2;

/// A layer's compressed rows.
pub(crate) struct Compressed<'a> {
    pub(crate) rows: BlockPlace,
    pub(crate) ratio: usize,
    pub(crate) selection: &'a Selection,
}

/// Rounds the new raw rows as storing does and puts them into their banks' windows.
pub(crate) fn store_window<F: KvFormat>(step: &mut Step<'_, HostBank>, place: WindowPlace, rows: &mut Rows) {
    let width = rows.width();
    rows.values_mut().par_chunks_exact_mut(width).with_min_len(8).for_each(F::round_attention);
    for segment in &mut step.segments {
        let memory = &mut segment.bank.next()[place.offset..];
        for row in segment.rows.clone().rev().take(WINDOW) {
            let slot = step.positions[row].index() % WINDOW;
            F::write_attention(memory, place.array, slot, rows.row(row));
        }
    }
}

/// Attention of every row and head: `[rows][heads * width]`, before the inverse rotation.
///
/// `queries` are normalised and rotated; `new_rows` are the step's own raw rows as [`store_window`] left them.
pub(crate) fn attend<F: KvFormat>(
    workspace: &Workspace,
    step: &Step<'_, HostBank>,
    window: WindowPlace,
    compressed: Option<&Compressed<'_>>,
    queries: &Rows,
    new_rows: &Rows,
    sinks: &[f32],
) -> Rows {
    let width = new_rows.width();
    let mut result = workspace.rows(step.len(), queries.width());
    let mut rest = result.values_mut();
    for segment in &step.segments {
        let keys = SegmentKeys::room(workspace, segment, window, compressed, width);
        let tasks = workspace.tasks(sinks.len() * keys.most());
        workspace.work(|| {
            let (out, later) = std::mem::take(&mut rest).split_at_mut(segment.rows.len() * queries.width());
            rest = later;
            let keys = keys.read::<F>(segment, window, new_rows);
            // A single row is split by heads, so that decoding uses more than one thread.
            let heads = if segment.rows.len() > 1 { sinks.len() } else { HEADS_PER_TASK.min(sinks.len()) };
            out.par_chunks_mut(heads * width).enumerate().for_each(|(task, out)| {
                let first_head = task * heads % sinks.len();
                let row = segment.rows.start + task * heads / sinks.len();
                let heads = first_head..first_head + out.len() / width;
                let query = &queries.row(row)[heads.start * width..heads.end * width];
                attend_heads(&tasks, query, &keys.visible(step.positions[row].index(), row), &sinks[heads], out);
            });
        });
    }
    result
}

/// The rows that a segment's queries may see, expanded.
struct SegmentKeys<'a> {
    /// The first position that any query sees.
    oldest: usize,
    /// Position of the first row of `before`.
    window_start: usize,
    /// Raw rows of tokens before the segment.
    before: Rows,
    /// Raw rows of the segment's own tokens.
    own: Vec<&'a [f32]>,
    start: usize,
    compressed: Option<(Rows, &'a Compressed<'a>, Expanded<'a>)>,
}

/// Which compressed rows are expanded.
enum Expanded<'a> {
    /// All finished rows, in order.
    All,
    /// The selection of the only query, in its order.
    Chosen(&'a [u32]),
}

impl<'a> SegmentKeys<'a> {
    /// Room for them.
    fn room(
        workspace: &Workspace,
        segment: &StepSegment<'_, HostBank>,
        window: WindowPlace,
        compressed: Option<&'a Compressed<'a>>,
        width: usize,
    ) -> SegmentKeys<'a> {
        let start = segment.start.index();
        let window_start = start.saturating_sub(WINDOW - 1).max(window.oldest).min(start);
        let compressed = compressed.map(|compressed| {
            let only_selection = match segment.rows.len() {
                1 => compressed.selection.of(segment.rows.start),
                _ => None,
            };
            let (count, expanded) = match only_selection {
                Some(chosen) => (chosen.len(), Expanded::Chosen(chosen)),
                None => (segment.end() / compressed.ratio, Expanded::All),
            };
            (workspace.rows(count, compressed.rows.array.width), compressed, expanded)
        });
        let before = workspace.rows(start - window_start, width);
        SegmentKeys { oldest: window.oldest, window_start, before, own: Vec::new(), start, compressed }
    }

    /// The most rows that a query sees.
    fn most(&self) -> usize {
        let compressed = self.compressed.as_ref().map_or(0, |(rows, compressed, _)| {
            let chosen = compressed.selection.chosen.iter().flatten().map(Vec::len).max();
            chosen.unwrap_or(0).max(if compressed.selection.chosen.iter().all(Option::is_some) {
                0
            } else {
                rows.len()
            })
        });
        WINDOW + compressed
    }

    /// Expands them.
    fn read<F: KvFormat>(
        mut self,
        segment: &StepSegment<'_, HostBank>,
        window: WindowPlace,
        new_rows: &'a Rows,
    ) -> SegmentKeys<'a> {
        let memory = &segment.bank.before()[window.offset..];
        for position in self.window_start..self.start {
            let row = self.before.row_mut(position - self.window_start);
            F::read_attention(memory, window.array, position % WINDOW, row);
        }
        self.own = segment.rows.clone().map(|row| new_rows.row(row)).collect();
        if let Some((rows, compressed, expanded)) = &mut self.compressed {
            let place = compressed.rows;
            for at in 0..rows.len() {
                let index = match expanded {
                    Expanded::All => at,
                    Expanded::Chosen(chosen) => chosen[at] as usize,
                };
                let (memory, slot) = segment.bank.row(place, index);
                F::read_attention(memory, place.array, slot, rows.row_mut(at));
            }
        }
        self
    }

    /// The rows that the query at `position` (row `row` of the step) sees.
    fn visible(&self, position: usize, row: usize) -> Vec<&[f32]> {
        let mut keys: Vec<&[f32]> = Vec::with_capacity(WINDOW);
        for seen in (position + 1).saturating_sub(WINDOW).max(self.oldest)..=position {
            keys.push(match seen.checked_sub(self.start) {
                Some(own) => self.own[own],
                None => self.before.row(seen - self.window_start),
            });
        }
        if let Some((rows, compressed, expanded)) = &self.compressed {
            match (&compressed.selection.chosen[row], expanded) {
                (Some(chosen), Expanded::All) => keys.extend(chosen.iter().map(|&index| rows.row(index as usize))),
                (Some(_), Expanded::Chosen(_)) => keys.extend(rows.iter()),
                (None, _) => keys.extend(rows.iter().take((position + 1) / compressed.ratio)),
            }
        }
        keys
    }
}

/// Softmax attention of some heads over the same rows.
fn attend_heads(tasks: &Tasks<'_>, queries: &[f32], keys: &[&[f32]], sinks: &[f32], out: &mut [f32]) {
    let width = queries.len() / sinks.len();
    let mut weights = tasks.take(sinks.len() * keys.len());
    dot_rows(queries, keys, width, &mut weights);
    let scale = (width as f32).sqrt().recip();
    for (weights, &sink) in weights.chunks_exact_mut(keys.len()).zip(sinks) {
        softmax_with_sink(weights, scale, sink);
    }
    let mut pairs = weights.chunks_exact(keys.len()).zip(out.chunks_exact_mut(width));
    while let Some((first, first_out)) = pairs.next() {
        match pairs.next() {
            Some((second, second_out)) => weighted_sums([first, second], keys, [first_out, second_out]),
            None => weighted_sums([first], keys, [first_out]),
        }
    }
}

/// Scores to weights, in place. The sink takes its share of the sum and has no value.
fn softmax_with_sink(scores: &mut [f32], scale: f32, sink: f32) {
    let mut top = sink;
    for score in scores.iter_mut() {
        *score *= scale;
        top = top.max(*score);
    }
    let mut sum = 0.0f64;
    for score in scores.iter_mut() {
        *score = exp(*score - top);
        sum += f64::from(*score);
    }
    let share = (1.0 / (sum + f64::from(exp(sink - top)))) as f32;
    for score in scores {
        *score *= share;
    }
}

/// Channels summed together for two heads: eight vector registers of sums.
const CHANNELS: usize = 32;

/// `out[h] = sum over rows of weights[h][row] * row`, rows in order.
fn weighted_sums<const H: usize>(weights: [&[f32]; H], rows: &[&[f32]], mut out: [&mut [f32]; H]) {
    let width = out[0].len();
    for start in (0..width).step_by(CHANNELS) {
        let range = start..(start + CHANNELS).min(width);
        if range.len() == CHANNELS {
            sum_channels(weights, rows, &mut out, range);
        } else {
            for channel in range {
                for (out, weights) in out.iter_mut().zip(weights) {
                    out[channel] = weights
                        .iter()
                        .zip(rows)
                        .fold(0.0, |sum, (&weight, row)| multiply_add(weight, row[channel], sum));
                }
            }
        }
    }
}

#[inline(always)]
fn sum_channels<const H: usize>(weights: [&[f32]; H], rows: &[&[f32]], out: &mut [&mut [f32]; H], range: Range<usize>) {
    let mut sums = [[0.0f32; CHANNELS]; H];
    for (index, row) in rows.iter().enumerate() {
        let values: &[f32; CHANNELS] = row[range.clone()].try_into().expect("a whole group of channels");
        for (sums, weights) in sums.iter_mut().zip(weights) {
            let weight = weights[index];
            for (sum, &value) in sums.iter_mut().zip(values) {
                *sum = multiply_add(weight, value, *sum);
            }
        }
    }
    for (out, sums) in out.iter_mut().zip(sums) {
        out[range.clone()].copy_from_slice(&sums);
    }
}
