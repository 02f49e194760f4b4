//! A worker among good and bad clients for a long time: nothing leaks, nobody is stuck, every refusal is typed, and good
//! clients do not feel the bad ones.
//!
//!     cargo test -p ds4-tests --test soak -- --seconds 160     three minutes with everything around it, as CI runs it
//!     cargo test -p ds4-tests --test soak -- --seconds 1800    half an hour
//!
//! A quarter of the time all sixteen clients are good; then ten of them turn bad.

mod bad;
mod good;
mod verdict;

use anyhow::{Context, Result};
use bad::Bad;
use clap::Parser;
use ds4_tests::{Worker, demo_model, memory_now};
use good::Good;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use verdict::Verdict;

/// Clients whose gaps are measured, and those that are good or bad beside them.
const MEASURED: usize = 6;
const OTHERS: usize = 10;

/// Between two looks at the worker's memory.
const LOOK_EVERY: Duration = Duration::from_secs(1);

#[derive(Parser)]
struct Args {
    /// How long clients come
    #[arg(long, default_value_t = 160)]
    seconds: u64,
    /// What `cargo test` may add
    #[arg(long, hide = true)]
    nocapture: bool,
}

/// What everybody noted down.
#[derive(Default)]
struct Notes {
    /// Gaps between the tokens of measured clients, with everybody good and with ten bad.
    calm: Vec<Duration>,
    stormy: Vec<Duration>,
    good: Good,
    bad: Bad,
    /// Seconds since the start, and bytes.
    memory: Vec<(f64, usize)>,
}

fn main() -> ExitCode {
    match soak(&Args::parse()) {
        Ok(verdict) => {
            print!("{verdict}");
            if verdict.passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("soak: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn soak(args: &Args) -> Result<Verdict> {
    // Fewer places than clients: some always wait.
    let worker = Worker::start(&demo_model(), 0, &["-c", "4096", "--max-seqs", "8"].map(AsRef::as_ref))?;
    worker.wait_until_healthy()?;
    let notes = Mutex::new(Notes::default());
    let (calm, whole) = (Duration::from_secs(args.seconds / 4), Duration::from_secs(args.seconds));
    let (storm, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let (started, address) = (Instant::now(), worker.address());
    std::thread::scope(|scope| -> Result<()> {
        for number in 0..MEASURED {
            scope.spawn({
                let (notes, storm, over) = (&notes, &storm, &over);
                move || measured(address, number as u64, notes, storm, over)
            });
        }
        for number in 0..OTHERS {
            scope.spawn({
                let (notes, storm, over) = (&notes, &storm, &over);
                move || other(address, number as u64, notes, storm, over)
            });
        }
        let looks = watch(&worker, &notes, &storm, started, calm, whole);
        over.store(true, Ordering::Relaxed);
        looks
    })?;
    let notes = notes.into_inner().map_err(|_| anyhow::anyhow!("a client panicked"))?;
    let board = ended(&worker)?;
    Ok(Verdict::of(&notes, &board, args.seconds))
}

/// Looks at the worker's memory until the time is over.
fn watch(
    worker: &Worker,
    notes: &Mutex<Notes>,
    storm: &AtomicBool,
    started: Instant,
    calm: Duration,
    whole: Duration,
) -> Result<()> {
    while started.elapsed() < whole {
        storm.store(started.elapsed() >= calm, Ordering::Relaxed);
        let held = memory_now(worker.process().pid())?;
        note(notes, |notes| notes.memory.push((started.elapsed().as_secs_f64(), held)));
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// A good client whose gaps count.
fn measured(address: SocketAddr, number: u64, notes: &Mutex<Notes>, storm: &AtomicBool, over: &AtomicBool) {
    for turn in 0.. {
        if over.load(Ordering::Relaxed) {
            return;
        }
        let stormy = storm.load(Ordering::Relaxed);
        let answer = good::ask(address, number * 100_000 + turn);
        note(notes, |notes| {
            let gaps = if stormy { &mut notes.stormy } else { &mut notes.calm };
            // An answer that began in the calm and ended in the storm counts for neither.
            if stormy == storm.load(Ordering::Relaxed) {
                gaps.extend(answer.gaps.iter().copied());
            }
            notes.good.take(&answer);
        });
    }
}

/// A client that is good first and bad later.
fn other(address: SocketAddr, number: u64, notes: &Mutex<Notes>, storm: &AtomicBool, over: &AtomicBool) {
    for turn in 0.. {
        if over.load(Ordering::Relaxed) {
            return;
        }
        let seed = (number + 50) * 100_000 + turn;
        if storm.load(Ordering::Relaxed) {
            let end = bad::behave(address, seed, over);
            note(notes, |notes| notes.bad.take(end));
        } else {
            let answer = good::ask(address, seed);
            note(notes, |notes| notes.good.take(&answer));
        }
    }
}

fn note(notes: &Mutex<Notes>, write: impl FnOnce(&mut Notes)) {
    // A client that panicked has said so; what others noted still counts.
    write(&mut notes.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
}

/// The worker's board once nothing is under way any more, or after a while.
fn ended(worker: &Worker) -> Result<serde_json::Value> {
    let patience = Instant::now() + Duration::from_secs(40);
    loop {
        let reply: serde_json::Value = serde_json::from_str(&worker.get_json("/v1/stats")?)?;
        let inflight = reply["server"]["requests_inflight"].as_u64().context("requests_inflight")?;
        let clients = reply["backpressure"]["clients_connected"].as_u64().context("clients_connected")?;
        if inflight + clients == 0 || Instant::now() > patience {
            return Ok(reply);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
