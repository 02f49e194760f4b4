//! Whether memory can be had for a request, and making room for it.

use crate::admit::{self, Choice};
use crate::scheduler::Scheduler;
use crate::{GenerateRequest, Refusal};
use ds4_banks::SaveReason;
use ds4_governor::{Verdict, most_tokens_within};
use ds4_units::{BankId, Bytes, Tokens};

/// What comes of asking for memory.
#[derive(Debug)]
pub(crate) enum Funded {
    /// It is promised, for this seat.
    Yes(Choice),
    /// Not now, but running requests will give back theirs.
    Later,
    /// Not as asked.
    Never(Refusal),
}

impl Scheduler {
    /// Tokens a request is charged for at first: its prompt and a usual answer.
    pub(crate) fn first_promise(&self, request: &GenerateRequest) -> Tokens {
        let prompt = request.prompt.tokens().len() as u32;
        let answer = request.max_tokens.min(self.options.charged_tokens);
        Tokens(prompt.saturating_add(answer.0)).min(self.model.info().context)
    }

    /// Asks for memory for a conversation of `promise` tokens. Kept conversations are given up for it, the least
    /// recently used first and the one it continues last.
    pub(crate) fn fund(&mut self, request: &GenerateRequest, promise: Tokens) -> Funded {
        loop {
            let (prompt, reuse) = (&request.prompt, !request.prompt_logprobs);
            let banks = self.options.banks;
            let choice = admit::choose(self.model.as_ref(), &self.running, &self.warm, banks, prompt, reuse);
            let price = self.model.price(promise);
            let continued = choice.continued().map_or(Bytes::ZERO, |bank| self.held(bank));
            let proposed = Bytes(self.promised().0 - continued.0).checked_add(price).unwrap_or(Bytes(u64::MAX));
            let quote = self.account.ask(proposed);
            match quote.verdict {
                Verdict::Admit => return Funded::Yes(choice),
                Verdict::RefuseLive | Verdict::RefuseClass if self.give_up_one(&choice) => continue,
                Verdict::RefuseLive | Verdict::RefuseClass | Verdict::RetryObservation if !self.running.is_empty() => {
                    return Funded::Later;
                }
                _ => {}
            }
            let budget = Bytes(price.0.saturating_sub(quote.deficit.0));
            let fits = most_tokens_within(budget, promise, |tokens| self.model.price(tokens));
            // An admitted quote returned above.
            let Some(refusal) = Refusal::of(&quote, fits) else { return Funded::Yes(choice) };
            return Funded::Never(refusal);
        }
    }

    /// Asks for memory for more of a running answer.
    pub(crate) fn can_lengthen(&mut self, index: usize, promise: Tokens) -> bool {
        loop {
            let running = &self.running[index];
            let others = self.promised().0 - self.promised_to(running.bank, running.promise()).0;
            let proposed = Bytes(others).checked_add(self.model.price(promise)).unwrap_or(Bytes(u64::MAX));
            if self.account.ask(proposed).verdict == Verdict::Admit {
                return true;
            }
            let Some(victim) = self.warm.least_recent(None) else { return false };
            self.give_up(victim);
        }
    }

    /// Enters what was promised and what is held now.
    pub(crate) fn enter_into_books(&mut self) {
        let banks = self.running.iter().map(|running| running.bank).chain(self.warm.iter().map(|warm| warm.bank));
        let resident = sum(banks.map(|bank| self.held(bank)));
        let promised = self.promised();
        self.account.publish(promised, resident);
    }

    /// Gives up a kept conversation, if there is one the choice does not continue.
    fn give_up_one(&mut self, choice: &Choice) -> bool {
        let copied = || choice.source().filter(|&bank| choice.continued().is_none() && self.warm.holds(bank));
        let Some(victim) = self.warm.least_recent(choice.source()).or_else(copied) else { return false };
        self.give_up(victim);
        true
    }

    /// Makes place for one more bank, the chosen one excepted.
    pub(crate) fn make_place(&mut self, spared: Option<BankId>) {
        if self.running.len() + self.warm.len() >= self.options.banks
            && let Some(victim) = self.warm.least_recent(spared)
        {
            self.close_kept(victim);
        }
    }

    /// Makes place and asks for memory for one more kept conversation.
    pub(crate) fn can_keep(&mut self, tokens: Tokens) -> bool {
        self.make_place(None);
        let full = self.running.len() + self.warm.len() >= self.options.banks;
        loop {
            let proposed = self.promised().checked_add(self.model.price(tokens)).unwrap_or(Bytes(u64::MAX));
            if self.account.ask(proposed).verdict == Verdict::Admit {
                return !full;
            }
            let Some(victim) = self.warm.least_recent(None) else { return false };
            self.give_up(victim);
        }
    }

    fn give_up(&mut self, bank: BankId) {
        self.counters.reclaimed_banks.add(1);
        self.close_kept(bank);
    }

    /// Saves a kept conversation, where conversations are saved, and frees its bank.
    fn close_kept(&mut self, bank: BankId) {
        if let Some(warm) = self.warm.take(bank) {
            self.save_before_it_goes(bank, &warm.record, SaveReason::Evict);
        }
        self.model.close_bank(bank);
        self.enter_into_books();
    }

    /// Bytes all conversations may come to hold: what running ones were promised, and what kept ones have.
    fn promised(&self) -> Bytes {
        let running = self.running.iter().map(|running| self.promised_to(running.bank, running.promise()));
        sum(running.chain(self.warm.iter().map(|warm| self.held(warm.bank))))
    }

    fn promised_to(&self, bank: BankId, promise: Tokens) -> Bytes {
        self.model.price(promise).max(self.held(bank))
    }

    fn held(&self, bank: BankId) -> Bytes {
        self.model.resident_bytes(bank).unwrap_or_default()
    }
}

fn sum(all: impl Iterator<Item = Bytes>) -> Bytes {
    Bytes(all.fold(0, |total, bytes| total.saturating_add(bytes.0)))
}
