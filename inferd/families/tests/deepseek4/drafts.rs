//! Guesses of the demo model's draft block: right as often as they were trained to be, and never of any effect on what the
//! model says.

use crate::kit;
use crate::transcripts::{Transcript, generate_guessing, transcripts};
use ds4_import::ComputeDevice;
use ds4_model::{DraftWish, KvRounding, LogitsWanted, Model, Segment, StepBatch, StepError};
use ds4_units::{BankId, TokenId, TokenPos, Tokens};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

const CHUNK: usize = 512;

fn guesses(model: &mut dyn Model, bank: BankId, next: TokenId, count: usize, margin: f32) -> Vec<TokenId> {
    let wish = DraftWish { bank, next, count, margin };
    model.draft(&[wish]).expect("the block runs").remove(0)
}

fn filled(model: &mut dyn Model, tokens: &[TokenId]) -> BankId {
    let bank = model.open_bank();
    for (index, chunk) in tokens.chunks(CHUNK).enumerate() {
        kit::feed(model, bank, index * CHUNK, chunk, LogitsWanted::None);
    }
    bank
}

#[test]
fn guesses_in_reference_conversations_are_those_of_the_reference() {
    let mut plain = kit::load_demo_with_draft(ComputeDevice::Cpu, KvRounding::Off);
    let mut rounded = kit::load_demo_with_draft(ComputeDevice::Cpu, KvRounding::Exact);
    let (mut same, mut right, mut all) = (0, 0, 0);
    for transcript in transcripts().iter().filter(|transcript| transcript.prompt.len() < 300) {
        let model = match transcript.kv_rounding {
            KvRounding::Off => plain.as_mut(),
            KvRounding::Exact => rounded.as_mut(),
        };
        let bank = filled(model, &transcript.prompt);
        let Transcript { answer, drafts, .. } = transcript;
        for (index, &token) in answer.iter().enumerate() {
            let guess = guesses(model, bank, token, 1, 0.0);
            same += usize::from(guess.first() == drafts.get(index));
            if let Some(next) = answer.get(index + 1) {
                right += usize::from(guess.first() == Some(next));
                all += 1;
            }
            kit::feed(model, bank, transcript.prompt.len() + index, &[token], LogitsWanted::None);
        }
        model.close_bank(bank);
    }
    println!("{same} guesses as in the reference, {right} of {all} right");
    assert!(all > 300, "{all} guesses say little");
    assert!(right * 100 >= all * 95, "{right} of {all} are right");
    // Where its two best are all but equal, the reference's arithmetic may choose the other.
    assert!(same * 200 >= all * 199, "{same} of {all} are the reference's");
}

#[test]
fn guesses_further_ahead_are_right_as_well_and_leave_the_bank_alone() {
    let mut model = kit::load_demo_with_draft(ComputeDevice::Cpu, KvRounding::Exact);
    let model = model.as_mut();
    let (mut right, mut all) = ([0; 3], 0);
    for transcript in transcripts().iter().filter(|transcript| transcript.prompt.len() < 120) {
        let bank = filled(model, &transcript.prompt);
        let before = model.export(bank, 0).expect("it exports").recurrent;
        for (index, _) in transcript.answer.windows(4).enumerate() {
            let ahead = &transcript.answer[index..index + 4];
            let guess = guesses(model, bank, ahead[0], 3, 0.0);
            assert_eq!(guess.len(), 3);
            if index == 0 {
                assert!(model.export(bank, 0).expect("it exports").recurrent == before);
            }
            all += 1;
            for (depth, count) in right.iter_mut().enumerate() {
                *count += usize::from(guess[..=depth] == ahead[1..=depth + 1]);
            }
            kit::feed(model, bank, transcript.prompt.len() + index, &ahead[..1], LogitsWanted::None);
        }
        model.close_bank(bank);
    }
    println!("of {all}: {right:?} right to the first, second, third guess");
    // It was trained for the first one only: the others start from streams that it never saw.
    assert!(right[0] * 100 >= all * 95 && right[1] * 100 >= all * 40, "{right:?} of {all}");
}

