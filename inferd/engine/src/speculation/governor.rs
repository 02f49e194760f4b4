//! Whether guesses pay: how often an answer's were right, against what further rows take.
//!
//! Guesses are made for those answers, and as many of them, with which the step yields most tokens a second. An answer
//! that is not among them rests, and tries a few guesses again later: what it says may have become easier to guess, and
//! the times that spoke against it may have been a busy machine's.

use super::costs::Costs;

/// How much one guess changes what is believed of its answer, and of all answers.
const ONE: f64 = 0.1;
const ONE_OF_ALL: f64 = 0.02;

/// What is believed of answers before there was a guess.
const HOPE: f64 = 0.7;

/// Tokens that an answer rests at first, and at most; the next rest is twice as long.
const REST: u32 = 32;
const REST_MOST: u32 = 512;

/// Steps with guesses after a rest, whatever is believed.
const TRIES: u32 = 4;

/// Without guesses a step must yield so much less, as a factor, for guesses to pay.
const WORTH: f64 = 1.02;

/// How likely a guess is right.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Trust(f64);

impl Trust {
    /// Of all answers, before there was one.
    pub(crate) fn usual() -> Trust {
        Trust(HOPE)
    }

    /// Of `guesses` guesses that were computed the first `right` were right; the one after them was wrong.
    pub(crate) fn learn(&mut self, guesses: usize, right: usize) {
        self.0 = learned(self.0, ONE, guesses, right);
    }

    /// The same, of all answers.
    pub(crate) fn learn_of_all(&mut self, guesses: usize, right: usize) {
        self.0 = learned(self.0, ONE_OF_ALL, guesses, right);
    }

    /// Tokens that so many guesses are expected to bring.
    fn tokens(self, guesses: usize) -> f64 {
        (1..=guesses).map(|nth| self.0.powi(nth as i32)).sum()
    }
}

fn learned(before: f64, share: f64, guesses: usize, right: usize) -> f64 {
    let after = (0..right).fold(before, |trust, _| trust + share * (1.0 - trust));
    if right < guesses { after - share * after } else { after }
}

/// How an answer stands with guesses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Standing {
    trust: Option<Trust>,
    mode: Mode,
    next_rest: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    /// Guesses are made while they pay.
    Open,
    /// None are made for so many tokens.
    Resting(u32),
    /// They are made in so many steps to come, to see.
    Trying(u32),
}

/// An answer that could have guesses in the next step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) index: usize,
    ahead: usize,
    trust: Trust,
    mode: Mode,
}

impl Default for Standing {
    fn default() -> Standing {
        Standing { trust: None, mode: Mode::Open, next_rest: REST }
    }
}

impl Standing {
    /// The answer's part in the next decision; a rest gets one token shorter.
    pub(crate) fn candidate(&mut self, index: usize, ahead: usize, usual: Trust) -> Candidate {
        match &mut self.mode {
            Mode::Resting(0) => self.mode = Mode::Trying(TRIES),
            Mode::Resting(left) => *left -= 1,
            Mode::Open | Mode::Trying(_) => {}
        }
        Candidate { index, ahead, trust: self.trust.unwrap_or(usual), mode: self.mode }
    }

    /// Guesses do not pay for it now. Says whether that is news.
    pub(crate) fn rest(&mut self) -> bool {
        if self.mode != Mode::Open {
            return false;
        }
        self.mode = Mode::Resting(self.next_rest);
        self.next_rest = (self.next_rest * 2).min(REST_MOST);
        true
    }

    /// Of `guesses` guesses that were computed the first `right` were right.
    pub(crate) fn learn(&mut self, usual: Trust, guesses: usize, right: usize) {
        let mut trust = self.trust.unwrap_or(usual);
        trust.learn(guesses, right);
        self.trust = Some(trust);
        self.mode = match self.mode {
            Mode::Trying(1) => Mode::Open,
            Mode::Trying(left) => Mode::Trying(left - 1),
            mode => mode,
        };
        if right == guesses && self.mode == Mode::Open {
            self.next_rest = REST;
        }
    }
}

