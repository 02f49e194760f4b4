//! What steps take of the host's memory where the CPU computes: what is planned is what is had.

use super::model::DeepSeek4;
use super::speculate::tests::bound;
use ds4_kernels::backend::Backend;
use ds4_kernels::kv_rows::PlainRows;
use ds4_kernels::reference::Cpu;
use ds4_model::{DraftWish, LogitsWanted, Model, Segment, StepBatch, StepSize};
use ds4_units::{BankId, Bytes, TokenId, TokenPos, Tokens};
use std::path::Path;

const SIZE: StepSize = StepSize { rows: 256, conversations: 4 };
/// So long that the indexer chooses: it may take 512 rows of four tokens each.
const CONTEXT: Tokens = Tokens(9 * 256);

type OnHost = DeepSeek4<Cpu<PlainRows>>;

/// The demo model with its draft block.
fn demo() -> OnHost {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/demo-model");
    let mut model = bound(&folder, "ds4-demo-16m");
    model.info.context = CONTEXT;
    model
}

/// Computes so many tokens of each bank, the last of them guesses.
fn step(model: &mut OnHost, rows: &[(BankId, usize)], drafted: usize) {
    let tokens = [TokenId(7); SIZE.rows];
    let segments: Vec<Segment<'_>> = rows
        .iter()
        .map(|&(bank, count)| {
            let start = TokenPos(model.frontier(bank).expect("it is open").0);
            Segment { bank, start, tokens: &tokens[..count], logits: LogitsWanted::Last, drafted }
        })
        .collect();
    model.step(&StepBatch { segments: &segments }).expect("the step runs");
    if drafted > 0 {
        let accepted: Vec<_> = rows.iter().map(|&(bank, _)| (bank, drafted - 1)).collect();
        model.accept(&accepted).expect("some guesses were right");
    }
}

/// A long conversation up to the end of what its bank may hold, where it is part of a step of the largest size.
fn largest_step(model: &mut OnHost) {
    let banks: Vec<BankId> = (0..SIZE.conversations).map(|_| model.open_bank()).collect();
    let last = SIZE.rows - (banks.len() - 1);
    let mut left = CONTEXT.index() - last;
    while left > 0 {
        let rows = left.min(SIZE.rows);
        step(model, &[(banks[0], rows)], 0);
        left -= rows;
    }
    let together = std::iter::once((banks[0], last)).chain(banks[1..].iter().map(|&bank| (bank, 1)));
    step(model, &together.collect::<Vec<_>>(), 0);
    assert_eq!(model.frontier(banks[0]), Some(CONTEXT));
    banks.into_iter().for_each(|bank| model.close_bank(bank));
}

/// Prompts, answers and guesses of all sizes, alone and together.
fn other_steps(model: &mut OnHost) {
    let banks: Vec<BankId> = (0..SIZE.conversations).map(|_| model.open_bank()).collect();
    for count in [1, 2, 3, 5, 8, 17, 63, 64, 65, 129] {
        step(model, &[(banks[0], count)], 0);
    }
    for count in 1..=banks.len() {
        let one_each: Vec<_> = banks[..count].iter().map(|&bank| (bank, 1)).collect();
        step(model, &one_each, 0);
        let guessed: Vec<_> = banks[..count].iter().map(|&bank| (bank, 4)).collect();
        step(model, &guessed, 3);
        let wishes = banks[..count].iter().map(|&bank| DraftWish { bank, next: TokenId(9), count: 3, margin: 0.0 });
        model.draft(&wishes.collect::<Vec<_>>()).expect("it guesses");
    }
    let prompts: Vec<_> = banks.iter().map(|&bank| (bank, SIZE.rows / banks.len())).collect();
    step(model, &prompts, 0);
}

#[test]
fn steps_of_every_kind_have_what_was_planned_for_them_and_the_largest_needs_it() {
    let mut model = demo();
    let planned = model.activations(SIZE).expect("it can be tried out");
    assert_eq!(model.backend.memory()[0].1, Bytes::ZERO, "trying out takes nothing");
    model.take_activations(SIZE).expect("there is memory");
    // It is counted from then on, and there when it is reached.
    let counted = |model: &OnHost| (model.device_memory()[0].1, model.device_memory_to_come());
    assert_eq!((counted(&model), model.activations(SIZE)), ((Bytes::ZERO, planned), Ok(Bytes::ZERO)));
    let bank = model.open_bank();
    step(&mut model, &[(bank, 9)], 0);
    let (there, to_come) = counted(&model);
    assert_eq!(there.0 + to_come.0, planned.0);
    assert!(there > Bytes::ZERO && there.0 < planned.0 / 4, "{there} of {planned} for nine tokens");
    largest_step(&mut model);
    other_steps(&mut model);
    assert_eq!((counted(&model), model.backend.beyond_memory()), ((planned, Bytes::ZERO), 0));

    let mut tight = demo();
    tight.take_activations(StepSize { rows: SIZE.rows - SIZE.rows / 16, ..SIZE }).expect("there is memory");
    let held = tight.device_memory_to_come();
    assert!(held < planned && held.0 > planned.0 * 8 / 10, "{held} of {planned}");
    largest_step(&mut tight);
    assert!(
        tight.backend.beyond_memory() > 0,
        "fifteen sixteenths of the rows take as much: more is planned than used"
    );
}

#[test]
fn memory_that_is_taken_changes_no_bit() {
    let logits = |takes: bool| {
        let mut model = demo();
        if takes {
            model.take_activations(SIZE).expect("there is memory");
        }
        let bank = model.open_bank();
        let tokens: Vec<TokenId> = (0..300).map(|id| TokenId(id * 7 % 3000)).collect();
        let all = |start: usize, tokens| {
            [Segment { bank, start: TokenPos(start as u32), tokens, logits: LogitsWanted::All, drafted: 0 }]
        };
        let mut logits = Vec::new();
        for (start, tokens) in [(0, &tokens[..200]), (200, &tokens[200..299]), (299, &tokens[299..])] {
            let step = model.step(&StepBatch { segments: &all(start, tokens) }).expect("the step runs");
            logits.extend(step.of_segment(0).flatten().map(|logit| logit.to_bits()));
        }
        logits
    };
    assert!(logits(true) == logits(false));
}
