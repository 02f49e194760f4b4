//! The forward pass, written once for every backend.
//!
//! Each operation's formula stands with its implementation in `ds4-kernels`; this file is their order.

use super::bind::{Attention, CompressorWeights, FeedForward, ModelWeights};
use super::shape::{INDEX_WIDTH, Shape};
use ds4_kernels::backend::{Backend, HeadPath};
use ds4_kernels::hyper_connection::HyperConstants;
use ds4_kernels::step::Step;

/// Runs every layer over the step's rows and returns the logits of its wanted rows, in their order.
pub(super) fn forward<B: Backend>(
    backend: &B,
    weights: &ModelWeights<B>,
    shape: &Shape,
    step: &mut Step<'_, B::Bank>,
) -> Option<B::Rows> {
    let constants = HyperConstants {
        norm_epsilon: shape.norm_epsilon,
        mix_epsilon: shape.mix_epsilon,
        iterations: shape.sinkhorn_iterations,
    };
    let mut streams = backend.embed(&weights.embedding, step);
    for layer in &weights.layers {
        let mixed = backend.mix(&layer.attention_site, &constants, &streams);
        let output = attention(backend, &layer.attention, shape, step, &mixed.input);
        backend.merge(&mut streams, &mixed.merge, &output);
        let mixed = backend.mix(&layer.feed_forward_site, &constants, &streams);
        let output = feed_forward(backend, &layer.feed_forward, step, &mixed.input);
        backend.merge(&mut streams, &mixed.merge, &output);
    }
    if step.wanted.is_empty() {
        return None;
    }
    let collapsed = backend.collapse(&weights.head, &constants, &streams, step);
    Some(backend.multiply(&weights.output, &collapsed))
}

fn attention<B: Backend>(
    backend: &B,
    layer: &Attention<B>,
    shape: &Shape,
    step: &mut Step<'_, B::Bank>,
    input: &B::Rows,
) -> B::Rows {
    let mut low = backend.multiply(&layer.query_a, input);
    backend.normalize(&mut low, &layer.query_a_norm, shape.norm_epsilon);
    let queries = backend.multiply(&layer.query_b, &low);

    let mut rows = backend.multiply(&layer.kv, input);
    backend.normalize(&mut rows, &layer.kv_norm, shape.norm_epsilon);
    backend.rotate(&mut rows, shape.head_width, &layer.rope, step);
    backend.store_window(step, layer.window, &mut rows);

    let compressed = layer.rows.as_ref().map(|compressed| {
        compress(backend, compressed, step, input);
        (compressed.compressor.rows, select(backend, layer, shape, step, input, &low))
    });
    let compressed = compressed.as_ref().map(|(place, selection)| (*place, selection));
    let path = HeadPath {
        width: shape.head_width,
        epsilon: shape.norm_epsilon,
        rope: &layer.rope,
        sinks: &layer.sinks,
        output: &layer.output_a,
        groups: shape.output_groups,
    };
    let low = backend.attend_heads(step, layer.window, compressed, queries, &rows, &path);
    backend.multiply(&layer.output_b, &low)
}

/// Feeds the input to a compressor.
fn compress<B: Backend>(backend: &B, weights: &CompressorWeights<B>, step: &mut Step<'_, B::Bank>, input: &B::Rows) {
    let values = backend.multiply(&weights.values, input);
    let gates = backend.multiply(&weights.gates, input);
    backend.compress(step, &weights.compressor, &values, &gates);
}

/// The compressed rows each query sees. The indexer only computes where there are more than it may choose.
fn select<B: Backend>(
    backend: &B,
    layer: &Attention<B>,
    shape: &Shape,
    step: &mut Step<'_, B::Bank>,
    input: &B::Rows,
    low: &B::Rows,
) -> B::Selection {
    let Some(indexer) = &layer.indexer else {
        return backend.select_all(step);
    };
    compress(backend, &indexer.keys, step, input);
    let keys = &indexer.keys.compressor;
    if keys.finished(step.reach()) <= shape.index_top {
        return backend.select_all(step);
    }
    let mut queries = backend.multiply(&indexer.queries, low);
    backend.rotate(&mut queries, INDEX_WIDTH, &layer.rope, step);
    let head_weights = backend.multiply(&indexer.head_weights, input);
    backend.select(step, keys.rows, shape.index_top, &queries, &head_weights)
}

fn feed_forward<B: Backend>(backend: &B, layer: &FeedForward<B>, step: &Step<'_, B::Bank>, input: &B::Rows) -> B::Rows {
    let logits = backend.multiply(&layer.router, input);
    let routes = backend.route(step, &logits, &layer.routing, &layer.constants);
    backend.feed_forward(&layer.routed, &layer.shared, &layer.constants, &routes, input)
}
