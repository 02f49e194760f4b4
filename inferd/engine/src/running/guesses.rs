//! Guesses at what an answer says next, until the step that computes them.

use super::Running;
use ds4_model::LogitsWanted;
use ds4_units::{BankId, TokenId};

impl Running {
    /// How many guesses could be of use in the next step; none unless it has one certain row.
    pub(crate) fn guesses_wanted(&self) -> usize {
        let tokens = self.record.tokens().len();
        if !self.is_decoding() || self.rows_left() != 1 {
            return 0;
        }
        // The certain row gives one token. What was promised is not exceeded: a longer promise comes when it must.
        let room = self.promise.index().min(self.context).saturating_sub(tokens);
        room.min((self.tokens_left as usize).saturating_sub(1))
    }

    /// The bank and the token that it will hold next.
    pub(crate) fn frontier_token(&self) -> (BankId, TokenId) {
        (self.bank, self.record.tokens()[self.computed])
    }

    /// Computes these guesses after what is left of the record; none takes those back that there are.
    pub(crate) fn guess(&mut self, guesses: Vec<TokenId>) {
        self.guesses = guesses.len();
        self.ahead.clear();
        if self.guesses > 0 {
            self.ahead.extend_from_slice(&self.record.tokens()[self.computed..]);
            self.ahead.extend(guesses);
        }
    }

    /// Guesses in the next step.
    pub(crate) fn guesses(&self) -> usize {
        self.guesses
    }

    /// The guesses that were computed, and whether likeliest tokens came back instead of logits.
    pub(crate) fn take_guesses(&mut self) -> (Vec<TokenId>, bool) {
        let is_greedy = self.segment(self.ahead.len()).logits == LogitsWanted::Greedy;
        let guesses = self.ahead.split_off(self.ahead.len() - self.guesses);
        self.guess(Vec::new());
        (guesses, is_greedy)
    }

    /// The first token that is not in the bank.
    pub(crate) fn next_token(&self) -> Option<TokenId> {
        self.record.tokens().get(self.computed).copied()
    }

    /// Guesses were computed, of which so many were right.
    pub(crate) fn count_guesses(&mut self, computed: usize, right: usize) {
        self.guessed.0 += computed as u32;
        self.guessed.1 += right as u32;
    }
}
