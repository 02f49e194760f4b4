//! However tokens are cut into steps and whoever shares them, a conversation goes the same way.

use crate::{best, kit, load, off, top};
use ds4_model::{KvRounding, LogitsWanted, Segment, StepBatch};
use ds4_units::{BankId, TokenId, TokenPos, Tokens};

/// How far logits may be apart, in units of the largest: products of few rows and of many add in other orders.
const MOST: f32 = 1e-3;

fn long_prompt() -> (std::path::PathBuf, Vec<TokenId>) {
    let path = kit::oracle("flash-micro").expect("a tracked fixture");
    let prompts = kit::oracle_prompts(&path);
    let longest = prompts.into_iter().max_by_key(|prompt| prompt.tokens.len()).expect("prompts");
    (path.with_extension("gguf"), longest.tokens)
}

#[test]
fn a_prompt_in_pieces_beside_others_gives_the_logits_it_gives_at_once() {
    let (path, tokens) = long_prompt();
    let mut model = load(&path, KvRounding::Off);
    let whole = kit::all_logits(model.as_mut(), &tokens);
    let top = top(&whole);
    for cuts in [&[1, 1, 2, 130, 7][..], &[64], &[300, 1, 1, 1, 1], &[128, 3, 129]] {
        let (bank, company) = (model.open_bank(), model.open_bank());
        let (mut done, mut pieces) = (0, cuts.iter().copied().cycle());
        let (mut worst, mut other_choice) = (0.0f32, 0);
        while done < tokens.len() {
            let count = pieces.next().expect("it cycles").min(tokens.len() - done);
            let piece = |bank: BankId, tokens| Segment {
                bank,
                start: TokenPos(done as u32),
                tokens,
                logits: LogitsWanted::All,
                drafted: 0,
            };
            let (own, others) = (piece(bank, &tokens[done..done + count]), piece(company, &tokens[done..done + count]));
            let step = model.step(&StepBatch { segments: &[others, own] }).expect("the step runs");
            for (got, want) in step.of_segment(1).zip(&whole[done..]) {
                worst = worst.max(off(got, want) / top);
                let (choice, margin) = best(want);
                other_choice += usize::from(best(got).0 != choice && margin > 2.0 * off(got, want));
            }
            done += count;
        }
        println!("pieces of {cuts:?}: off by {worst:.1e}");
        assert!(worst <= MOST && other_choice == 0, "{cuts:?}: off by {worst:.1e}");
        model.close_bank(bank);
        model.close_bank(company);
    }
}

#[test]
fn a_cut_back_bank_and_a_fork_go_on_as_if_nothing_had_been() {
    let (path, tokens) = long_prompt();
    let mut model = load(&path, KvRounding::Exact);
    let (half, rest) = tokens.split_at(tokens.len() / 2);
    let bank = model.open_bank();
    kit::feed(model.as_mut(), bank, 0, half, LogitsWanted::None);
    model.checkpoint(bank).expect("memory for a checkpoint");
    let first = kit::feed(model.as_mut(), bank, half.len(), rest, LogitsWanted::Last);
    let want = first.last_of_segment(0).expect("logits").to_vec();
    let at = Tokens(half.len() as u32);
    let (fork, reached) = model.fork(bank, at).expect("memory for a fork");
    assert_eq!((reached, model.truncate(bank, at).expect("a checkpoint")), (at, at));
    for bank in [bank, fork] {
        let again = kit::feed(model.as_mut(), bank, half.len(), rest, LogitsWanted::Last);
        assert_eq!(again.last_of_segment(0).expect("logits"), want, "the same kernels on the same bytes");
    }
    assert!(model.resident_bytes(fork).expect("open").0 > 0);
}
