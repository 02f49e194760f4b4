//! What is refused at the door, and readers that are too slow.

use crate::support::model::hash_rule;
use crate::support::{Bench, hear};
use ds4_engine::{EVENTS_UNREAD_MAX, EngineOptions, QUEUED_MAX, Refused, RequestFault};
use ds4_units::{Bytes, Tokens};
use std::time::Duration;

#[test]
fn a_prompt_that_fills_the_context_is_refused_with_both_numbers() {
    let bench = Bench::new(hash_rule(), 20, EngineOptions::default());
    let refused = bench.engine.handle().submit(bench.request(&"p".repeat(19), 5)).unwrap_err();
    assert_eq!(refused, Refused::PromptTooLong { prompt: Tokens(20), context: Tokens(20) });
    assert!(bench.complete(bench.request(&"p".repeat(18), 5)).end.is_ok());
}

#[test]
fn one_request_more_than_the_queue_holds_is_refused_at_once() {
    let bench = Bench::new(hash_rule(), 500, EngineOptions { banks: 1, ..EngineOptions::default() });
    bench.controls.hold();
    let running = bench.submit(bench.request("running", 1));
    bench.controls.wait_for_steps(1);
    let waiting: Vec<_> = (0..QUEUED_MAX).map(|_| bench.submit(bench.request("waiting", 1))).collect();
    let refused = bench.engine.handle().submit(bench.request("one more", 1)).unwrap_err();
    assert_eq!(refused, Refused::QueueFull { limit: QUEUED_MAX });
    bench.controls.release();
    hear(running);
    for stream in waiting {
        assert!(hear(stream).end.is_ok());
    }
    assert!(bench.complete(bench.request("one more", 1)).end.is_ok());
}

#[test]
fn prompts_that_wait_take_so_many_bytes_together_and_one_alone_as_many_as_it_likes() {
    let options = EngineOptions { banks: 1, queued_bytes_max: Bytes(100), ..EngineOptions::default() };
    let bench = Bench::new(hash_rule(), 500, options);
    bench.controls.hold();
    let running = bench.submit(bench.request("running", 1));
    bench.controls.wait_for_steps(1);
    let handle = bench.engine.handle();
    let long = "l".repeat(200);
    let waits = bench.submit(bench.request(&long, 1));
    let refused = handle.submit(bench.request("s", 1)).unwrap_err();
    assert_eq!(refused, Refused::QueueBytesFull { limit: Bytes(100) });
    drop(waits);
    bench.controls.release();
    hear(running);
    // Whoever left waits no more, and who was refused never did.
    while handle.queued_bytes() > Bytes::ZERO {
        std::thread::yield_now();
    }
    assert_eq!(handle.queued(), 0);
    assert!(bench.complete(bench.request("s", 1)).end.is_ok());
}

#[test]
fn who_has_waited_longer_than_anybody_should_is_told_so_and_others_wait_on() {
    let limit = Duration::from_millis(300);
    let options = EngineOptions { banks: 1, queue_age_max: limit, ..EngineOptions::default() };
    let bench = Bench::new(hash_rule(), 4_000, options);
    bench.controls.hold();
    let running = bench.submit(bench.request("running", 8));
    bench.controls.wait_for_steps(1);
    let old = bench.submit(bench.request("waits", 1));
    std::thread::sleep(limit);
    let young = bench.submit(bench.request("comes later", 1));
    bench.controls.allow(1);
    let asked = std::time::Instant::now();
    let told = hear(old).end;
    assert!(matches!(told, Err(RequestFault::QueuedTooLong { limit: told, .. }) if told == limit), "{told:?}");
    assert!(bench.controls.steps().len() < 8, "it was told while the other still ran");
    bench.controls.release();
    assert!(hear(running).end.is_ok());
    // On a machine that stood still the other has become as old.
    let young = hear(young).end;
    assert!(young.is_ok() || asked.elapsed() >= limit, "{young:?}");
    assert_eq!(bench.engine.handle().observatory().stats().failed, 1 + u64::from(young.is_err()));
}

#[test]
fn without_limits_more_wait_than_any_default_allows() {
    let off = EngineOptions { banks: 1, queued_max: 0, queued_bytes_max: Bytes(0), ..EngineOptions::default() };
    let bench = Bench::new(hash_rule(), 500, EngineOptions { queue_age_max: Duration::ZERO, ..off });
    bench.controls.hold();
    let streams: Vec<_> = (0..2 * QUEUED_MAX).map(|_| bench.submit(bench.request("waits", 1))).collect();
    bench.controls.release();
    for stream in streams {
        assert!(hear(stream).end.is_ok());
    }
}

#[test]
fn a_reader_that_does_not_read_loses_its_request_and_nobody_else() {
    let bench = Bench::new(hash_rule(), 20_000, EngineOptions::default());
    let slow = bench.submit(bench.request("slow", 10_000));
    // It gets as many steps as these together, and is dropped before the last of them ends.
    for _ in 0..3 {
        assert!(bench.complete(bench.request("quick", EVENTS_UNREAD_MAX as u32 / 2)).end.is_ok());
    }
    let slow = hear(slow);
    assert_eq!(slow.end, Err(RequestFault::SlowReader { unread: EVENTS_UNREAD_MAX }));
    assert_eq!(slow.events.len(), EVENTS_UNREAD_MAX + 1);
}

#[test]
fn a_stopped_engine_refuses() {
    let bench = Bench::new(hash_rule(), 500, EngineOptions::default());
    let handle = bench.engine.handle();
    let request = bench.request("late", 1);
    bench.engine.stop().unwrap();
    assert_eq!(handle.submit(request).unwrap_err(), Refused::Stopped);
}
