//! Who computes when.

use crate::support::model::hash_rule;
use crate::support::{Bench, hear};
use ds4_engine::{CHARGED_TOKENS, EngineOptions, Event, GRACE, IDLE_TRIM, QUEUE_AGE_MAX, QUEUED_BYTES_MAX, QUEUED_MAX};
use std::time::Duration;

/// No step is short enough: beside answers, prompts get the fewest rows there may be.
const OPTIONS: EngineOptions = EngineOptions {
    banks: 4,
    prefill_rows: Some(20),
    step_target: Duration::ZERO,
    charged_tokens: CHARGED_TOKENS,
    queued_max: QUEUED_MAX,
    queued_bytes_max: QUEUED_BYTES_MAX,
    queue_age_max: QUEUE_AGE_MAX,
    idle_trim: IDLE_TRIM,
    grace: GRACE,
    speculation: None,
};

#[test]
fn a_newcomer_computes_beside_a_running_answer_under_the_smaller_budget() {
    let bench = Bench::new(hash_rule(), 500, OPTIONS);
    bench.controls.hold();
    let first = bench.submit(bench.request("abcdef", 12));
    bench.controls.allow(3);
    bench.controls.wait_for_steps(4);
    // The fourth step, the third drawn token, is held; the newcomer joins the fifth.
    let second = bench.submit(bench.request(&"z".repeat(40), 1));
    bench.controls.release();
    hear(first);
    hear(second);
    // Prompt and text: 7 tokens, of which the last is a step of its own after the checkpoint.
    let steps = bench.controls.steps();
    assert_eq!(steps[..4], [vec![6], vec![1], vec![1], vec![1]]);
    // Together they are as many as a step may have, which memory was taken for.
    assert_eq!(steps[4..8], [vec![1, 19], vec![1, 16], vec![1, 5], vec![1, 1]]);
}

#[test]
fn four_simultaneous_2k_token_requests_no_client_waits_for_another_to_finish() {
    let bench = Bench::new(hash_rule(), 4_000, EngineOptions { banks: 4, ..EngineOptions::default() });
    bench.controls.hold();
    let prompt = |nth: u8| char::from(b'a' + nth).to_string().repeat(2_047);
    let streams: Vec<_> = (0..4).map(|nth| bench.submit(bench.request(&prompt(nth), 64))).collect();
    bench.controls.release();
    streams.into_iter().for_each(|stream| assert_eq!(hear(stream).finished().usage.completion_tokens.0, 64));
    // Whoever came first computes the first step alone; from then on every step has rows of all four, until the first
    // answer ends. By then every prompt is computed, and every client has read a part of its answer.
    let steps = bench.controls.steps();
    let ended = (1..steps.len()).find(|&step| steps[step].len() < 4).unwrap_or(steps.len());
    let rows: usize = steps[..ended].iter().flatten().sum();
    assert!(rows > 4 * 2_048 + 4, "{rows} rows were computed when the first answer ended");
    // What one is ahead of the others is what it computed before they came: a step of 512 rows, then equal shares.
    assert!(steps[1..ended].iter().all(|step| step.len() == 4), "{steps:?}");
}

#[test]
fn alone_a_prompt_gets_the_larger_budget() {
    let bench = Bench::new(hash_rule(), 500, OPTIONS);
    bench.complete(bench.request(&"z".repeat(49), 1));
    assert_eq!(bench.controls.steps(), [vec![20], vec![20], vec![9], vec![1]]);
}

#[test]
fn a_short_prompt_does_not_wait_behind_a_long_one() {
    let bench = Bench::new(hash_rule(), 2_000, OPTIONS);
    bench.controls.hold();
    let long = bench.submit(bench.request(&"a".repeat(1_000), 1));
    bench.controls.wait_for_steps(1);
    let short = bench.submit(bench.request(&"b".repeat(25), 1));
    bench.controls.release();
    let short = hear(short);
    assert!(short.end.is_ok());
    // 25 rows at half of 20 a step, and one for the last token.
    let rows_until_then: usize = bench.controls.steps().iter().take(6).flatten().sum();
    assert!(rows_until_then <= 120, "{rows_until_then}");
    hear(long);
    let steps = bench.controls.steps();
    assert_eq!(steps[1], [10, 10]);
    assert_eq!(steps[2], [10, 10]);
}

#[test]
fn prompts_beyond_the_banks_wait_their_turn() {
    let options = EngineOptions { banks: 2, ..OPTIONS };
    let bench = Bench::new(hash_rule(), 500, options);
    bench.controls.hold();
    let streams: Vec<_> = (0..6).map(|n| bench.submit(bench.request(&format!("{n} question"), 5))).collect();
    bench.controls.release();
    for stream in streams {
        assert!(hear(stream).end.is_ok());
    }
    assert_eq!(bench.controls.banks_open_most(), 2);
    assert!(bench.controls.steps().iter().all(|rows| rows.len() <= 2));
}

#[test]
fn prefill_reports_how_far_it_is() {
    let bench = Bench::new(hash_rule(), 500, OPTIONS);
    let heard = bench.complete(bench.request(&"z".repeat(49), 1));
    let done: Vec<u32> = heard
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Prefill { done, total } => {
                assert_eq!(total.0, 50);
                Some(done.0)
            }
            _ => None,
        })
        .collect();
    assert_eq!(done, [20, 40, 49, 50]);
}
