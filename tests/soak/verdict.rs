//! What a soak comes to: a table of what was measured, what is allowed, and whether it is.

use crate::Notes;
use serde_json::Value;
use std::fmt;
use std::time::Duration;

/// How much more a good client's gaps may be among bad ones: the usual gap by half, rare ones twice, and in both cases
/// what a scheduler's tick does.
const USUAL_MORE: f64 = 1.5;
const RARE_MORE: f64 = 2.0;
const TICK: Duration = Duration::from_millis(10);

/// Growth of memory that is noise: buffers, and kept conversations that are longer than others.
const NOISE_MIB: f64 = 24.0;

/// Nobody waits longer for a whole answer.
const STUCK: Duration = Duration::from_secs(60);

/// One line of the table.
struct Line {
    what: &'static str,
    seen: String,
    allowed: String,
    holds: bool,
}

pub(crate) struct Verdict {
    lines: Vec<Line>,
    /// What bad clients did and heard, for readers.
    told: Vec<String>,
}

impl Verdict {
    pub(crate) fn of(notes: &Notes, board: &Value, seconds: u64) -> Verdict {
        let mut verdict = Verdict { lines: Vec::new(), told: Vec::new() };
        let good = &notes.good;
        let seen = format!("{} of {} tokens", good.answered, good.tokens);
        // One in five seconds: a machine that is busy with other work still does that.
        let fewest = seconds / 5;
        verdict.line("good clients answered", seen, format!("at least {fewest}"), good.answered >= fewest);
        let failures = format!("{} {}", good.failures.len(), good.failures.first().map_or("", String::as_str));
        verdict.line("good clients failed", failures, "0".into(), good.failures.is_empty());
        let slowest = format!("{:.1} s", good.slowest.as_secs_f64());
        verdict.line("slowest answer", slowest, format!("{} s", STUCK.as_secs()), good.slowest < STUCK);
        verdict.gap("gap, median", 0.5, notes, USUAL_MORE);
        verdict.gap("gap, 99th percentile", 0.99, notes, RARE_MORE);
        let untyped = format!("{} {}", notes.bad.untyped.len(), notes.bad.untyped.first().map_or("", String::as_str));
        verdict.line("untyped refusals", untyped, "0".into(), notes.bad.untyped.is_empty());
        let refusals: u64 = notes.bad.refusals.values().sum();
        verdict.line("typed refusals", refusals.to_string(), "some".into(), refusals > 0);
        verdict.memory(&notes.memory);
        verdict.board(board);
        verdict.told.extend(notes.bad.deeds.iter().map(|(deed, count)| format!("{count:6} x {deed}")));
        verdict.told.extend(notes.bad.refusals.iter().map(|(refusal, count)| format!("{count:6} x {refusal}")));
        verdict
    }

    pub(crate) fn passed(&self) -> bool {
        self.lines.iter().all(|line| line.holds)
    }

    fn line(&mut self, what: &'static str, seen: String, allowed: String, holds: bool) {
        self.lines.push(Line { what, seen, allowed, holds });
    }

    fn gap(&mut self, what: &'static str, share: f64, notes: &Notes, more: f64) {
        let (calm, stormy) = (percentile(&notes.calm, share), percentile(&notes.stormy, share));
        let allowed = calm.mul_f64(more) + TICK;
        let milliseconds = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
        let seen = format!("{} among bad, {} among good", milliseconds(stormy), milliseconds(calm));
        self.line(what, seen, milliseconds(allowed), stormy <= allowed && !notes.stormy.is_empty());
    }

    /// Growth over the second half, by the line that fits best.
    fn memory(&mut self, looks: &[(f64, usize)]) {
        let half = &looks[looks.len() / 2..];
        let (slope, deviation) = fit(half);
        let time = half.last().zip(half.first()).map_or(0.0, |(last, first)| last.0 - first.0);
        let grown = slope * time;
        let seen = format!(
            "{:.1} MiB now, {:+.2} MiB a minute in the second half ({grown:+.1} MiB, scatter {deviation:.1})",
            half.last().map_or(0.0, |look| mib(look.1)),
            slope * 60.0
        );
        self.line("memory of the worker", seen, format!("{NOISE_MIB:+} MiB"), grown <= NOISE_MIB.max(2.0 * deviation));
    }

    fn board(&mut self, board: &Value) {
        let count = |section: &str, field: &str| board[section][field].as_u64().unwrap_or(u64::MAX);
        let left = [
            count("server", "requests_inflight"),
            count("backpressure", "clients_connected"),
            count("backpressure", "queue_depth"),
            count("backpressure", "inflight_body_bytes"),
        ];
        self.line("left at the end", format!("{left:?}"), "nothing".into(), left == [0; 4]);
        let ends = ["requests_completed", "requests_failed", "requests_canceled", "requests_refused"];
        let ended: u64 = ends.iter().map(|end| count("serving", end)).fold(0, u64::saturating_add);
        let started = count("serving", "requests_started");
        self.line("requests begun and ended", format!("{started}, {ended}"), "equal".into(), started == ended);
        let faults = board["memory"]["census_faults"].as_u64();
        self.line("faults of the ledger", format!("{faults:?}"), "0".into(), faults == Some(0));
        self.told.push(format!("sheds {}", board["sheds"]));
        self.told.push(format!("serving {}", board["serving"]));
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.told {
            writeln!(f, "soak: {line}")?;
        }
        for Line { what, seen, allowed, holds } in &self.lines {
            let verdict = if *holds { "ok" } else { "FAILED" };
            writeln!(f, "soak: {what:<26} {verdict:<7} {seen}; allowed {allowed}")?;
        }
        Ok(())
    }
}

fn percentile(values: &[Duration], share: f64) -> Duration {
    let mut sorted = values.to_vec();
    sorted.sort();
    let index = (share * sorted.len() as f64) as usize;
    sorted.get(index.min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
}

fn mib(bytes: usize) -> f64 {
    bytes as f64 / (1 << 20) as f64
}

/// The slope in MiB a second of the line that fits best, and how far points lie from it.
fn fit(looks: &[(f64, usize)]) -> (f64, f64) {
    let count = looks.len().max(1) as f64;
    let (x, y) = looks.iter().fold((0.0, 0.0), |(x, y), look| (x + look.0 / count, y + mib(look.1) / count));
    let (mut xy, mut xx) = (0.0, 0.0);
    for look in looks {
        xy += (look.0 - x) * (mib(look.1) - y);
        xx += (look.0 - x).powi(2);
    }
    let slope = if xx > 0.0 { xy / xx } else { 0.0 };
    let off = looks.iter().map(|look| (mib(look.1) - y - slope * (look.0 - x)).powi(2)).sum::<f64>();
    (slope, (off / count).sqrt())
}