/// For which answers to guess and how many tokens each, beside `rows` rows that are certain. No more than `room` guesses.
/// Nothing is decided before a step was measured.
pub(crate) fn choose(rows: usize, room: usize, candidates: &[Candidate], costs: &Costs) -> Option<Vec<(usize, usize)>> {
    costs.of_step(rows)?;
    let mut tried: Vec<&Candidate> = candidates.iter().filter(|one| matches!(one.mode, Mode::Trying(_))).collect();
    let mut open: Vec<&Candidate> = candidates.iter().filter(|one| one.mode == Mode::Open).collect();
    // The likeliest first; equals as they came.
    tried.truncate(room);
    open.sort_by(|one, other| other.trust.0.total_cmp(&one.trust.0));
    let first = tried.len();
    tried.append(&mut open);
    let most = candidates.iter().map(|one| one.ahead).max().unwrap_or(0);
    let mut best: (f64, Vec<(usize, usize)>) = (0.0, Vec::new());
    for ahead in 1..=most {
        for count in first..=tried.len() {
            let chosen: Vec<(&Candidate, usize)> =
                tried[..count].iter().map(|one| (*one, one.ahead.min(ahead))).collect();
            let guesses: usize = chosen.iter().map(|(_, ahead)| ahead).sum();
            if guesses > room {
                break;
            }
            let step = costs.of_step(rows + guesses)?;
            let passes = chosen.iter().map(|(_, ahead)| *ahead).max().unwrap_or(0);
            let seconds = step + passes as f64 * costs.of_draft(count);
            let tokens: f64 = rows as f64 + chosen.iter().map(|(one, ahead)| one.trust.tokens(*ahead)).sum::<f64>();
            let handicap = if guesses == 0 { WORTH } else { 1.0 };
            let rate = tokens / seconds.max(1e-9) * handicap;
            if rate > best.0 {
                best = (rate, chosen.iter().map(|(one, ahead)| (one.index, *ahead)).collect());
            }
        }
    }
    Some(best.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// A machine whose steps take `fixed` milliseconds and `row` more for every row; guessing takes `draft`.
    fn costs(fixed: f64, row: f64, draft: f64) -> Costs {
        let mut costs = Costs::default();
        let time = |milliseconds: f64| Duration::from_secs_f64(milliseconds / 1e3);
        for _ in 0..5 {
            (1..=16).for_each(|rows| costs.step(rows, time(fixed + row * rows as f64)));
            (1..=16).for_each(|answers| costs.draft(answers, 1, time(draft)));
        }
        costs
    }

    /// Answers at their beginnings, believed in so much.
    fn answers(trusts: &[f64], ahead: usize) -> Vec<Candidate> {
        let candidate = |(index, &trust)| Standing::default().candidate(index, ahead, Trust(trust));
        trusts.iter().enumerate().map(candidate).collect()
    }

    #[test]
    fn guesses_are_made_where_they_pay_and_only_there() {
        let cheap = costs(5.0, 1.0, 0.5);
        assert_eq!(choose(1, 7, &answers(&[0.9], 1), &cheap), Some(vec![(0, 1)]));
        // 1 / 6 against 1.2 / 7.5 tokens a millisecond.
        assert_eq!(choose(1, 7, &answers(&[0.2], 1), &cheap), Some(vec![]));
        // Rows that cost what they bring.
        assert_eq!(choose(1, 7, &answers(&[0.95], 1), &costs(0.0, 5.0, 0.5)), Some(vec![]));
    }

    #[test]
    fn more_is_guessed_ahead_the_surer_it_is() {
        let cheap = costs(10.0, 1.0, 0.1);
        assert_eq!(choose(1, 7, &answers(&[0.98], 3), &cheap), Some(vec![(0, 3)]));
        assert_eq!(choose(1, 7, &answers(&[0.35], 3), &cheap), Some(vec![(0, 1)]));
    }

    #[test]
    fn there_is_no_guess_beyond_the_room_and_the_likeliest_come_first() {
        let cheap = costs(10.0, 0.5, 0.1);
        assert_eq!(choose(3, 2, &answers(&[0.8, 0.3, 0.9], 1), &cheap), Some(vec![(2, 1), (0, 1)]));
        assert_eq!(choose(3, 0, &answers(&[0.8, 0.3, 0.9], 1), &cheap), Some(vec![]));
    }

    #[test]
    fn nothing_is_guessed_before_a_step_was_measured_and_then_it_is_tried() {
        let mut costs = Costs::default();
        assert_eq!(choose(1, 7, &answers(&[0.7], 1), &costs), None);
        (0..3).for_each(|_| costs.step(1, Duration::from_millis(6)));
        assert_eq!(choose(1, 7, &answers(&[0.7], 1), &costs), Some(vec![(0, 1)]));
    }

    /// Plays an answer of `tokens` tokens whose guesses are right as `right` says; returns how many were made and how often
    /// it came to rest.
    fn play(costs: &Costs, tokens: usize, mut right: impl FnMut(usize) -> bool) -> (usize, usize) {
        let (mut standing, mut usual) = (Standing::default(), Trust::usual());
        let (mut made, mut rests) = (0, 0);
        for token in 0..tokens {
            let candidate = standing.candidate(0, 1, usual);
            if choose(1, 7, &[candidate], costs).is_some_and(|choice| choice.is_empty()) {
                rests += usize::from(standing.rest());
                continue;
            }
            made += 1;
            let right = usize::from(right(token));
            usual.learn_of_all(1, right);
            standing.learn(usual, 1, right);
        }
        (made, rests)
    }

    #[test]
    fn an_answer_that_is_guessed_wrong_comes_to_rest_and_tries_again_later() {
        let costs = costs(5.0, 1.0, 0.5);
        let (made, rests) = play(&costs, 4_000, |_| false);
        // At most eight until it rests, then four after 32, 64, 128, 256, 512, 512 ... tokens.
        assert!((20..=80).contains(&made) && (8..=14).contains(&rests), "{made} guesses, {rests} rests");
        let (made, rests) = play(&costs, 4_000, |_| true);
        assert_eq!((made, rests), (4_000, 0));
        // What could not be guessed at first can be later.
        let (made, _) = play(&costs, 4_000, |token| token > 500);
        assert!(made > 2_500, "{made}");
    }

    #[test]
    fn a_guess_that_follows_a_wrong_one_says_nothing() {
        let mut trust = Trust(0.5);
        trust.learn(3, 0);
        assert!((trust.0 - 0.45).abs() < 1e-9);
        trust.learn(2, 2);
        assert!((trust.0 - (1.0 - 0.55 * 0.81)).abs() < 1e-9);
    }
}
