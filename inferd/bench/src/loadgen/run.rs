//! The clients at work.

use crate::client::{Felt, Server};
use crate::config::Args;
use crate::prompts::Prompts;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// One request of a run.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) index: usize,
    /// When it arrived: its latencies count from here.
    pub(crate) arrived: Instant,
    pub(crate) felt: Felt,
}

/// All of a run.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) started: Instant,
    /// In order of arrival.
    pub(crate) requests: Vec<Request>,
}

/// Sends every request and waits for the last answer.
pub(crate) fn run(server: &Server, prompts: &Prompts, args: &Args) -> Outcome {
    let arrivals = args.rate.map(|rate| arrivals(args.seed, rate, args.requests as usize));
    let next = AtomicUsize::new(0);
    let requests = Mutex::new(Vec::new());
    let started = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..args.clients.min(args.requests) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= args.requests as usize {
                        return;
                    }
                    let prompt = prompts.prompt(index);
                    let arrived = match &arrivals {
                        Some(arrivals) => wait_until(started + arrivals[index]),
                        None => Instant::now(),
                    };
                    let felt = server.complete(&prompt, args.output_tokens);
                    lock(&requests).push(Request { index, arrived, felt });
                }
            });
        }
    });
    let mut requests = std::mem::take(&mut *lock(&requests));
    requests.sort_by_key(|request| request.index);
    Outcome { started, requests }
}

/// A client that panicked has printed why; what the others measured still counts.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Arrival times of a Poisson process: exponential gaps.
fn arrivals(seed: u64, rate: f64, count: usize) -> Vec<Duration> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(u64::MAX);
    let mut at = 0.0;
    (0..count)
        .map(|_| {
            // In (0, 1]: its logarithm is finite.
            let uniform = (random.next_u32() as f64 + 1.0) / 2f64.powi(32);
            at -= uniform.ln() / rate;
            Duration::from_secs_f64(at)
        })
        .collect()
}

/// Sleeps until then; returns then, also when it is past already.
fn wait_until(then: Instant) -> Instant {
    std::thread::sleep(then.saturating_duration_since(Instant::now()));
    then
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_come_at_the_rate_asked_for_and_the_same_each_time() {
        let times = arrivals(3, 50.0, 5000);
        assert!(times.is_sorted());
        let rate = 5000.0 / times[4999].as_secs_f64();
        assert!((47.0..53.0).contains(&rate), "{rate}");
        assert_eq!(times, arrivals(3, 50.0, 5000));
    }
}
