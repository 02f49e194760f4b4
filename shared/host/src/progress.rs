//! Progress of long work: a bar when standard error is a terminal, log lines otherwise.

use crate::printable;
use ds4_units::Bytes;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tracing::info;

/// Log lines come at each tenth of the work, but not before this time has passed since the last one.
const LINE_INTERVAL_MIN: Duration = Duration::from_secs(1);
/// And at the latest after this time.
const LINE_INTERVAL_MAX: Duration = Duration::from_secs(10);

const BAR: &str = "{prefix} {wide_bar} {binary_bytes} of {binary_total_bytes} {binary_bytes_per_sec} {eta}";

/// All bars of the process, so that log lines are written between redraws and not across a bar.
static BARS: LazyLock<MultiProgress> = LazyLock::new(MultiProgress::new);

/// Runs `write`, which writes to standard error, with the bars out of the way.
pub(crate) fn beside_bars<R>(write: impl FnOnce() -> R) -> R {
    BARS.suspend(write)
}

/// The progress of one piece of work measured in bytes. Shared freely between threads; never blocks for long.
pub struct Progress {
    label: String,
    total: Bytes,
    display: Display,
}

enum Display {
    Bar(ProgressBar),
    Lines(Mutex<Lines>),
}

struct Lines {
    started: Instant,
    last: Instant,
    tenths: u64,
}

impl Progress {
    /// Shows work called `label` that will read or write `total` bytes.
    pub fn bytes(label: &str, total: Bytes) -> Progress {
        let label = printable(label).into_owned();
        let display = if std::io::stderr().is_terminal() {
            Display::Bar(BARS.add(bar(&label, total)))
        } else {
            let now = Instant::now();
            Display::Lines(Mutex::new(Lines { started: now, last: now, tenths: 0 }))
        };
        Progress { label, total, display }
    }

    /// Says that `done` bytes in all are done now.
    pub fn set(&self, done: Bytes) {
        match &self.display {
            Display::Bar(bar) => bar.set_position(done.0),
            Display::Lines(lines) => {
                let line = lock(lines).line_for(&self.label, done, self.total, Instant::now());
                if let Some(line) = line {
                    info!("{line}");
                }
            }
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Display::Bar(bar) = &self.display {
            bar.finish_and_clear();
        }
    }
}

impl Lines {
    /// The line to log when `done` bytes are done, if one is due.
    fn line_for(&mut self, label: &str, done: Bytes, total: Bytes, now: Instant) -> Option<String> {
        let tenths = if total.0 == 0 { 10 } else { (u128::from(done.0) * 10 / u128::from(total.0)) as u64 };
        let quiet = now.duration_since(self.last);
        if quiet < LINE_INTERVAL_MIN || (tenths <= self.tenths && quiet < LINE_INTERVAL_MAX) {
            return None;
        }
        self.tenths = self.tenths.max(tenths);
        self.last = now;
        let percent = if total.0 == 0 { 100.0 } else { done.0 as f64 * 100.0 / total.0 as f64 };
        let seconds = now.duration_since(self.started).as_secs_f64().max(1e-3);
        let rate = done.0 as f64 / seconds;
        let left = total.0.saturating_sub(done.0) as f64 / rate.max(1.0);
        Some(format!("{label} {percent:.0} % ({done} of {total}, {}/s, {left:.0} s left)", Bytes(rate as u64)))
    }
}

fn lock(lines: &Mutex<Lines>) -> MutexGuard<'_, Lines> {
    lines.lock().unwrap_or_else(PoisonError::into_inner)
}

fn bar(label: &str, total: Bytes) -> ProgressBar {
    // The template is a constant that a test parses.
    let style = ProgressStyle::with_template(BAR).unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(total.0).with_style(style).with_prefix(label.to_owned());
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_template_is_valid() {
        assert!(ProgressStyle::with_template(BAR).is_ok());
        bar("loading", Bytes::gib(1)).finish_and_clear();
    }

    #[test]
    fn a_line_comes_with_each_tenth_and_after_ten_quiet_seconds() {
        let start = Instant::now();
        let mut lines = Lines { started: start, last: start, tenths: 0 };
        let mut at =
            |done, after| lines.line_for("loading", Bytes(done), Bytes(100), start + Duration::from_secs(after));
        assert_eq!(at(9, 1), None);
        assert_eq!(at(10, 2).as_deref(), Some("loading 10 % (10 B of 100 B, 5 B/s, 18 s left)"));
        assert_eq!(at(20, 2), None, "work that flies by is not worth a line");
        assert_eq!(at(11, 3), None);
        assert!(at(11, 13).is_some());
        assert!(at(100, 14).unwrap().contains("100 %"));
    }

    #[test]
    fn no_work_is_all_done() {
        let start = Instant::now();
        let mut lines = Lines { started: start, last: start, tenths: 0 };
        let later = start + Duration::from_secs(2);
        assert!(lines.line_for("loading", Bytes(0), Bytes(0), later).unwrap().contains("100 %"));
    }
}
