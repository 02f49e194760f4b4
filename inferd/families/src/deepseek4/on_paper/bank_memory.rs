//! What conversations take of a GPU's memory when there is not enough of it.

use super::{CONTEXT, OnPaper, flash, model, paper, step};
use ds4_gpu::cuda::{Gpu, PhysAlloc};
use ds4_model::{Model, StepError, StepSize};
use ds4_units::{BankId, Bytes, Tokens};

const HERE: &str = "deepseek4::on_paper::bank_memory";
const PAGE: u64 = 2 << 20;
const PROMPT: usize = 4096;

/// Takes all of a device's memory but `left`, until it is dropped.
fn leave(gpu: &Gpu, left: Bytes) -> Option<PhysAlloc> {
    let taken = free(gpu).0 - left.0;
    (taken > 0).then(|| PhysAlloc::create(gpu, Bytes(taken)).expect("it is free"))
}

fn free(gpu: &Gpu) -> Bytes {
    gpu.memory().expect("a device on paper says it").free
}

/// What a conversation is: its tokens and its memory.
fn state(model: &OnPaper, bank: BankId) -> (Option<Tokens>, Bytes) {
    (model.frontier(bank), model.resident_bytes(bank).expect("it is open"))
}

/// Computes a prompt's tokens with memory for ever more of what that takes, until it is enough, and says how often it was
/// not. Each time the conversation must be as it was, and all memory must be there again.
fn refusals_until_enough(model: &mut OnPaper, gpu: &Gpu, bank: BankId) -> usize {
    for pages in 0.. {
        let before = state(model, bank);
        let left = Bytes(pages * PAGE);
        let others = leave(gpu, left);
        match step(model, &[(bank, PROMPT)]) {
            Ok(()) => return pages as usize,
            Err(StepError::OutOfMemory { missing, .. }) => assert!(missing > Bytes::ZERO, "with {left} left"),
            Err(error) => panic!("with {left} left: {error}"),
        }
        assert_eq!((state(model, bank), free(gpu)), (before, left), "with {left} left");
        drop(others);
    }
    unreachable!("a conversation takes less than the device has")
}

#[test]
fn a_conversation_that_memory_runs_out_for_is_as_it_was_and_goes_on_when_there_is_more() {
    let name = "a_conversation_that_memory_runs_out_for_is_as_it_was_and_goes_on_when_there_is_more";
    paper::on_paper(&format!("{HERE}::{name}"), || {
        let gpu = Gpu::open(paper::HOPPER).expect("a device on paper");
        let mut model = model(paper::HOPPER, &flash(), false, CONTEXT);
        model.take_activations(StepSize { rows: PROMPT, conversations: 1 }).expect("the device on paper has it");
        let bank = model.open_bank();
        let refusals = [(); 3].map(|()| refusals_until_enough(&mut model, &gpu, bank));
        println!("{PROMPT} tokens more did not fit with up to {refusals:?} pages less one");
        assert!(refusals.iter().all(|&pages| pages > 1), "{refusals:?}");
        // A copy of it needs as much again, and is whole or not there.
        let end = Tokens(3 * PROMPT as u32);
        let copy = model.fork(bank, end).expect("the device on paper has it").0;
        let needed = state(&model, copy).1;
        model.close_bank(copy);
        for left in (0..needed.0).step_by(PAGE as usize) {
            let others = leave(&gpu, Bytes(left));
            // The last that it takes is a checkpoint, which it can do without.
            if let Ok((copy, _)) = model.fork(bank, end) {
                assert!(state(&model, copy).1 < needed, "with {left} of {needed} bytes left");
                model.close_bank(copy);
            }
            assert_eq!(free(&gpu), Bytes(left));
            drop(others);
        }
    });
}

/// The sum of what conversations say that they take is what promises to others are made by.
#[test]
fn what_conversations_take_is_what_is_missing_on_the_device() {
    let name = "what_conversations_take_is_what_is_missing_on_the_device";
    paper::on_paper(&format!("{HERE}::{name}"), || {
        let gpu = Gpu::open(paper::HOPPER).expect("a device on paper");
        let mut model = model(paper::HOPPER, &flash(), false, CONTEXT);
        model.take_activations(StepSize { rows: PROMPT, conversations: 8 }).expect("the device on paper has it");
        let without = free(&gpu);
        let mut banks = vec![model.open_bank()];
        let all_of = |model: &OnPaper, banks: &[BankId]| banks.iter().map(|&bank| state(model, bank).1.0).sum::<u64>();
        for _ in 0..5 {
            step(&mut model, &[(banks[0], PROMPT)]).expect("there is memory");
        }
        let whole = state(&model, banks[0]).1;
        for to in [5 * PROMPT, 5 * PROMPT - 1, 2 * PROMPT, 1000, 0].map(|to| Tokens(to as u32)) {
            let before = free(&gpu);
            let (copy, reached) = model.fork(banks[0], to).expect("there is memory");
            let taken = state(&model, copy).1;
            assert_eq!(before.0 - free(&gpu).0, taken.0, "a copy of {} tokens takes what it says", reached.0);
            assert!(reached <= to && taken <= model.price(reached) && taken <= whole, "{taken} for {}", reached.0);
            banks.push(copy);
        }
        assert_eq!(without.0 - free(&gpu).0, all_of(&model, &banks), "{} conversations", banks.len());
        for bank in banks {
            model.close_bank(bank);
        }
        assert_eq!(free(&gpu), without);
    });
}
