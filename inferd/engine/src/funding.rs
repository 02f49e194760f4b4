//! Whether memory can be had for a request, and making room for it.

use crate::admit::{self, Choice};
use crate::reclaim::{self, Victim};
use crate::scheduler::Scheduler;
use crate::{GenerateRequest, Refusal};
use ds4_banks::SaveReason;
use ds4_governor::{Quote, Verdict, most_tokens_within};
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

    /// Asks for memory for a conversation of `promise` tokens. Kept conversations are given up for it, the one it
    /// continues last, and none in vain.
    pub(crate) fn fund(&mut self, request: &GenerateRequest, promise: Tokens) -> Funded {
        let (prompt, reuse) = (&request.prompt, !request.prompt_logprobs);
        let banks = self.options.banks;
        let choice = admit::choose(self.model.as_ref(), &self.running, &self.warm, banks, prompt, reuse);
        // A copy costs more than going on in place, and that more than nothing to begin with.
        let mut quote = None;
        for choice in [Some(choice), choice.in_its_bank(&self.warm), Some(choice.without())].into_iter().flatten() {
            let asked = self.promise_for(&choice, promise);
            if asked.verdict == Verdict::Admit {
                return Funded::Yes(choice);
            }
            quote = Some(asked);
        }
        let Some(quote) = quote else { return Funded::Later };
        let mendable = matches!(quote.verdict, Verdict::RefuseLive | Verdict::RefuseClass | Verdict::RetryObservation);
        if mendable && !self.running.is_empty() {
            return Funded::Later;
        }
        let price = self.model.price(promise);
        let deficit = self.deficit_with_nothing_kept(&quote);
        let fits =
            most_tokens_within(Bytes(price.0.saturating_sub(deficit.0)), promise, |tokens| self.model.price(tokens));
        match Refusal::of(&quote, fits) {
            Some(refusal) => Funded::Never(Refusal { deficit, ..refusal }),
            None => Funded::Later,
        }
    }

    /// Makes the promise for a seat, giving up kept conversations where that is enough.
    fn promise_for(&mut self, choice: &Choice, promise: Tokens) -> Quote {
        let continued = choice.continued().map_or(Bytes::ZERO, |bank| self.held(bank));
        let price = self.model.price(promise).max(continued);
        self.ask_for(price, continued, choice.source())
    }

    /// Asks for `price` bytes more than is promised, of which `counted` are counted there already. `spared` is not given
    /// up for it.
    fn ask_for(&mut self, price: Bytes, counted: Bytes, spared: Option<BankId>) -> Quote {
        let proposed = |promised: Bytes| Bytes(promised.0 - counted.0).checked_add(price).unwrap_or(Bytes(u64::MAX));
        let quote = self.account.ask(proposed(self.promised()));
        if !matches!(quote.verdict, Verdict::RefuseLive | Verdict::RefuseClass) {
            return quote;
        }
        let victims = self.warm.victims(spared).map(|warm| Victim { bank: warm.bank, brings: self.held(warm.bank) });
        let Some(plan) = reclaim::plan(quote.deficit, victims) else { return quote };
        plan.into_iter().for_each(|victim| self.give_up(victim));
        self.account.ask(proposed(self.promised()))
    }

    /// What is missing even when every kept conversation is given up.
    fn deficit_with_nothing_kept(&self, quote: &Quote) -> Bytes {
        let kept = sum(self.warm.iter().map(|warm| self.held(warm.bank)));
        Bytes(quote.deficit.0.saturating_sub(kept.0))
    }

    /// Asks for memory for more of a running answer.
    pub(crate) fn can_lengthen(&mut self, index: usize, promise: Tokens) -> bool {
        let running = &self.running[index];
        let counted = self.promised_to(running.bank, running.promise());
        let price = self.model.price(promise).max(counted);
        self.ask_for(price, counted, None).verdict == Verdict::Admit
    }

    /// Enters what was promised and what is held now.
    pub(crate) fn enter_into_books(&mut self) {
        let running = sum(self.running.iter().map(|running| self.held(running.bank)));
        let resident = Bytes(running.0.saturating_add(self.warm.held().0));
        let promised = self.promised();
        self.account.publish(promised, resident);
        self.counters.running.set(self.running.len());
        self.counters.warm.set(self.warm.len());
        self.account.keep_free_for_restores(sum(self.restoring.iter().map(|restoring| restoring.price)));
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
        !full && self.ask_for(self.model.price(tokens), Bytes::ZERO, None).verdict == Verdict::Admit
    }

    /// Gives up a kept conversation for its memory.
    pub(crate) fn give_up(&mut self, bank: BankId) {
        self.counters.reclaimed_banks.add(1);
        self.counters.reclaimed_bytes.add(self.held(bank).0 as usize);
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
        Bytes(sum(running).0.saturating_add(self.warm.held().0))
    }

    fn promised_to(&self, bank: BankId, promise: Tokens) -> Bytes {
        self.model.price(promise).max(self.held(bank))
    }

    pub(crate) fn held(&self, bank: BankId) -> Bytes {
        self.model.resident_bytes(bank).unwrap_or_default()
    }
}

fn sum(all: impl Iterator<Item = Bytes>) -> Bytes {
    Bytes(all.fold(0, |total, bytes| total.saturating_add(bytes.0)))
}
