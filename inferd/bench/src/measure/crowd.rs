//! Many requests at once.

use crate::ceilings::Shares;
use crate::config::Args;
use crate::error::BenchError;
use crate::request::{Answered, Requests};
use crate::table::{Cell, Table};
use ds4_units::Tokens;
use std::time::{Duration, Instant};

const COLUMNS: &[&str] = &[
    "requests",
    "ctx_tokens",
    "prefill_tps",
    "gen_tps",
    "between_tokens_ms",
    "first_token_p50_ms",
    "first_token_max_ms",
    "prefill_share",
    "gen_share",
];

/// Measures every crowd and prints a line for each as it comes.
pub(crate) fn run(args: &Args, crowds: &[u32], requests: &Requests, shares: &Shares) -> Result<Table, BenchError> {
    let mut table = Table::begin(COLUMNS);
    let len = Tokens(args.ctx_start);
    let mut first = 0;
    for &count in crowds {
        // Every prompt begins elsewhere in the text, so that none finds its beginning computed.
        let starts: Vec<usize> = (0..count as usize).map(|index| first + 1 + 37 * index).collect();
        first += 11;
        let prompts: Vec<_> = starts.into_iter().map(|start| requests.prompt(start, len)).collect();
        let began = Instant::now();
        let answers: Result<Vec<Answered>, BenchError> = std::thread::scope(|scope| {
            let answer = |prompt| scope.spawn(move || requests.answer(prompt, Tokens(args.gen_tokens)));
            let all: Vec<_> = prompts.into_iter().map(answer).collect();
            all.into_iter().map(|thread| thread.join().expect("a request's thread does not panic")).collect()
        });
        table.add(line(len, began, &answers?, shares));
    }
    Ok(table)
}

fn line(len: Tokens, began: Instant, answers: &[Answered], shares: &Shares) -> Vec<Cell> {
    let mut firsts: Vec<Duration> =
        answers.iter().filter_map(|answered| answered.arrivals.first()).map(|&(at, _)| at - began).collect();
    firsts.sort();
    let milliseconds = |at: usize| firsts.get(at).map(|first| first.as_secs_f64() * 1e3);
    let computed: u32 =
        answers.iter().map(|of| of.finished.usage.prompt_tokens.0 - of.finished.usage.cached_tokens.0).sum();
    let prefill = firsts.last().map(|last| f64::from(computed) / last.as_secs_f64());
    let together = while_all_write(answers);
    vec![
        Cell::count(answers.len() as u64),
        Cell::count(len.0),
        Cell::maybe(prefill, 2),
        Cell::maybe(together, 2),
        Cell::maybe(together.map(|rate| answers.len() as f64 / rate * 1e3), 3),
        Cell::maybe(milliseconds(firsts.len() / 2), 1),
        Cell::maybe(milliseconds(firsts.len().saturating_sub(1)), 1),
        Cell::maybe(prefill.and_then(|rate| shares.of_products(rate)), 4),
        Cell::maybe(together.and_then(|rate| shares.of_reading(rate, answers.len() as u32)), 4),
    ]
}

/// Tokens a second of all answers, from the last one's first token to the first one's last.
fn while_all_write(answers: &[Answered]) -> Option<f64> {
    let from = answers.iter().filter_map(|answered| answered.arrivals.first()).map(|&(at, _)| at).max()?;
    let to = answers.iter().filter_map(|answered| answered.arrivals.last()).map(|&(at, _)| at).min()?;
    let seconds = to.checked_duration_since(from)?.as_secs_f64();
    let during = answers.iter().flat_map(|answered| &answered.arrivals).filter(|&&(at, _)| at > from && at <= to);
    let tokens: usize = during.map(|&(_, tokens)| tokens).sum();
    (seconds > 0.0).then(|| tokens as f64 / seconds)
}
