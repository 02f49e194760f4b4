//! The counters say what happened.

use crate::support::model::{BYTES_PER_TOKEN, hash_rule};
use crate::support::{Bench, hear};
use ds4_engine::{EngineOptions, GenerateRequest, Stats};
use std::time::Duration;

/// How long a step takes that is slow.
const STALL: Duration = Duration::from_millis(200);

fn stats(bench: &Bench) -> Stats {
    bench.engine.handle().observatory().stats()
}

fn in_flight(bench: &Bench) -> u64 {
    bench.engine.handle().observatory().in_flight()
}

#[test]
fn every_request_taken_is_counted_once_by_how_it_ended() {
    let (bench, _) = Bench::with_room(hash_rule(), 4_000, EngineOptions::default(), 500);
    bench.complete(bench.request("nine more", 20));
    bench.complete(bench.request("nine more", 900));
    bench.controls.hold();
    let left = bench.submit(bench.request("gone soon", 20));
    let stays = bench.submit(bench.request("nine more", 30));
    drop(left);
    assert_eq!(in_flight(&bench), 2);
    bench.controls.release();
    hear(stays);
    let seen = stats(&bench);
    assert_eq!([seen.started, seen.completed, seen.refused, seen.canceled, seen.failed], [4, 2, 1, 1, 0]);
    assert_eq!(in_flight(&bench), 0);
}

#[test]
fn requests_in_flight_are_those_that_wait_and_those_that_run_and_are_what_was_taken_less_what_ended() {
    let bench = Bench::new(hash_rule(), 4_000, EngineOptions { banks: 2, ..EngineOptions::default() });
    bench.controls.hold();
    let mut streams: Vec<_> = (0..2).map(|_| bench.submit(bench.request("running", 30))).collect();
    // Both run once a step has one row or more of each.
    bench.controls.allow(4);
    bench.controls.wait_for_steps(5);
    streams.extend((0..3).map(|_| bench.submit(bench.request("waits", 3))));
    let adds_up = |bench: &Bench| {
        let seen = stats(bench);
        let ended = seen.completed + seen.failed + seen.canceled + seen.refused;
        (in_flight(bench), seen.started - ended)
    };
    assert_eq!((adds_up(&bench), bench.engine.handle().queued()), ((5, 5), 3));
    bench.controls.fail_step(5);
    bench.controls.fail_step(6);
    bench.controls.release();
    for stream in streams {
        let _ = hear(stream);
    }
    assert_eq!(stats(&bench).failed, 1, "the step of both failed, then that of one alone");
    assert_eq!(adds_up(&bench), (0, 0));
}

#[test]
fn answers_have_a_time_between_any_two_of_their_tokens() {
    let bench = Bench::new(hash_rule(), 4_000, EngineOptions::default());
    let (heard, gaps) = std::sync::mpsc::channel();
    let listen = move |gap| heard.send(gap).unwrap();
    bench.controls.hold();
    let stream = bench.submit(GenerateRequest { gaps: Some(Box::new(listen)), ..bench.request("nine more", 20) });
    bench.controls.allow(8);
    bench.controls.wait_for_steps(9);
    std::thread::sleep(STALL);
    bench.controls.release();
    assert!(hear(stream).end.is_ok());
    let gaps: Vec<Duration> = gaps.iter().collect();
    assert_eq!(gaps.len(), 19);
    assert!(gaps.iter().any(|&gap| gap >= STALL), "{gaps:?}");
}

#[test]
fn what_banks_hold_and_how_fast_it_went_is_there_to_see() {
    let bench = Bench::new(hash_rule(), 4_000, EngineOptions::default());
    bench.complete(bench.request("nine more", 20));
    // The books are written after readers have heard.
    bench.complete(bench.request("another", 3));
    let seen = stats(&bench);
    assert_eq!(seen.bytes_priced, BYTES_PER_TOKEN);
    assert_eq!(seen.bytes_held, BYTES_PER_TOKEN * seen.tokens_held);
    // Ten tokens of a prompt and those of its answer but the last, which nobody computed: 29, in blocks of four.
    assert!(seen.tokens_held >= 29, "{seen:?}");
    assert!((8..=seen.tokens_held).contains(&seen.blocks_held), "{seen:?}");
    let rates = bench.engine.handle().observatory().rates();
    // Two requests, each alone in its steps.
    assert_eq!(rates.tokens_per_step, 1.0);
    assert!(rates.decoded > 0.0 && rates.prefilled > 0.0, "{rates:?}");
    assert_eq!(bench.engine.handle().observatory().unread().0, 0);
}

#[test]
fn tokens_are_counted_where_their_rows_were_computed() {
    let bench = Bench::new(hash_rule(), 4_000, EngineOptions::default());
    bench.complete(bench.request("nine more", 20));
    bench.complete(bench.request("nine more", 20));
    let seen = stats(&bench);
    // Ten tokens the first time, the last of them the second time; the last drawn token of each is never computed.
    assert_eq!((seen.prefilled_computed, seen.prefilled_cached, seen.decoded), (11, 9, 38));
    assert_eq!((seen.admits_cold, seen.admits_partial + seen.admits_fork + seen.admits_exact), (1, 1));
    assert_eq!(seen.banks, 8);
    assert_eq!(seen.prefilled_computed + seen.decoded, bench.controls.rows_computed() as u64);
}
