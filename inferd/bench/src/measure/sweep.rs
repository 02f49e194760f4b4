//! One conversation, longer from frontier to frontier.

use crate::ceilings::Shares;
use crate::config::Args;
use crate::error::BenchError;
use crate::request::{Answered, Requests};
use crate::table::{Cell, Table};
use ds4_units::Tokens;

const COLUMNS: &[&str] = &[
    "ctx_tokens",
    "prefill_tokens",
    "prefill_tps",
    "gen_tokens",
    "gen_tps",
    "gen_tps_ss",
    "first_token_ms",
    "kvcache_bytes",
    "prefill_share",
    "gen_share",
];

/// Measures at every frontier and prints a line for each as it comes. `prices` are what banks of the frontiers' lengths
/// take.
pub(crate) fn run(args: &Args, requests: &Requests, prices: &[u64], shares: &Shares) -> Result<Table, BenchError> {
    let mut table = Table::begin(COLUMNS);
    for (&frontier, &price) in args.frontiers().iter().zip(prices) {
        let answered = requests.answer(requests.prompt(0, frontier), Tokens(args.gen_tokens))?;
        table.add(line(frontier, price, &answered, shares));
    }
    Ok(table)
}

fn line(frontier: Tokens, price: u64, answered: &Answered, shares: &Shares) -> Vec<Cell> {
    let (usage, timings) = (&answered.finished.usage, &answered.finished.timings);
    let prefill = timings.prefill_rate(usage);
    let steady = timings.decode_rate(usage);
    // From the logits of the prompt's last token: drawing the first token is part of it.
    let first = timings.first_token.map(|first| first.saturating_sub(timings.queued + timings.prefill));
    // One token needs no step of its own, so there is no speed of writing it.
    let writing = first.map(|first| (first + timings.decode).as_secs_f64()).filter(|_| usage.completion_tokens.0 > 1);
    vec![
        Cell::count(frontier.0),
        Cell::count(usage.prompt_tokens.0 - usage.cached_tokens.0),
        Cell::maybe(prefill, 2),
        Cell::count(usage.completion_tokens.0),
        Cell::maybe(writing.map(|seconds| f64::from(usage.completion_tokens.0) / seconds), 2),
        Cell::maybe(steady, 2),
        Cell::maybe(timings.first_token.map(|first| first.as_secs_f64() * 1e3), 3),
        Cell::count(price),
        Cell::maybe(prefill.and_then(|rate| shares.of_products(rate)), 4),
        Cell::maybe(steady.and_then(|rate| shares.of_reading(rate, 1)), 4),
    ]
}
