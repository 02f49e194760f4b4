//! The forward pass, written once for every backend.
//!
//! Each operation's formula stands with its implementation in `ds4-kernels`; this file is their order.

use super::bind::{Attention, CompressorWeights, FeedForward, ModelWeights};
use super::shape::{INDEX_WIDTH, Shape};
use ds4_kernels::backend::{Backend, Experts, HeadPath, Settling};
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
    for (index, layer) in weights.layers.iter().enumerate() {
        let mut mixed = backend.mix(&layer.attention_site, &constants, &streams);
        let output = attention(backend, &layer.attention, shape, step, &mixed.input);
        let into = [&mut streams, &mut mixed.merge];
        backend.multiply_and_merge(&layer.attention.output_b, &output, into, Some(&layer.feed_forward_site));
        let mut mixed = backend.mix(&layer.feed_forward_site, &constants, &streams);
        let next = weights.layers.get(index + 1).map(|next| &next.attention_site);
        let into = [&mut streams, &mut mixed.merge];
        backend.feed_forward_and_merge(step, &experts(&layer.feed_forward), &mixed.input, into, next);
    }
    if step.wanted.is_empty() {
        return None;
    }
    let collapsed = backend.collapse(&weights.head, &constants, &streams, step);
    Some(backend.multiply(&weights.output, &collapsed))
}

/// The low rank of attention's output.
fn attention<B: Backend>(
    backend: &B,
    layer: &Attention<B>,
    shape: &Shape,
    step: &mut Step<'_, B::Bank>,
    input: &B::Rows,
) -> B::Rows {
    // The indexer chooses only where there are more rows than it may choose.
    let many = |keys: &CompressorWeights<B>| keys.compressor.finished(step.reach()) > shape.index_top;
    let chooser = layer.indexer.as_ref().filter(|indexer| many(&indexer.keys));
    let compressors = || layer.rows.iter().chain(layer.indexer.iter().map(|indexer| &indexer.keys));

    let mut matrices = vec![&layer.query_a, &layer.kv];
    matrices.extend(compressors().flat_map(|compressor| [&compressor.values, &compressor.gates]));
    matrices.extend(chooser.map(|indexer| &indexer.head_weights));
    let mut products = backend.multiply_all(&matrices, input).into_iter();
    let mut next = || products.next().expect("a result for every matrix");
    let (mut low, mut rows) = (next(), next());
    let feeds: Vec<_> = compressors().map(|weights| (&weights.compressor, next(), next())).collect();
    let settling = Settling {
        low_norm: &layer.query_a_norm,
        row_norm: &layer.kv_norm,
        epsilon: shape.norm_epsilon,
        rope: &layer.rope,
        window: layer.window,
    };
    backend.settle(step, &settling, [&mut low, &mut rows], &feeds);

    let (queries, selection) = match chooser {
        None => (backend.multiply(&layer.query_b, &low), backend.select_all(step)),
        Some(indexer) => {
            let mut both = backend.multiply_all(&[&layer.query_b, &indexer.queries], &low).into_iter();
            let mut product = || both.next().expect("a result for every matrix");
            let (queries, mut index_queries) = (product(), product());
            backend.rotate(&mut index_queries, INDEX_WIDTH, &layer.rope, step);
            let place = indexer.keys.compressor.rows;
            (queries, backend.select(step, place, shape.index_top, &index_queries, &next()))
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
    backend.attend_heads(step, layer.window, compressed, queries, &rows, &path)
}

fn experts<B: Backend>(layer: &FeedForward<B>) -> Experts<'_, B> {
    let FeedForward { router, routing, routed, shared, constants } = layer;
    Experts { router, routing, routed, shared, constants }
}
