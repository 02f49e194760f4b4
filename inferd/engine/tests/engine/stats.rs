//! The counters say what happened.

use crate::support::model::hash_rule;
use crate::support::{Bench, hear};
use ds4_engine::{EngineOptions, Stats};

fn stats(bench: &Bench) -> Stats {
    bench.engine.handle().observatory().stats()
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
    assert_eq!(stats(&bench).inflight(), 2);
    bench.controls.release();
    hear(stays);
    let seen = stats(&bench);
    assert_eq!([seen.started, seen.completed, seen.refused, seen.canceled, seen.failed], [4, 2, 1, 1, 0]);
    assert_eq!(seen.inflight(), 0);
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
