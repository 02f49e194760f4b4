//! How fast the demo model reads and writes on the CPU: `cargo bench -p ds4-families`.
//!
//! `scripts/bench/cpu-ratio` compares two commits by this file, so it asks the older one for nothing but what every
//! test of this crate uses.

#[allow(dead_code)]
#[path = "../tests/deepseek4/kit.rs"]
mod kit;

use criterion::{Criterion, SamplingMode, Throughput};
use ds4_model::{KvRounding, LogitsWanted, Model, StepSize};
use ds4_units::{BankId, TokenId, Tokens};
use std::time::{Duration, Instant};

/// Tokens of a prompt, and rows of its steps.
const PROMPT: usize = 1024;
const ROWS: usize = 512;
/// Tokens of an answer.
const ANSWER: usize = 32;

fn demo(criterion: &mut Criterion) {
    let path = kit::root().join("scripts/demo-model/ds4-demo-16m.gguf");
    let mut model = kit::load(&path, KvRounding::Exact);
    let model = &mut *model;
    // As a worker does before it answers anybody.
    model.take_activations(StepSize { rows: ROWS, conversations: 1 }).expect("there is memory");
    let vocabulary = model.info().vocabulary as u64;
    // Any tokens do: what a step costs hardly depends on them.
    let token = |index: u64| TokenId((index.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99) >> 33) as u32);
    let tokens: Vec<TokenId> = (0..PROMPT as u64).map(|index| TokenId(token(index).0 % vocabulary as u32)).collect();

    let mut group = criterion.benchmark_group("demo");
    group.sampling_mode(SamplingMode::Flat).sample_size(10);
    group.throughput(Throughput::Elements(PROMPT as u64));
    group.bench_function("prompt", |bench| {
        bench.iter(|| {
            let bank = read(model, &tokens);
            model.close_bank(bank);
        });
    });
    let prompt = read(model, &tokens);
    group.throughput(Throughput::Elements(ANSWER as u64));
    group.bench_function("answer", |bench| {
        bench.iter_custom(|repeats| (0..repeats).map(|_| write(model, prompt, &tokens)).sum());
    });
    group.finish();
}

/// A bank that holds the prompt.
fn read(model: &mut dyn Model, tokens: &[TokenId]) -> BankId {
    let bank = model.open_bank();
    for (index, chunk) in tokens.chunks(ROWS).enumerate() {
        kit::feed(model, bank, index * ROWS, chunk, LogitsWanted::Last);
    }
    bank
}

/// How long an answer takes that goes on from a prompt.
fn write(model: &mut dyn Model, prompt: BankId, tokens: &[TokenId]) -> Duration {
    let (bank, _) = model.fork(prompt, Tokens(PROMPT as u32)).expect("a copy");
    let began = Instant::now();
    for place in 0..ANSWER {
        kit::feed(model, bank, PROMPT + place, &tokens[place..][..1], LogitsWanted::Last);
    }
    let took = began.elapsed();
    model.close_bank(bank);
    took
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    demo(&mut criterion);
    criterion.final_summary();
}
