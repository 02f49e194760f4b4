//! What steps take by how many rows they have, as measured.

use std::time::Duration;

/// Steps of more rows are not told apart.
const ROWS_MOST: usize = 64;

/// Times of one kind of step that are not believed: a device prepares what it will repeat.
const WARMING: u32 = 2;

/// How much a time that is shorter than the usual one changes it, and how much a longer one does, which may have been
/// held up by something else.
const SHORTER: f64 = 0.5;
const LONGER: f64 = 0.1;

/// Of a longer time so much is believed at most, in times the usual one.
const LONGER_MOST: f64 = 2.0;

/// The usual time of one kind of step.
#[derive(Clone, Copy, Debug, Default)]
struct Usual {
    seen: u32,
    seconds: f64,
}

impl Usual {
    fn took(&mut self, seconds: f64) {
        self.seen = self.seen.saturating_add(1);
        if self.seen <= WARMING {
            return;
        }
        if self.seen == WARMING + 1 {
            self.seconds = seconds;
            return;
        }
        let share = if seconds < self.seconds { SHORTER } else { LONGER };
        self.seconds += share * (seconds.min(self.seconds * LONGER_MOST) - self.seconds);
    }

    fn seconds(self) -> Option<f64> {
        (self.seen > WARMING).then_some(self.seconds)
    }
}

/// Times of steps without prompt rows, and of the draft block.
#[derive(Debug)]
pub(crate) struct Costs {
    steps: [Usual; ROWS_MOST + 1],
    drafts: [Usual; ROWS_MOST + 1],
}

impl Default for Costs {
    fn default() -> Costs {
        Costs { steps: [Usual::default(); ROWS_MOST + 1], drafts: [Usual::default(); ROWS_MOST + 1] }
    }
}

impl Costs {
    /// A step of so many rows took so long.
    pub(crate) fn step(&mut self, rows: usize, time: Duration) {
        self.steps[rows.min(ROWS_MOST)].took(time.as_secs_f64());
    }

    /// Guessing for so many answers took so long, in so many passes.
    pub(crate) fn draft(&mut self, answers: usize, passes: usize, time: Duration) {
        self.drafts[answers.min(ROWS_MOST)].took(time.as_secs_f64() / passes.max(1) as f64);
    }

    /// Seconds of a step of so many rows: as much as the next smaller one that was measured while it was not measured
    /// itself, so that it is tried.
    pub(crate) fn of_step(&self, rows: usize) -> Option<f64> {
        let known = self.steps[..=rows.min(ROWS_MOST)].iter().rev();
        known.into_iter().find_map(|usual| usual.seconds())
    }

    /// Seconds of one pass of the draft block for so many answers.
    pub(crate) fn of_draft(&self, answers: usize) -> f64 {
        self.drafts[answers.min(ROWS_MOST)].seconds().unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_times_are_not_believed_and_a_slow_one_changes_little() {
        let mut costs = Costs::default();
        for milliseconds in [90, 50, 10] {
            costs.step(2, Duration::from_millis(milliseconds));
        }
        assert_eq!(costs.of_step(2), Some(0.01));
        costs.step(2, Duration::from_secs(3));
        assert!(costs.of_step(2).unwrap() < 0.0111);
        costs.step(2, Duration::from_millis(6));
        assert!(costs.of_step(2).unwrap() < 0.009);
    }

    #[test]
    fn what_was_not_measured_counts_as_the_next_smaller() {
        let mut costs = Costs::default();
        assert_eq!(costs.of_step(4), None);
        (0..3).for_each(|_| costs.step(1, Duration::from_millis(6)));
        assert_eq!(costs.of_step(4), Some(0.006));
        assert_eq!(costs.of_step(1_000), Some(0.006));
        assert_eq!(costs.of_draft(1), 0.0);
    }
}
