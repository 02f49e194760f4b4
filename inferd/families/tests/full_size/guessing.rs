//! What guessing ahead takes: steps with guesses, taking some of them, and the draft block's own passes.

use anyhow::{Context, ensure};
use ds4_model::{DraftWish, LogitsWanted, Model, Segment, StepBatch};
use ds4_units::{BankId, TokenId, TokenPos, Tokens};
use std::time::Instant;

/// Steps that are timed, after some that are not: the first of a shape are not what follows.
const STEPS: usize = 32;
const STEPS_BEFORE: usize = 4;
/// Tokens before them.
const DEPTH: usize = 2048;
/// Guesses in a step.
const AHEAD: [usize; 4] = [0, 1, 2, 3];

/// Prints microseconds of a step with each number of guesses, of taking all or none of them, and of making one.
pub(crate) fn measure(model: &mut dyn Model, tokens: &[u32]) -> anyhow::Result<()> {
    let vocabulary = model.info().vocabulary as u32;
    let tokens = tokens.iter().cycle().take(DEPTH + 1024);
    let tokens: Vec<TokenId> = tokens.map(|token| TokenId(token % vocabulary)).collect();
    let bank = model.open_bank();
    let prompt = Segment { bank, start: TokenPos(0), tokens: &tokens[..DEPTH], logits: LogitsWanted::Last, drafted: 0 };
    model.step(&StepBatch { segments: &[prompt] })?;
    same_answers(model, bank, tokens[DEPTH])?;
    let mut held = DEPTH;
    for ahead in AHEAD {
        for taken in [ahead, 0] {
            let (mut step, mut accept) = (0.0, 0.0);
            for nth in 0..STEPS_BEFORE + STEPS {
                let times = advance(model, bank, &tokens, held, ahead, taken)?;
                held += 1 + taken;
                if nth >= STEPS_BEFORE {
                    step += times[0];
                    accept += times[1];
                }
            }
            let each = |micros: f64| micros / STEPS as f64;
            println!(
                "guessing: 1 token and {ahead} guesses: {:.0} us a step, taking {taken} of them {:.0} us",
                each(step),
                each(accept)
            );
            if ahead == 0 {
                break;
            }
        }
    }
    for count in [1, 2, 3] {
        let mut micros = 0.0;
        for nth in 0..STEPS_BEFORE + STEPS {
            let began = Instant::now();
            let wish = DraftWish { bank, next: tokens[held], count, margin: 0.0 };
            let guesses = model.draft(&[wish])?;
            ensure!(guesses[0].len() == count, "{} of {count} guesses were made", guesses[0].len());
            micros += if nth < STEPS_BEFORE { 0.0 } else { began.elapsed().as_secs_f64() * 1e6 };
        }
        println!("guessing: {count} guesses are made in {:.0} us", micros / STEPS as f64);
    }
    Ok(())
}

/// Computes one token and guesses, and takes some of them. Returns the microseconds of both.
fn advance(
    model: &mut dyn Model,
    bank: BankId,
    tokens: &[TokenId],
    held: usize,
    ahead: usize,
    taken: usize,
) -> anyhow::Result<[f64; 2]> {
    let segment = Segment {
        bank,
        start: TokenPos(held as u32),
        tokens: &tokens[held..held + 1 + ahead],
        logits: LogitsWanted::Greedy,
        drafted: ahead,
    };
    let began = Instant::now();
    let step = model.step(&StepBatch { segments: &[segment] })?;
    let computed = began.elapsed();
    ensure!(step.all_drawn(0).iter().all(Option::is_some), "logits are not finite");
    let began = Instant::now();
    if ahead > 0 {
        model.accept(&[(bank, taken)])?;
    }
    Ok([computed, began.elapsed()].map(|time| time.as_secs_f64() * 1e6))
}

/// Tokens of the answers that are compared.
const ANSWER: usize = 64;

/// What follows must be the same whatever is guessed.
fn same_answers(model: &mut dyn Model, bank: BankId, next: TokenId) -> anyhow::Result<()> {
    let (want, _) = answer(model, bank, next, 0)?;
    for ahead in [1, 3] {
        let (got, [right, all]) = answer(model, bank, next, ahead)?;
        let same = got.iter().zip(&want).take_while(|(got, want)| got == want).count();
        println!("guessing: {same} of {ANSWER} tokens are those without guesses; {right} of {all} guesses right");
        ensure!(same == ANSWER, "with {ahead} guesses a step another answer was written");
    }
    Ok(())
}

/// The likeliest tokens after `next`, in a copy of the bank, with so many guesses a step; and how many were right, of all.
fn answer(
    model: &mut dyn Model,
    bank: BankId,
    next: TokenId,
    ahead: usize,
) -> anyhow::Result<(Vec<TokenId>, [usize; 2])> {
    let (bank, held) = model.fork(bank, Tokens(DEPTH as u32))?;
    let mut held = held.index();
    let (mut answer, mut counts) = (vec![next], [0, 0]);
    while answer.len() <= ANSWER {
        let next = answer[answer.len() - 1];
        let guesses = model.draft(&[DraftWish { bank, next, count: ahead, margin: 0.0 }])?.remove(0);
        let tokens: Vec<TokenId> = std::iter::once(next).chain(guesses.iter().copied()).collect();
        let (start, logits, drafted) = (TokenPos(held as u32), LogitsWanted::Greedy, guesses.len());
        let step = model.step(&StepBatch { segments: &[Segment { bank, start, tokens: &tokens, logits, drafted }] })?;
        let mut right = 0;
        for drawn in step.all_drawn(0) {
            let drawn = drawn.context("logits are not finite")?;
            answer.push(drawn);
            if guesses.get(right) != Some(&drawn) {
                break;
            }
            right += 1;
        }
        if drafted > 0 {
            model.accept(&[(bank, right)])?;
        }
        held += 1 + right;
        counts = [counts[0] + right, counts[1] + drafted];
    }
    model.close_bank(bank);
    answer.truncate(ANSWER + 1);
    Ok((answer.split_off(1), counts))
}
