//! The forward pass, written once for every backend.
//!
//! Each operation's formula stands with its implementation in `ds4-kernels`; this file is their order.

use super::bind::{Attention, CompressorWeights, DraftWeights, FeedForward, Layer, ModelWeights};
use super::draft;
use super::shape::Shape;
use ds4_kernels::backend::{Backend, Experts, HeadPath, HyperSite, Produced, Settling};
use ds4_kernels::hyper_connection::{HyperConstants, Mixed};
use ds4_kernels::step::Step;
use std::ops::Range;

/// Runs every layer over the step's rows and returns the logits of its wanted rows, in their order. A draft block follows
/// it; then what the layers store is kept, if the rows are few, so that a part of the step can be stored once more.
pub(super) fn forward<B: Backend>(
    backend: &B,
    weights: &ModelWeights<B>,
    draft: Option<&DraftWeights<B>>,
    shape: &Shape,
    step: &mut Step<'_, B::Bank>,
) -> Produced<B::Rows> {
    let constants = hyper_constants(shape);
    let keeps = draft.is_some() && step.len() <= B::REPLAY_ROWS;
    let mut kept = Vec::new();
    let mut streams = backend.embed(&weights.embedding, step);
    for (index, weights_of_layer) in weights.layers.iter().enumerate() {
        let next = weights.layers.get(index + 1).map(|next| &next.attention_site);
        kept.extend(layer(backend, weights_of_layer, shape, step, (&mut streams, next), keeps));
    }
    if let Some(draft) = draft {
        let row = draft::follow(backend, draft, &weights.embedding, shape, step, &streams);
        if keeps {
            kept.extend([row, streams]);
            let streams = kept.last().expect("it was just kept");
            return Produced { logits: logits(backend, weights, &weights.head, &constants, streams, step), kept };
        }
    }
    Produced { logits: logits(backend, weights, &weights.head, &constants, &streams, step), kept }
}

/// Stores what [`forward`] has kept of the rows `rows` once more; the step's only segment is of them.
pub(super) fn store_again<B: Backend>(
    backend: &B,
    weights: &ModelWeights<B>,
    draft: &DraftWeights<B>,
    step: &mut Step<'_, B::Bank>,
    kept: &mut [B::Rows],
    rows: Range<usize>,
) {
    let mut kept = kept.iter();
    let mut next = || backend.part(kept.next().expect("every layer kept what it stored"), rows.clone());
    for layer in &weights.layers {
        backend.store_window(step, layer.attention.window, &mut next());
        for weights in layer.attention.compressors() {
            backend.compress(step, &weights.compressor, &next(), &next());
        }
    }
    backend.store_window(step, draft.places.window, &mut next());
    backend.leave_streams(step, draft.places.streams, &next());
}

/// The logits of the wanted rows.
pub(super) fn logits<B: Backend>(
    backend: &B,
    weights: &ModelWeights<B>,
    head: &HyperSite<B>,
    constants: &HyperConstants,
    streams: &B::Rows,
    step: &Step<'_, B::Bank>,
) -> Option<B::Rows> {
    if step.wanted.is_empty() {
        return None;
    }
    let collapsed = backend.collapse(head, constants, streams, step);
    Some(backend.multiply(&weights.output, &collapsed))
}

/// Runs a layer over the streams, before the site that comes next. With `keeps` it returns the rows that it stored in the
/// window, then values and gates that it gave its compressors. What nothing needs any more is given back at once: it would
/// be some hundred megabytes beside the next operation's own, in a step of many rows.
pub(super) fn layer<B: Backend>(
    backend: &B,
    layer: &Layer<B>,
    shape: &Shape,
    step: &mut Step<'_, B::Bank>,
    (streams, next): (&mut B::Rows, Option<&HyperSite<B>>),
    keeps: bool,
) -> Vec<B::Rows> {
    let constants = hyper_constants(shape);
    let stored = {
        let Mixed { input, mut merge } = backend.mix(&layer.attention_site, &constants, streams);
        let (output, stored) = attention(backend, &layer.attention, shape, step, (input, &merge), keeps);
        let into = [&mut *streams, &mut merge];
        backend.multiply_and_merge(&layer.attention.output_b, &output, into, Some(&layer.feed_forward_site));
        stored
    };
    let Mixed { input, mut merge } = backend.mix(&layer.feed_forward_site, &constants, streams);
    backend.feed_forward_and_merge(step, &experts(&layer.feed_forward), &input, [streams, &mut merge], next);
    stored
}

pub(super) fn hyper_constants(shape: &Shape) -> HyperConstants {
    HyperConstants {
        norm_epsilon: shape.norm_epsilon,
        mix_epsilon: shape.mix_epsilon,
        iterations: shape.sinkhorn_iterations,
    }
}

/// The low rank of attention's output, and what was stored if it is kept.
fn attention<B: Backend>(
    backend: &B,
    layer: &Attention<B>,
    shape: &Shape,
    step: &mut Step<'_, B::Bank>,
    (input, merge): (B::Rows, &B::Rows),
    keeps: bool,
) -> (B::Rows, Vec<B::Rows>) {
    // The indexer chooses only where there are more rows than it may choose.
    let many = |keys: &CompressorWeights<B>| keys.compressor.finished(step.reach()) > shape.index_top;
    let chooser = layer.indexer.as_ref().filter(|indexer| many(&indexer.keys));
    let mut matrices = vec![&layer.query_a, &layer.kv];
    matrices.extend(layer.compressors().flat_map(|compressor| [&compressor.values, &compressor.gates]));
    matrices.extend(chooser.map(|indexer| &indexer.head_weights));
    let mut products = backend.multiply_all(&matrices, &input).into_iter();
    drop(input);
    let mut next = || products.next().expect("a result for every matrix");
    let (mut low, mut rows) = (next(), next());
    let feeds: Vec<_> = layer.compressors().map(|weights| (&weights.compressor, next(), next())).collect();
    let settling = Settling {
        low_norm: &layer.query_a_norm,
        row_norm: &layer.kv_norm,
        epsilon: shape.norm_epsilon,
        rope: &layer.rope,
        window: layer.window,
    };
    let mut matrices = vec![&layer.query_b];
    matrices.extend(chooser.map(|indexer| &indexer.queries));
    let both = (&matrices[..], merge);
    let mut products = backend.settle_and_multiply(step, &settling, [&mut low, &mut rows], &feeds, both).into_iter();
    drop(low);
    let fed = feeds.into_iter().filter(|_| keeps).flat_map(|(_, values, gates)| [values, gates]).collect::<Vec<_>>();
    let mut product = || products.next().expect("a result for every matrix");
    let queries = product();
    let selection = match chooser {
        None => backend.select_all(step),
        Some(indexer) => {
            let (place, index_queries) = (indexer.keys.compressor.rows, product());
            backend.select(step, place, shape.index_top, &layer.rope, index_queries, &next())
        }
    };
    let compressed = layer.rows.as_ref().map(|compressed| (compressed.compressor.rows, &selection));
    let path = HeadPath {
        width: shape.head_width,
        epsilon: shape.norm_epsilon,
        rope: &layer.rope,
        sinks: &layer.sinks,
        output: &layer.output_a,
        groups: shape.output_groups,
    };
    let output = backend.attend_heads(step, layer.window, compressed, queries, &rows, &path);
    let stored = if keeps { std::iter::once(rows).chain(fed).collect() } else { Vec::new() };
    (output, stored)
}

fn experts<B: Backend>(layer: &FeedForward<B>) -> Experts<'_, B> {
    let FeedForward { router, routing, routed, shared, constants } = layer;
    Experts { router, routing, routed, shared, constants }
}
