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
        let held = state(&model, bank).1;
        for left in (0..held.0).step_by(PAGE as usize) {
            let others = leave(&gpu, Bytes(left));
            assert!(model.fork(bank, Tokens(3 * PROMPT as u32)).is_err(), "with {left} bytes left of {held}");
            assert_eq!(free(&gpu), Bytes(left));
            drop(others);
        }
        assert!(model.fork(bank, Tokens(3 * PROMPT as u32)).is_ok());
    });
}
