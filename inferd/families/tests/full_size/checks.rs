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

/// The same prompt at once, in pieces, and with its end token by token.
pub(crate) fn steps_against_each_other(
    conversation: &mut Conversation,
    tokens: &[u32],
    table: &mut Table,
) -> anyhow::Result<()> {
    for len in [130, 2100] {
        conversation.restart();
        let whole = conversation.feed(&tokens[..len], len)?;
        for (name, cut, rows) in [("pieces of 64", len, 64), ("the last 16 one by one", len - 16, ROWS)] {
            conversation.restart();
            let mut logits = conversation.feed(&tokens[..cut], rows)?;
            if cut < len {
                logits = conversation.feed(&tokens[cut..len], 1)?;
            }
            let (cosine, rms) = compare(&logits, &whole);
            let text = format!("{len} tokens, {name} against at once: cosine {cosine:.6}, rms {rms:.4}");
            table.line(rms <= 0.06 && cosine >= 0.998, &text);
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
