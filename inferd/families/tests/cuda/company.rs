//! Who shares a step changes no text. By how much logits differ bit by bit is a matter of how many rows the step has.

use crate::transcripts::{Transcript, generate, transcripts};
use crate::{best, kit, load, off};
use ds4_model::{KvRounding, LogitsWanted, Model, Segment, StepBatch};
use ds4_units::{BankId, TokenId, TokenPos, Tokens};

const MODEL: &str = "scripts/demo-model/ds4-demo-16m.gguf";

/// Conversations that run together.
const CONVERSATIONS: usize = 8;
/// Steps between one that joins and the next.
const APART: usize = 3;

/// How far logits of one row may be apart among any number of others, in units of the largest.
const MOST: f32 = 1e-2;

/// A conversation under way.
struct Row<'a> {
    bank: BankId,
    transcript: &'a Transcript,
    /// The prompt, then the answer; all but the last few are in the bank.
    tokens: Vec<TokenId>,
    computed: usize,
}

impl Row<'_> {
    fn answer(&self) -> &[TokenId] {
        &self.tokens[self.transcript.prompt.len()..]
    }

    fn is_over(&self) -> bool {
        self.answer().len() == self.transcript.answer.len()
    }
}

/// Answers of conversations of which one more joins every few steps, and which share all steps from then on.
fn together(model: &mut dyn Model, transcripts: &[&Transcript]) -> Vec<Vec<TokenId>> {
    let mut rows: Vec<Row<'_>> = Vec::new();
    let mut step = 0;
    while rows.len() < transcripts.len() || rows.iter().any(|row| !row.is_over()) {
        if step % APART == 0 && rows.len() < transcripts.len() {
            let transcript = transcripts[rows.len()];
            let tokens = transcript.prompt.clone();
            rows.push(Row { bank: model.open_bank(), transcript, tokens, computed: 0 });
        }
        step += 1;
        let mut running: Vec<&mut Row<'_>> = rows.iter_mut().filter(|row| !row.is_over()).collect();
        let segments = running.iter().map(|row| Segment {
            bank: row.bank,
            start: TokenPos(row.computed as u32),
            tokens: &row.tokens[row.computed..],
            logits: LogitsWanted::Last,
            drafted: 0,
        });
        let segments: Vec<Segment<'_>> = segments.collect();
        if segments.is_empty() {
            continue;
        }
        let logits = model.step(&StepBatch { segments: &segments }).expect("the step runs");
        for (index, row) in running.iter_mut().enumerate() {
            row.computed = row.tokens.len();
            row.tokens.push(kit::argmax(logits.last_of_segment(index).expect("logits")));
        }
    }
    rows.iter().for_each(|row| model.close_bank(row.bank));
    rows.iter().map(|row| row.answer().to_vec()).collect()
}

#[test]
fn eight_conversations_of_the_demo_model_get_the_same_text_together_as_alone() {
    let path = kit::root().join(MODEL);
    for rounding in [KvRounding::Exact, KvRounding::Off] {
        let mut model = load(&path, rounding);
        let all = transcripts();
        let all: Vec<&Transcript> = all.iter().filter(|transcript| transcript.kv_rounding == rounding).collect();
        for eight in all.chunks(CONVERSATIONS).filter(|eight| eight.len() == CONVERSATIONS) {
            let alone =
                |transcript: &&Transcript| generate(model.as_mut(), &transcript.prompt, transcript.answer.len()).1;
            let alone: Vec<Vec<TokenId>> = eight.iter().map(alone).collect();
            let shared = together(model.as_mut(), eight);
            let tokens: usize = alone.iter().map(Vec::len).sum();
            println!("{rounding:?}: {tokens} tokens of {CONVERSATIONS} conversations");
            assert_eq!(shared, alone);
        }
    }
}

/// The next row of one conversation, in steps of one to many rows that all compute the same.
#[test]
fn a_rows_logits_differ_by_the_number_of_rows_beside_it_and_by_little() {
    let path = kit::root().join(MODEL);
    // With rounded rows one code on the other side of a tie would say more than all products.
    let mut model = load(&path, KvRounding::Off);
    let transcripts = transcripts();
    let prompt = &transcripts.iter().find(|transcript| transcript.prompt.len() > 200).expect("a long one").prompt;
    let (last, before) = prompt.split_last().expect("tokens");
    let bank = model.open_bank();
    kit::feed(model.as_mut(), bank, 0, before, LogitsWanted::None);
    model.checkpoint(bank).expect("memory for a checkpoint");
    let mut alone: Option<Vec<f32>> = None;
    let mut classes: Vec<(Vec<f32>, Vec<usize>)> = Vec::new();
    for rows in [1, 2, 3, 4, 5, 8, 9, 12, 16, 17, 24, 32, 33, 48, 64, 65, 96, 128] {
        let at = Tokens(before.len() as u32);
        let copies: Vec<BankId> = (0..rows).map(|_| model.fork(bank, at).expect("memory for a copy").0).collect();
        let tokens = [*last];
        let segment = |&bank: &BankId| Segment {
            bank,
            start: TokenPos(at.0),
            tokens: &tokens,
            logits: LogitsWanted::Last,
            drafted: 0,
        };
        let segments: Vec<Segment<'_>> = copies.iter().map(segment).collect();
        let logits = model.step(&StepBatch { segments: &segments }).expect("the step runs");
        for row in 0..rows {
            let got = logits.last_of_segment(row).expect("logits");
            let alone = alone.get_or_insert_with(|| got.to_vec());
            let (choice, margin) = best(alone);
            let apart = off(got, alone);
            assert!(apart <= MOST * largest(alone), "row {row} of {rows}: {:.1e}", apart / largest(alone));
            assert!(best(got).0 == choice || margin <= 2.0 * apart, "row {row} of {rows} chooses another token");
            match classes.iter_mut().find(|(logits, _)| logits == got) {
                Some((_, same)) if same.contains(&rows) => {}
                Some((_, same)) => same.push(rows),
                None => classes.push((got.to_vec(), vec![rows])),
            }
        }
        copies.into_iter().for_each(|copy| model.close_bank(copy));
    }
    let alone = alone.expect("steps were run");
    for (logits, rows) in &classes {
        let other = logits.iter().zip(&alone).filter(|(value, alone)| value.to_bits() != alone.to_bits()).count();
        let apart = off(logits, &alone) / largest(&alone);
        println!(
            "steps of {rows:?} rows: {other} of {} logits are not those of one row, by {apart:.1e} at most",
            logits.len()
        );
    }
}

fn largest(row: &[f32]) -> f32 {
    row.iter().fold(0.0, |top: f32, value| top.max(value.abs()))
}
