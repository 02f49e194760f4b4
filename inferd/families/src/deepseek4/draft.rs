//! The draft block: one layer that was trained beside the model to guess the token after the next one.
//!
//! Its row at a position is of the token there and the model's streams of the token before. So its window can follow the
//! model: every step stores the rows of its tokens, and the streams of its last token wait in the bank for the token that
//! comes next. A guess runs that one row through the layer, and the next guess its own streams and the guessed token;
//! what that writes is never committed. Positions are one higher than in the published formula, which has no effect:
//! rotations only tell how far apart two rows are.

use super::bind::{DraftWeights, ModelWeights};
use super::graph::{hyper_constants, layer, logits};
use super::shape::Shape;
use super::{ARCHITECTURE, tensors};
use ds4_kernels::backend::{Backend, Produced};
use ds4_kernels::hyper_connection::STREAMS;
use ds4_kernels::step::Step;
use ds4_model::FamilyError;

/// Checks that a file has a draft block of a model of this shape and these tokens.
pub(super) fn check(shape: &Shape, file: &ds4_gguf::Model, draft: &ds4_gguf::Model) -> Result<(), FamilyError> {
    let other =
        |what: &str, found: String, wanted: String| FamilyError::OtherDraft { what: what.to_owned(), found, wanted };
    if draft.architecture() != ARCHITECTURE {
        return Err(other("architecture", draft.architecture().to_owned(), ARCHITECTURE.to_owned()));
    }
    // A draft block's file may say less about the model than the model's own; what it says must agree.
    for key in KEYS {
        let key = format!("{ARCHITECTURE}.{key}");
        let number = |file: &ds4_gguf::Model| {
            let wrong =
                |error: ds4_gguf::ValueError| FamilyError::Metadata { key: key.clone(), problem: error.to_string() };
            file.metadata().u64(&key).map_err(wrong)
        };
        if let (Some(found), Some(wanted)) = (number(draft)?, number(file)?)
            && found != wanted
        {
            return Err(other(&key, found.to_string(), wanted.to_string()));
        }
    }
    check_vocabulary(file, draft, other)?;
    let find = |name: &str| draft.tensor(name).map(|tensor| (tensor.kind, tensor.dims.as_slice()));
    tensors::check(tensors::expected_of_draft(shape), find)
}

/// What both files may say, and must say alike.
const KEYS: [&str; 11] = [
    "embedding_length",
    "vocab_size",
    "block_count",
    "attention.head_count",
    "attention.key_length",
    "attention.q_lora_rank",
    "attention.output_lora_rank",
    "attention.output_group_count",
    "expert_count",
    "expert_feed_forward_length",
    "expert_used_count",
];

fn check_vocabulary(
    file: &ds4_gguf::Model,
    draft: &ds4_gguf::Model,
    other: impl Fn(&str, String, String) -> FamilyError,
) -> Result<(), FamilyError> {
    let tokens =
        |file: &ds4_gguf::Model| file.metadata().strings("tokenizer.ggml.tokens").ok().flatten().map(<[_]>::to_vec);
    let (Some(found), Some(wanted)) = (tokens(draft), tokens(file)) else { return Ok(()) };
    if found.len() != wanted.len() {
        return Err(other("vocabulary", format!("{} tokens", found.len()), format!("{} tokens", wanted.len())));
    }
    match found.iter().zip(&wanted).position(|(found, wanted)| found != wanted) {
        Some(id) => Err(other(&format!("token {id}"), format!("{:?}", found[id]), format!("{:?}", wanted[id]))),
        None => Ok(()),
    }
}

/// Stores the rows of the step's tokens in the draft block's window, and the streams of every segment's last token. Returns
/// the rows.
pub(super) fn follow<B: Backend>(
    backend: &B,
    draft: &DraftWeights<B>,
    embedding: &B::Matrix,
    shape: &Shape,
    step: &mut Step<'_, B::Bank>,
    streams: &B::Rows,
) -> B::Rows {
    let before = backend.take_streams(step, draft.places.streams, Some(streams));
    backend.leave_streams(step, draft.places.streams, streams);
    let entered = enter(backend, draft, embedding, shape, step, before);
    let attention = &draft.layer.attention;
    let mixed = backend.mix(&draft.layer.attention_site, &hyper_constants(shape), &entered);
    let mut rows = backend.multiply(&attention.kv, &mixed.input);
    backend.normalize(&mut rows, &attention.kv_norm, shape.norm_epsilon);
    backend.rotate(&mut rows, shape.head_width, &attention.rope, step);
    backend.store_window(step, attention.window, &mut rows);
    rows
}

/// The logits of the tokens after the step's, which are one for each of its banks.
pub(super) fn guess<B: Backend>(
    backend: &B,
    weights: &ModelWeights<B>,
    draft: &DraftWeights<B>,
    shape: &Shape,
    step: &mut Step<'_, B::Bank>,
) -> Produced<B::Rows> {
    let before = backend.take_streams(step, draft.places.streams, None);
    let mut streams = enter(backend, draft, &weights.embedding, shape, step, before);
    layer(backend, &draft.layer, shape, step, (&mut streams, None), false);
    backend.leave_streams(step, draft.places.streams, &streams);
    let logits = logits(backend, weights, &draft.head, &hyper_constants(shape), &streams, step);
    Produced { logits, kept: Vec::new() }
}

/// What goes into the block: every stream of the token before and the token's embedding, each normalised and multiplied.
fn enter<B: Backend>(
    backend: &B,
    draft: &DraftWeights<B>,
    embedding: &B::Matrix,
    shape: &Shape,
    step: &Step<'_, B::Bank>,
    before: B::Rows,
) -> B::Rows {
    let mut streams = backend.reshaped(before, shape.hidden);
    backend.normalize(&mut streams, &draft.streams_norm, shape.norm_epsilon);
    let mut entered = backend.multiply(&draft.streams, &streams);
    drop(streams);
    let mut tokens = backend.reshaped(backend.embed(embedding, step), shape.hidden);
    backend.normalize(&mut tokens, &draft.token_norm, shape.norm_epsilon);
    backend.add(&mut entered, &backend.multiply(&draft.token, &tokens));
    backend.reshaped(entered, STREAMS * shape.hidden)
}
