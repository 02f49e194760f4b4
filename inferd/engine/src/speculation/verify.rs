//! Which guesses are what was drawn.

use crate::RequestFault;
use crate::running::{End, Outcome, Running};
use crate::sampler::NotFinite;
use crate::scheduler::Scheduler;
use ds4_model::{StepError, StepLogits, Tokenizer};
use ds4_units::{BankId, TokenId};

impl Scheduler {
    /// Draws tokens from the rows of a segment with guesses, as long as guesses are what was drawn, and lets the bank keep
    /// those. An end of the answer ends that too.
    pub(crate) fn verify(
        &mut self,
        index: usize,
        rows: usize,
        logits: &StepLogits,
        segment: usize,
        ended: &mut Vec<(usize, End)>,
    ) {
        let running = &mut self.running[index];
        let (guesses, is_greedy) = running.take_guesses();
        running.advance(rows - guesses.len());
        let stops = self.codec.stop_tokens();
        let (right, end) = if is_greedy {
            let drawn = logits.all_drawn(segment).iter().map(|token| token.map(Outcome::Likeliest));
            walk(running, &guesses, drawn, stops, &self.tokenizer)
        } else {
            let rows = logits.of_segment(segment).map(|row| Some(Outcome::Logits(row)));
            walk(running, &guesses, rows, stops, &self.tokenizer)
        };
        let bank = running.bank;
        self.counters.guesses_right.add(right);
        self.counters.decoded.add(right);
        if let Some(speculation) = &mut self.speculation {
            // An answer that ended with a right guess leaves the ones after it untested.
            let tested = if end.is_some() { right } else { guesses.len() };
            speculation.usual.learn_of_all(tested, right);
            running.standing.learn(speculation.usual, tested, right);
            running.count_guesses(guesses.len(), right);
        }
        ended.extend(end.map(|end| (index, end)));
        self.taken.push((index, bank, right));
    }

    /// Makes banks keep the guesses that were right. Comes after the rows of a step were looked at.
    pub(crate) fn accept_taken(&mut self, ended: &mut Vec<(usize, End)>) {
        if self.taken.is_empty() {
            return;
        }
        let taken = std::mem::take(&mut self.taken);
        let accepted: Vec<(BankId, usize)> = taken.iter().map(|&(_, bank, right)| (bank, right)).collect();
        if let Err(error) = self.model.accept(&accepted) {
            self.counters.step_faults.add(1);
            for (index, bank, _) in taken {
                let holds = self.model.frontier(bank).map_or(0, |tokens| tokens.index());
                if holds != self.running[index].computed() {
                    ended.retain(|&(other, _)| other != index);
                    ended.push((index, End::Fault(RequestFault::Step(error.to_string()))));
                }
            }
            self.note_lost(&error);
            return;
        }
        // The draft block writes to banks next.
        self.hand_over();
        for (index, _, _) in taken {
            self.save_if_due(index);
        }
    }

    fn note_lost(&mut self, error: &StepError) {
        self.device_is_lost |= matches!(error, StepError::Device { lost: true, .. });
    }
}

/// Continues the answer row by row. Returns how many guesses were right, and the end if it came.
fn walk<'a>(
    running: &mut Running,
    guesses: &[TokenId],
    outcomes: impl Iterator<Item = Option<Outcome<'a>>>,
    stops: &[TokenId],
    tokenizer: &Tokenizer,
) -> (usize, Option<End>) {
    let mut right = 0;
    for outcome in outcomes {
        if outcome.is_none() {
            return (right, Some(End::Fault(RequestFault::Step(NotFinite.to_string()))));
        }
        if let Err(end) = running.continue_with(outcome, stops, tokenizer) {
            return (right, Some(end));
        }
        if guesses.get(right).is_none_or(|&guess| running.next_token() != Some(guess)) {
            break;
        }
        running.advance(1);
        right += 1;
    }
    (right, None)
}
