//! When those that run will have ended, by how long steps and answers took so far: what a client is told that is refused
//! and may come again. Nothing about an answer depends on it.

use std::time::Duration;

/// The part of the last one in what is usual.
const NEW: f64 = 0.2;

/// What a request has yet to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ToDo {
    /// Prompt tokens to compute.
    pub(crate) prompt: usize,
    /// Answer tokens it has.
    pub(crate) answered: usize,
    /// Answer tokens it may have beside these.
    pub(crate) answer: usize,
}

/// What is usual here; nothing while it was not seen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Foresight {
    /// Seconds of a step with answers in it.
    step: Option<f64>,
    /// Seconds of a prompt token.
    row: Option<f64>,
    /// Tokens of an answer.
    answer: Option<f64>,
}

impl Foresight {
    /// A step took so long, with answers in it or not, and so many prompt tokens.
    pub(crate) fn took(&mut self, answers: bool, prompt: usize, time: Duration) {
        let seconds = time.as_secs_f64();
        if answers {
            mix(&mut self.step, seconds);
        }
        if prompt > 0 {
            mix(&mut self.row, seconds / prompt as f64);
        }
    }

    /// An answer has ended with so many tokens.
    pub(crate) fn answered(&mut self, tokens: usize) {
        mix(&mut self.answer, tokens as f64);
    }

    /// How long a request will still take: an answer of the usual length, or of as many tokens as it may have. One that is
    /// longer than usual already ends who knows when, at the latest when it must.
    pub(crate) fn until_end(&self, left: ToDo) -> Option<Duration> {
        let usual = self.answer.map(|usual| usual - left.answered as f64).filter(|&more| more > 0.0);
        let answer = usual.unwrap_or(f64::INFINITY).min(left.answer as f64).ceil();
        let times = [(left.prompt as f64, self.row), (answer, self.step)];
        let mut seconds = 0.0;
        for (count, each) in times.into_iter().filter(|&(count, _)| count > 0.0) {
            seconds += count * each?;
        }
        Duration::try_from_secs_f64(seconds).ok()
    }
}

fn mix(usual: &mut Option<f64>, new: f64) {
    *usual = Some(usual.map_or(new, |before| before * (1.0 - NEW) + new * NEW));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_foreseen_by_what_is_left_of_the_prompt_and_of_a_usual_answer() {
        let mut seen = Foresight::default();
        let left = |prompt, answered, answer| ToDo { prompt, answered, answer };
        assert_eq!(seen.until_end(left(100, 0, 10)), None);
        seen.took(false, 1000, Duration::from_secs(2));
        assert_eq!(seen.until_end(left(100, 0, 10)), None, "no answer was seen yet");
        seen.took(true, 0, Duration::from_millis(50));
        let until = |left| seen.until_end(left).map(|time| time.as_millis());
        assert_eq!([until(left(100, 0, 10)), until(left(0, 7, 10))], [Some(700), Some(500)]);
        seen.answered(200);
        let until = |left| seen.until_end(left).map(|time| time.as_millis());
        // Few answers use all they may.
        assert_eq!(until(left(0, 0, 30_000)), Some(10_000));
        assert_eq!(until(left(0, 150, 29_850)), Some(2_500));
        assert_eq!(until(left(0, 150, 20)), Some(1_000));
        // This one is longer than usual.
        assert_eq!(until(left(0, 250, 400)), Some(20_000));
    }

    #[test]
    fn what_is_usual_follows_what_comes() {
        let mut seen = Foresight::default();
        for _ in 0..100 {
            seen.took(true, 0, Duration::from_millis(10));
        }
        (0..30).for_each(|_| seen.took(true, 0, Duration::from_millis(40)));
        let time = seen.until_end(ToDo { prompt: 0, answered: 0, answer: 100 }).unwrap();
        assert!((3.9..4.0).contains(&time.as_secs_f64()), "{time:?}");
    }
}
