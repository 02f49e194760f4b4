//! Guessing ahead: the model's draft block guesses what an answer will say, the next step computes the guesses as further
//! rows, and those that are what would have been drawn anyway are taken.
//!
//! Tokens are drawn as always, from logits of the same rows with the same random numbers, masks and stop strings; a
//! guess only lets the row after it be computed before it is known to be needed. So an answer is the same with guesses and
//! without. Whether to guess is decided by what steps of so many rows take and by how often guesses were right: here, and
//! by nothing that an answer could depend on.

mod costs;
mod governor;
mod verify;

pub(crate) use governor::{Standing, Trust};

use crate::scheduler::Scheduler;
use costs::Costs;
use ds4_model::{DraftWish, Model};
use governor::Candidate;
use std::time::{Duration, Instant};

/// How to guess ahead.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpeculationOptions {
    /// Guesses for one answer in one step, at most; at least one.
    pub ahead: usize,
    /// A guess counts only where its logit leads the second best by so much.
    pub margin: f32,
}

/// What the engine knows about guessing.
pub(crate) struct Speculation {
    options: SpeculationOptions,
    costs: Costs,
    /// Of all answers: where a new one begins.
    pub(crate) usual: Trust,
}

impl Speculation {
    /// Nothing where the model does not guess.
    pub(crate) fn new(options: Option<SpeculationOptions>, model: &dyn Model) -> Option<Speculation> {
        let options = options.filter(|_| model.draft_rows() > 0)?;
        Some(Speculation { options, costs: Costs::default(), usual: Trust::usual() })
    }

    /// A step of answers alone took so long.
    pub(crate) fn took(&mut self, rows: usize, time: Duration) {
        self.costs.step(rows, time);
    }
}

impl Scheduler {
    /// Lets the draft block guess for the answers of which the next step has one certain row, where that pays.
    pub(crate) fn guess_ahead(&mut self) {
        // Requests that wait may join the next step with their prompts.
        let is_alone = self.running.iter().all(|running| running.is_decoding()) && !self.is_awaited();
        let Some(speculation) = self.speculation.as_mut().filter(|_| is_alone && !self.running.is_empty()) else {
            return;
        };
        let SpeculationOptions { ahead, margin } = speculation.options;
        let rows: usize = self.running.iter().map(|running| running.rows_left()).sum();
        let room = self.model.draft_rows().saturating_sub(rows);
        let mut candidates: Vec<Candidate> = Vec::new();
        for (index, running) in self.running.iter_mut().enumerate() {
            let ahead = running.guesses_wanted().min(ahead);
            if ahead > 0 {
                let usual = speculation.usual;
                candidates.push(running.standing.candidate(index, ahead, usual));
            }
        }
        let Some(choice) = governor::choose(rows, room, &candidates, &speculation.costs) else { return };
        for candidate in &candidates {
            let is_chosen = choice.iter().any(|(index, _)| *index == candidate.index);
            // Who had no room may ask again at once.
            if !is_chosen && room > 0 && self.running[candidate.index].standing.rest() {
                self.counters.guesses_quenched.add(1);
            }
        }
        let wishes: Vec<DraftWish> = choice
            .iter()
            .map(|&(index, count)| {
                let (bank, next) = self.running[index].frontier_token();
                DraftWish { bank, next, count, margin }
            })
            .collect();
        if wishes.is_empty() {
            return;
        }
        let began = Instant::now();
        // Without guesses the next step has fewer rows; if the device failed, it will say so.
        let Ok(guesses) = self.model.draft(&wishes) else { return };
        let passes = wishes.iter().map(|wish| wish.count).max().unwrap_or(1);
        speculation.costs.draft(wishes.len(), passes, began.elapsed());
        for (&(index, _), guesses) in choice.iter().zip(guesses) {
            self.running[index].guess(guesses);
        }
    }

    /// Whether a step with the guesses there are has more rows than one with guesses may have. Then there are none.
    pub(crate) fn drop_guesses_beyond(&mut self, rows: usize) -> bool {
        if rows <= self.model.draft_rows() || self.running.iter().all(|running| running.guesses() == 0) {
            return false;
        }
        self.running.iter_mut().for_each(|running| running.guess(Vec::new()));
        true
    }
}