#[test]
fn answers_with_guesses_are_the_reference_s() {
    let mut plain = kit::load_demo_with_draft(ComputeDevice::Cpu, KvRounding::Off);
    let mut rounded = kit::load_demo_with_draft(ComputeDevice::Cpu, KvRounding::Exact);
    let (mut right, mut all) = (0, 0);
    for (index, transcript) in transcripts().iter().enumerate().filter(|(_, one)| one.prompt.len() < 150) {
        let model = match transcript.kv_rounding {
            KvRounding::Off => plain.as_mut(),
            KvRounding::Exact => rounded.as_mut(),
        };
        let ahead = 1 + index % 3;
        let (answer, counts) = generate_guessing(model, &transcript.prompt, transcript.answer.len(), ahead);
        assert_eq!(answer, transcript.answer, "{} with {ahead} guesses", transcript.name);
        (right, all) = (right + counts[0], all + counts[1]);
    }
    println!("{right} of {all} guesses right");
}

#[test]
fn a_margin_keeps_doubtful_guesses_back() {
    let mut model = kit::load_demo_with_draft(ComputeDevice::Cpu, KvRounding::Exact);
    let model = model.as_mut();
    let transcript = &transcripts()[0];
    let bank = filled(model, &transcript.prompt);
    let sure = guesses(model, bank, transcript.answer[0], 2, 0.5);
    assert_eq!(sure.first(), transcript.answer.get(1));
    assert_eq!(guesses(model, bank, transcript.answer[0], 2, 1e6), []);
    // Neither is a bank without a token before, an unknown one or a token outside the vocabulary an error.
    let empty = model.open_bank();
    assert_eq!(guesses(model, empty, transcript.answer[0], 2, 0.0), []);
    assert_eq!(guesses(model, BankId(99), transcript.answer[0], 2, 0.0), []);
    assert_eq!(guesses(model, bank, TokenId(u32::MAX), 2, 0.0), []);
}

/// Feeds `tokens` in steps of one certain token or more and some guesses, of which the first few are right, beside a bank
/// of one row a step; every row's logits and those of the rest afterwards must be the bits that the whole gives at once.
#[test]
fn a_bank_that_took_some_guesses_and_forgot_others_gives_the_bits_of_one_that_had_none() {
    for kv_rounding in [KvRounding::Exact, KvRounding::Off] {
        let mut model = kit::load_demo_with_draft(ComputeDevice::Cpu, kv_rounding);
        let model = model.as_mut();
        let longest = transcripts().into_iter().map(|transcript| transcript.prompt);
        let tokens: Vec<TokenId> = longest.flatten().take(400).collect();
        let whole = kit::all_logits(model, &tokens);
        let piece = (1usize..4, 0usize..4, 0usize..5);
        let pieces = prop::collection::vec(piece, 1..20);
        let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(12) });
        let model = std::cell::RefCell::new(model);
        runner
            .run(&pieces, |pieces| {
                let model = &mut **model.borrow_mut();
                let (bank, company) = (model.open_bank(), model.open_bank());
                // Some conversations are longer than the window.
                let prefix = 110 + pieces.len() * 4;
                kit::feed(model, bank, 0, &tokens[..prefix], LogitsWanted::None);
                let mut fed = prefix;
                for (index, &(certain, right, wrong)) in pieces.iter().enumerate() {
                    let end = fed + certain + right;
                    let mut row = tokens[fed..end].to_vec();
                    row.extend((0..wrong).map(|nth| TokenId(tokens[end + nth].0 ^ 1)));
                    let drafted = right + wrong;
                    let segments = [
                        Segment {
                            bank: company,
                            start: TokenPos(index as u32),
                            tokens: &tokens[index..=index],
                            logits: LogitsWanted::Last,
                            drafted: 0,
                        },
                        Segment {
                            bank,
                            start: TokenPos(fed as u32),
                            tokens: &row,
                            logits: LogitsWanted::Last,
                            drafted,
                        },
                    ];
                    let step = model.step(&StepBatch { segments: &segments }).expect("the step runs");
                    prop_assert!(step.last_of_segment(0) == Some(whole[index].as_slice()), "company at {index}");
                    let rows: Vec<&[f32]> = step.of_segment(1).collect();
                    prop_assert_eq!(rows.len(), drafted + 1);
                    for (nth, row) in rows.iter().take(right + 1).enumerate() {
                        prop_assert!(*row == whole[fed + certain - 1 + nth].as_slice(), "row {nth} at {fed}");
                    }
                    if drafted > 0 {
                        prop_assert_eq!(model.frontier(bank), Some(Tokens(fed as u32)));
                        model.accept(&[(bank, right)]).expect("they are taken");
                    }
                    fed = end;
                    prop_assert_eq!(model.frontier(bank), Some(Tokens(fed as u32)));
                }
                let rest = kit::feed(model, bank, fed, &tokens[fed..], LogitsWanted::All);
                for (row, want) in rest.of_segment(0).zip(&whole[fed..]) {
                    prop_assert!(row == want.as_slice(), "after {fed}");
                }
                model.close_bank(bank);
                model.close_bank(company);
                Ok(())
            })
            .unwrap_or_else(|error| panic!("{kv_rounding:?}: {error}"));
    }
}

