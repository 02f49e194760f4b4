//! What fails fails alone.

use crate::support::model::hash_rule;
use crate::support::{Bench, hear};
use ds4_engine::{EngineOptions, Event, RequestFault};
use ds4_units::TokenId;

#[test]
fn a_request_that_cannot_be_computed_fails_alone() {
    let bench = Bench::new(hash_rule(), 500, EngineOptions::default());
    let expected = bench.complete(bench.request("good", 20)).text;
    bench.controls.poison(TokenId(b'X'.into()));
    bench.controls.hold();
    let good = bench.submit(bench.request("good", 20));
    let bad = bench.submit(bench.request("bad X", 20));
    bench.controls.release();
    assert_eq!(hear(good).text, expected);
    assert!(matches!(hear(bad).end, Err(RequestFault::Step(_))));
    // Two banks hold the good answers; nobody continues from a place that failed.
    assert_eq!(bench.controls.banks_open(), 2);
}

#[test]
fn a_failure_at_any_step_ends_only_requests_of_that_step_and_the_engine_goes_on() {
    for failing in 0..30 {
        let bench = Bench::new(hash_rule(), 500, EngineOptions { banks: 3, ..EngineOptions::default() });
        bench.controls.fail_step(failing);
        bench.controls.hold();
        let streams: Vec<_> = (0..5).map(|n| bench.submit(bench.request(&format!("{n} question"), 6))).collect();
        bench.controls.release();
        let failed = streams.into_iter().map(hear).filter(|heard| heard.end.is_err()).count();
        // Either the step was shared, and its repetition worked, or it belonged to one request alone.
        assert!(failed <= 1, "step {failing} failed {failed} requests");
        // The step may have been one of these; it is not repeated.
        let after = [(); 2].map(|()| bench.complete(bench.request("after", 3)).end.is_ok());
        assert!(after.contains(&true), "step {failing}");
    }
}

#[test]
fn an_engine_whose_device_is_lost_ends_every_request_and_then_itself() {
    let bench = Bench::new(hash_rule(), 500, EngineOptions { banks: 1, ..EngineOptions::default() });
    bench.controls.hold();
    let streams = [bench.submit(bench.request("running", 20)), bench.submit(bench.request("waiting", 20))];
    bench.controls.lose_device();
    bench.controls.release();
    assert!(streams.into_iter().map(hear).all(|heard| heard.end.is_err()));
    while !bench.engine.is_stopped() {
        std::thread::yield_now();
    }
}

#[test]
fn a_dropped_stream_stops_its_row_within_one_step() {
    let bench = Bench::new(hash_rule(), 500, EngineOptions::default());
    bench.controls.hold();
    let gone = bench.submit(bench.request("gone", 400));
    bench.controls.allow(5);
    bench.controls.wait_for_steps(6);
    drop(gone);
    bench.controls.release();
    bench.complete(bench.request("next", 1));
    // Two steps of the prompt, four of the answer, then the next request's two.
    assert_eq!(bench.controls.steps().len(), 8);
}

#[test]
fn a_stream_dropped_while_waiting_is_never_computed() {
    let bench = Bench::new(hash_rule(), 500, EngineOptions { banks: 1, ..EngineOptions::default() });
    bench.controls.hold();
    let first = bench.submit(bench.request("first", 2));
    bench.controls.wait_for_steps(1);
    drop(bench.submit(bench.request("never", 2)));
    bench.controls.release();
    hear(first);
    bench.complete(bench.request("last", 2));
    assert_eq!(bench.engine.handle().queued(), 0);
    assert_eq!(bench.controls.steps().len(), 6);
}

#[test]
fn a_prefix_that_was_cancelled_in_prefill_stays_warm() {
    let options = EngineOptions { prefill_rows: Some(10), ..EngineOptions::default() };
    let bench = Bench::new(hash_rule(), 500, options);
    bench.controls.hold();
    let gone = bench.submit(bench.request(&"p".repeat(99), 5));
    bench.controls.allow(3);
    bench.controls.wait_for_steps(4);
    drop(gone);
    bench.controls.release();
    let again = bench.complete(bench.request(&"p".repeat(99), 5));
    assert_eq!(again.finished().usage.cached_tokens.0, 40);
}

#[test]
fn a_panicking_model_ends_every_stream_and_is_noticed() {
    let bench = Bench::new(hash_rule(), 500, EngineOptions::default());
    bench.controls.hold();
    let streams: Vec<_> = (0..3).map(|_| bench.submit(bench.request("doomed", 5))).collect();
    bench.controls.panic_next();
    bench.controls.release();
    for stream in streams {
        assert_eq!(hear(stream).end, Err(RequestFault::EngineStopped));
    }
    assert!(bench.engine.stop().is_err());
}

#[test]
fn stopping_ends_running_and_waiting_requests() {
    let bench = Bench::new(hash_rule(), 20_000, EngineOptions { banks: 1, ..EngineOptions::default() });
    bench.controls.hold();
    let running = bench.submit(bench.request("running", 10_000));
    bench.controls.wait_for_steps(1);
    let waiting = bench.submit(bench.request("waiting", 5));
    let controls = bench.controls.clone();
    let stopper = std::thread::spawn(move || bench.engine.stop());
    // Step by step, so that the running request is still running when the command comes.
    while !stopper.is_finished() {
        controls.allow(1);
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    stopper.join().unwrap().unwrap();
    for stream in [running, waiting] {
        let heard = hear(stream);
        assert_eq!(heard.end, Err(RequestFault::EngineStopped));
        assert!(!heard.events.iter().any(|event| matches!(event, Event::Finished(_))));
    }
}
