//! Logits against another engine's, and against our own when tokens are cut otherwise.

use crate::conversation::Conversation;
use crate::reference::{Reference, SAMPLE_STRIDE};
use std::process::ExitCode;

/// Rows of a step where a check does not say otherwise.
const ROWS: usize = 2048;

/// The other engine's logits come from half-float products of expanded weights, and random weights amplify rounding: it
/// differs from itself by up to 6 % when steps are cut otherwise. So the angle tells, and who is among the first.
const COSINE_LEAST: f64 = 0.99;
const TOP_LEAST: usize = 9;
/// How far logits of steps cut otherwise may be apart, and where the prompts begin that are cut.
const APART_MOST: f64 = 0.055;
const PROMPTS: [usize; 8] = [0, 300, 700, 1500, 2600, 3900, 4800, 6000];

/// Passes and failures, printed as they come.
#[derive(Default)]
pub(crate) struct Table {
    passed: usize,
    failed: usize,
}

impl Table {
    /// Prints a line and counts it.
    pub(crate) fn line(&mut self, ok: bool, text: &str) {
        println!("{} {text}", if ok { "ok    " } else { "FAILED" });
        *(if ok { &mut self.passed } else { &mut self.failed }) += 1;
    }

    /// Prints the sum.
    pub(crate) fn finish(self) -> ExitCode {
        println!("{} passed, {} failed", self.passed, self.failed);
        if self.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// Every prompt of the reference.
pub(crate) fn against_the_reference(
    conversation: &mut Conversation,
    reference: &Reference,
    table: &mut Table,
) -> anyhow::Result<()> {
    for prompt in &reference.prompts {
        conversation.restart();
        let logits = conversation.feed(&reference.tokens[..prompt.len], ROWS)?;
        let sample: Vec<f32> = logits.iter().copied().step_by(SAMPLE_STRIDE).take(prompt.sample.len()).collect();
        let ours = largest(&logits, 10);
        let among = ours.iter().filter(|id| prompt.top.contains(id)).count();
        let (cosine, rms) = compare(&sample, &prompt.sample);
        let first = if ours[0] == prompt.top[0] { "the same first" } else { "another first" };
        let text = format!(
            "reference, {} tokens: cosine {cosine:.5}, rms {rms:.3}, {among} of our 10 among its 50, {first}",
            prompt.len
        );
        table.line(cosine >= COSINE_LEAST && among >= TOP_LEAST, &text);
    }
    Ok(())
}

/// The same prompts at once, in pieces, and with their ends token by token. Whether a bit more or less makes a row choose
/// another expert is chance, and differs from prompt to prompt: so there are several, and their mean counts.
pub(crate) fn steps_against_each_other(
    conversation: &mut Conversation,
    tokens: &[u32],
    table: &mut Table,
) -> anyhow::Result<()> {
    for len in [130, 2100] {
        for (name, end, rows) in [("pieces of 64", 0, 64), ("the last 16 one by one", 16, ROWS)] {
            let mut apart = Vec::new();
            for prompt in PROMPTS.map(|first| &tokens[first..first + len]) {
                conversation.restart();
                let whole = conversation.feed(prompt, len)?;
                conversation.restart();
                let mut logits = conversation.feed(&prompt[..len - end], rows)?;
                if end > 0 {
                    logits = conversation.feed(&prompt[len - end..], 1)?;
                }
                apart.push(compare(&logits, &whole));
            }
            let mean = apart.iter().map(|(_, rms)| rms).sum::<f64>() / apart.len() as f64;
            let each: String = apart.iter().map(|(_, rms)| format!(" {rms:.4}")).collect();
            let text = format!("{len} tokens, {name} against at once: rms {mean:.4} in the mean of{each}");
            table.line(mean <= APART_MOST && apart.iter().all(|(cosine, _)| *cosine >= COSINE_LEAST), &text);
        }
    }
    Ok(())
}

/// Ids of the `count` largest logits, the largest first.
pub(crate) fn largest(logits: &[f32], count: usize) -> Vec<usize> {
    let mut ids: Vec<usize> = (0..logits.len()).collect();
    ids.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
    ids.truncate(count);
    ids
}

/// Cosine of the angle, and the size of the difference relative to `want`.
pub(crate) fn compare(got: &[f32], want: &[f32]) -> (f64, f64) {
    let dot = |a: &[f32], b: &[f32]| -> f64 { a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum() };
    let apart: f64 = got.iter().zip(want).map(|(&a, &b)| (f64::from(a) - f64::from(b)).powi(2)).sum();
    (dot(got, want) / (dot(got, got) * dot(want, want)).sqrt(), (apart / dot(want, want)).sqrt())
}