#[test]
fn guesses_that_nobody_took_are_forgotten_and_wrong_numbers_refused() {
    let mut model = kit::load_demo_with_draft(ComputeDevice::Cpu, KvRounding::Exact);
    let model = model.as_mut();
    let tokens = &transcripts()[0].prompt;
    let whole = kit::all_logits(model, tokens);
    let bank = filled(model, &tokens[..5]);
    let start = TokenPos(5);
    let good = Segment { bank, start, tokens: &tokens[5..8], logits: LogitsWanted::Greedy, drafted: 2 };
    let only = Segment { drafted: 3, ..good };
    let refused = model.step(&StepBatch { segments: &[only] }).unwrap_err();
    assert_eq!(refused, StepError::OnlyGuesses { bank, tokens: 3, drafted: 3 });
    let most = model.draft_rows();
    let long: Vec<TokenId> = tokens.iter().copied().cycle().take(most + 1).collect();
    let refused = model.step(&StepBatch { segments: &[Segment { tokens: &long, ..good }] }).unwrap_err();
    assert_eq!(refused, StepError::TooManyGuesses { rows: most + 1, most });

    let step = model.step(&StepBatch { segments: &[good] }).expect("the step runs");
    let drawn: Vec<_> = step.all_drawn(0).to_vec();
    let want: Vec<_> = whole[5..8].iter().map(|row| Some(kit::argmax(row))).collect();
    assert_eq!(drawn, want);
    assert_eq!(model.accept(&[(bank, 3)]), Err(StepError::NotGuessed { bank, count: 3, drafted: 2 }));
    // Refusing is an answer: nothing can be taken any more.
    assert_eq!(model.accept(&[(bank, 1)]), Err(StepError::NotGuessed { bank, count: 1, drafted: 0 }));
    assert_eq!(model.frontier(bank), Some(Tokens(5)));

    model.step(&StepBatch { segments: &[good] }).expect("the step runs");
    let other = model.open_bank();
    kit::feed(model, other, 0, &tokens[..3], LogitsWanted::None);
    assert_eq!(model.accept(&[(bank, 2)]), Err(StepError::NotGuessed { bank, count: 2, drafted: 0 }));
    let rest = kit::feed(model, bank, 5, &tokens[5..], LogitsWanted::Last);
    assert!(rest.last_of_segment(0) == whole.last().map(Vec::as_slice));
}

#[test]
fn copies_cuts_and_stored_banks_keep_what_guesses_are_made_from() {
    let mut model = kit::load_demo_with_draft(ComputeDevice::Cpu, KvRounding::Exact);
    let model = model.as_mut();
    let all = transcripts();
    let transcript = all.iter().find(|transcript| transcript.prompt.len() > 200).expect("a long one");
    let (prompt, next) = (&transcript.prompt, transcript.answer[0]);
    let bank = filled(model, prompt);
    let want = guesses(model, bank, next, 3, 0.0);
    model.checkpoint(bank).expect("a checkpoint");
    let (fork, _) = model.fork(bank, Tokens(prompt.len() as u32)).expect("a copy");
    assert_eq!(guesses(model, fork, next, 3, 0.0), want);
    let image = model.export(bank, 0).expect("it exports");
    let restored = model.import(prompt, &image).expect("it imports");
    assert_eq!(guesses(model, restored, next, 3, 0.0), want);
    kit::feed(model, fork, prompt.len(), &transcript.answer[..3], LogitsWanted::None);
    model.truncate(fork, Tokens(prompt.len() as u32)).expect("it is cut");
    assert_eq!(guesses(model, fork, next, 3, 0.0), want);
}
