//! How many prompt rows go into a step: measured, so that answers stay smooth on any machine.
//!
//! What a request gets does not depend on how its prompt is cut into steps, so times may decide here.

use std::time::Duration;

/// Fewest prompt rows of a step: a newcomer always gets on.
const ROWS_MIN: usize = 16;

/// Prompt rows of the first step beside an answer, when nothing was measured yet.
const ROWS_UNMEASURED: usize = 128;

/// Steps with fewer prompt rows say little about the price of a row.
const ROWS_TELLING: usize = 64;

/// Longest wait of an idle engine for requests that come with the first.
const GATHER_MAX: Duration = Duration::from_millis(10);

/// The share of its first step that a request may wait for others.
const GATHER_SHARE: u32 = 20;

/// Sets the number of prompt rows from the time that steps took.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Prompt rows while nobody decodes.
    most: usize,
    /// How long a step may take while somebody decodes.
    target: Duration,
    /// Seconds a prompt row took in the last steps in which nobody decoded.
    row: Option<f64>,
    /// Prompt rows beside answers.
    live: Option<usize>,
}

impl Pace {
    pub(crate) fn new(most: usize, target: Duration) -> Pace {
        Pace { most: most.max(1), target, row: None, live: None }
    }

    /// Prompt rows of the next step, in which so many rows are of answers. Together they are as many as memory was taken
    /// for at boot.
    pub(crate) fn rows(&self, decode_rows: usize) -> usize {
        if decode_rows == 0 {
            return self.most;
        }
        let most = self.most.saturating_sub(decode_rows).max(ROWS_MIN.min(self.most));
        self.live_rows().min(most)
    }

    /// Prompt rows beside answers, by what steps took.
    fn live_rows(&self) -> usize {
        let measured = || self.row.map(|row| (self.target.as_secs_f64() / row) as usize);
        self.within(self.live.or_else(measured).unwrap_or(ROWS_UNMEASURED))
    }

    /// A step took so long.
    pub(crate) fn took(&mut self, decode_rows: usize, prompt_rows: usize, time: Duration) {
        let seconds = time.as_secs_f64().max(1e-9);
        if decode_rows == 0 {
            if prompt_rows >= ROWS_TELLING {
                let row = seconds / prompt_rows as f64;
                self.row = Some(self.row.map_or(row, |before| (before + row) / 2.0));
            }
        } else if prompt_rows > 0 {
            // A single slow step, whatever slowed it, takes at most half away; a quick one adds at most as much again.
            let change = (self.target.as_secs_f64() / seconds).clamp(0.5, 2.0);
            if change < 1.0 || prompt_rows >= self.rows(decode_rows) {
                self.live = Some(self.within((prompt_rows as f64 * change) as usize));
            }
        }
    }

    /// How long a request with so many rows to compute may wait for others that are on their way: they share its first
    /// step then, instead of all waiting for it.
    pub(crate) fn patience(&self, prompt_rows: usize) -> Duration {
        let step = self.row.unwrap_or(0.0) * prompt_rows.min(self.most) as f64;
        (Duration::from_secs_f64(step) / GATHER_SHARE).min(GATHER_MAX)
    }

    fn within(&self, rows: usize) -> usize {
        rows.clamp(ROWS_MIN.min(self.most), self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: Duration = Duration::from_millis(80);

    /// A machine on which a step takes `fixed` milliseconds and every prompt row `row` more.
    fn settled(fixed: f64, row: f64) -> (usize, f64) {
        let mut pace = Pace::new(2048, TARGET);
        let step = |rows: usize| Duration::from_secs_f64((fixed + row * rows as f64) / 1e3);
        pace.took(0, 2048, step(2048));
        for _ in 0..40 {
            pace.took(4, pace.rows(4), step(pace.rows(4)));
        }
        (pace.rows(4), step(pace.rows(4)).as_secs_f64() * 1e3)
    }

    #[test]
    fn steps_beside_answers_settle_at_the_target_on_machines_of_any_speed() {
        for (fixed, row) in [(1.0, 0.4), (33.0, 0.2), (60.0, 0.3), (5.0, 2.0)] {
            let (rows, milliseconds) = settled(fixed, row);
            assert!((72.0..=82.0).contains(&milliseconds), "{fixed}+{row}: {rows} rows take {milliseconds} ms");
        }
    }

    #[test]
    fn a_machine_too_slow_or_too_quick_for_the_target_keeps_to_the_bounds() {
        assert_eq!(settled(200.0, 10.0).0, ROWS_MIN);
        assert_eq!(settled(0.1, 0.001).0, 2044, "with the four rows of answers as many as a step may have");
    }

    #[test]
    fn one_slow_step_is_forgotten_soon() {
        let mut pace = Pace::new(2048, TARGET);
        let step = |rows: usize| Duration::from_secs_f64(rows as f64 / 5e3);
        for _ in 0..20 {
            pace.took(1, pace.rows(1), step(pace.rows(1)));
        }
        let before = pace.rows(1);
        pace.took(1, before, Duration::from_secs(3));
        assert_eq!(pace.rows(1), before / 2);
        pace.took(1, pace.rows(1), step(pace.rows(1)));
        assert!(pace.rows(1) >= before - 1);
        // A step that had few rows to compute says nothing about more of them.
        pace.took(1, 3, Duration::from_millis(1));
        assert!(pace.rows(1) >= before - 1);
    }

    #[test]
    fn nobody_waits_long_for_company_and_without_need_not_at_all() {
        let mut pace = Pace::new(2048, TARGET);
        assert_eq!(pace.patience(2048), Duration::ZERO);
        pace.took(0, 1000, Duration::from_millis(200));
        assert_eq!(pace.patience(10), Duration::from_micros(100));
        assert_eq!(pace.patience(100_000), GATHER_MAX);
    }
}
