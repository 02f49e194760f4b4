//! What is refused at the door, and readers that are too slow.

use crate::support::model::hash_rule;
use crate::support::{Bench, hear};
use ds4_engine::{EVENTS_UNREAD_MAX, EngineOptions, QUEUED_MAX, Refused, RequestFault};
use ds4_units::Tokens;

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
