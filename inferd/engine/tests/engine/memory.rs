//! Memory is promised before it is used, and what was promised is had.

use crate::support::model::hash_rule;
use crate::support::{Bench, Heard, hear};
use ds4_engine::{EngineOptions, FinishReason, GenerateRequest, Keep, RequestFault};
use ds4_governor::{Consumer, Governor, Lease, Reason, Verdict};
use ds4_units::{Bytes, Tokens};
use std::time::{Duration, Instant};

/// Room for 1,000 tokens.
fn bench(banks: usize) -> (Bench, Governor) {
    Bench::with_room(hash_rule(), 4_000, EngineOptions { banks, ..EngineOptions::default() }, 1_000)
}

/// The conversations' lease once nothing promised is left unused; a refund that never comes ends the test.
fn settled(governor: &Governor) -> Lease {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let lease = governor.leases().get(Consumer::BatchBanks);
        if lease.intent == lease.resident {
            return lease;
        }
        assert!(Instant::now() < deadline, "what was not used is given back: {lease:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn refusal(heard: &Heard) -> (Reason, u32, u64) {
    match &heard.end {
        Err(RequestFault::Memory(refusal)) => (refusal.reason, refusal.max_admissible_tokens.0, refusal.deficit.0),
        other => panic!("not refused for memory: {other:?}"),
    }
}

#[test]
fn what_never_fits_is_refused_with_the_number_that_does() {
    let (bench, _) = bench(4);
    // 10 tokens with the one that begins a text, and 991 to draw: one too many.
    let refused = bench.complete(bench.request("nine more", 991));
    assert_eq!(refusal(&refused), (Reason::ClassBudget, 1_000, 4));
    assert_eq!(bench.controls.banks_open(), 0);
    let fits = bench.complete(bench.request("nine more", 990));
    assert_eq!(fits.finished().usage.completion_tokens, Tokens(990));
}

#[test]
fn what_nobodys_end_makes_room_for_is_refused_at_once_and_may_be_asked_for_again_where_it_was_planned() {
    let (bench, governor) = bench(4);
    bench.controls.others_take(300);
    bench.controls.hold();
    let runs = bench.submit(bench.request("nine more", 90));
    let never = bench.submit(bench.request("nine also", 991));
    let not_now = bench.submit(bench.request("nine also", 900));
    let later = bench.submit(bench.request("nine also", 690));
    bench.controls.allow(2);
    assert_eq!(refusal(&hear(never)), (Reason::ClassBudget, 700, 4 * 301));
    assert_eq!(refusal(&hear(not_now)), (Reason::LiveHeadroom, 700, 4 * 210));
    let decisions = governor.decisions();
    assert_eq!(decisions.count(Consumer::BatchBanks, Verdict::RefuseClass), 1);
    bench.controls.release();
    assert!(hear(runs).end.is_ok() && hear(later).end.is_ok());
    // Others have given it back.
    bench.controls.others_take(0);
    std::thread::sleep(Duration::from_millis(60));
    assert!(bench.complete(bench.request("nine also", 900)).end.is_ok());
}

#[test]
fn a_request_waits_for_the_memory_that_a_running_one_was_promised_and_not_for_more() {
    let (bench, _) = bench(4);
    bench.controls.hold();
    let first = bench.submit(bench.request("nine more", 590));
    let second = bench.submit(bench.request("nine also", 590));
    let small = bench.submit(bench.request("nine tiny", 30));
    bench.controls.allow(400);
    bench.controls.wait_for_steps(400);
    assert_eq!(bench.controls.banks_open(), 1, "the second is promised nothing while the first may need it");
    bench.controls.release();
    for stream in [first, second, small] {
        assert!(hear(stream).end.is_ok());
    }
}

#[test]
fn what_a_client_that_left_gives_back_is_promised_once() {
    let options = EngineOptions { banks: 4, prefill_rows: Some(100), ..EngineOptions::default() };
    let (bench, _) = Bench::with_room(hash_rule(), 4_000, options, 1_000);
    bench.controls.hold();
    // It leaves while its prompt is computed and nothing is written to it.
    let long = GenerateRequest { keep: Keep::Nothing, ..bench.request(&"a".repeat(939), 10) };
    let leaves = bench.submit(long);
    while bench.controls.tokens_held() < 700 {
        bench.controls.allow(1);
        std::thread::sleep(Duration::from_millis(1));
    }
    let first = bench.submit(bench.request("first one", 590));
    let second = bench.submit(bench.request("second on", 590));
    drop(leaves);
    // The next look at the machine finds the memory free already.
    std::thread::sleep(Duration::from_millis(60));
    let begun = bench.controls.steps().len();
    bench.controls.allow(100);
    bench.controls.wait_for_steps(begun + 50);
    assert_eq!(bench.controls.banks_open(), 1, "600 of 1,000 are promised to the first");
    bench.controls.release();
    assert!(hear(first).end.is_ok() && hear(second).end.is_ok());
}

#[test]
fn kept_conversations_are_given_up_for_new_ones() {
    let (bench, governor) = bench(8);
    for text in ["first one", "second on", "third one"] {
        bench.complete(bench.request(text, 290));
    }
    assert_eq!(bench.controls.banks_open(), 3, "300 tokens each fit beside each other");
    bench.complete(bench.request("the fourth", 600));
    assert_eq!(bench.controls.banks_open(), 2, "the two oldest made room");
    // The books are closed at the end of the turn, a moment after the answer's.
    let lease = settled(&governor);
    assert_eq!(lease.resident, Bytes(4 * bench.controls.tokens_held() as u64));
}

#[test]
fn what_was_given_up_and_is_asked_for_again_is_counted_once() {
    let (bench, governor) = bench(8);
    let refaults = || {
        let seen = bench.engine.handle().observatory().stats();
        (seen.refaults, seen.refault_tokens)
    };
    let first = bench.complete(bench.request("first one", 290));
    bench.complete(bench.request("second on", 290));
    bench.complete(bench.request("the third", 700));
    settled(&governor);
    assert_eq!(refaults(), (0, 0), "one is given up, and nobody has asked for it");
    let again = bench.request(&format!("first one{}", first.text), 10);
    assert_eq!(again.prompt.tokens().len(), 300);
    let again = bench.complete(again);
    let cached = u64::from(again.finished().usage.cached_tokens.0);
    assert_eq!(refaults(), (1, 256 - cached), "the whole blocks of 64 that it had, but for what others have");
    let longer = bench.request(&format!("first one{}{}", first.text, again.text), 10);
    bench.complete(longer);
    assert_eq!(refaults().0, 1, "now it is there");
}

#[test]
fn a_continued_conversation_is_not_charged_twice() {
    let (bench, _) = bench(8);
    let first = bench.complete(bench.request("long ago", 691));
    let longer = format!("long ago{}", first.text);
    // 700 of 1,000 tokens are held, and 950 are asked for: it fits because they are the same.
    let heard = bench.complete(bench.request(&longer, 250));
    assert_eq!(heard.finished().usage.completion_tokens, Tokens(250));
}

#[test]
fn an_answer_longer_than_its_first_charge_goes_on_while_there_is_memory_and_then_ends_for_length() {
    let options = EngineOptions { banks: 2, charged_tokens: Tokens(320), ..EngineOptions::default() };
    // A prompt of 10 and the first charge of 320 fit, two lengthenings of 20 do, a third does not.
    let (bench, _) = Bench::with_room(hash_rule(), 4_000, options, 10 + 320 + 40 + 19);
    let heard = bench.complete(bench.request("nine more", 3_000));
    assert_eq!(heard.finished().reason, FinishReason::Length);
    assert_eq!(heard.finished().usage.completion_tokens, Tokens(320 + 40 + 1));
    let seen = bench.engine.handle().observatory().stats();
    assert_eq!((seen.extensions_granted, seen.extensions_refused), (2, 1));
}

#[test]
fn as_many_as_fit_by_the_account_run_together() {
    let (bench, _) = bench(8);
    bench.controls.hold();
    let streams: Vec<_> = (0..5).map(|_| bench.submit(bench.request("nine more", 190))).collect();
    bench.controls.release();
    for stream in streams {
        assert_eq!(hear(stream).finished().usage.completion_tokens, Tokens(190));
    }
    assert_eq!(bench.controls.banks_open_most(), 5);
}
