//! Whether memory can be had for a request, and making room for it.

use crate::admit::{self, Choice, Wish};
use crate::limits::BESIDE_MAX;
use crate::reclaim::{self, Victim};
use crate::restore::Restoring;
use crate::scheduler::{Scheduler, Waiting};
use crate::warm::Graces;
use crate::{GenerateRequest, Keep, Refusal};
use ds4_banks::SaveReason;
use ds4_governor::{Quote, Verdict, most_tokens_within};
use ds4_model::PromptRecord;
use ds4_units::{BankId, Bytes, Tokens};
use std::time::Duration;

/// What comes of asking for a bank and for memory.
#[derive(Debug)]
pub(crate) enum Funded {
    /// It is promised, for this seat.
    Yes(Choice),
    /// Not now: what it needs is kept a while for others, who may come any time.
    Held,
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

    /// How a request looks for its bank. Who has waited as long as a bank is kept for others waits no longer.
    pub(crate) fn wish<'a>(&self, waiting: &'a Waiting) -> Wish<'a> {
        let now = self.watch.now();
        let waited = waiting.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        let graces = if waited < self.options.grace { Graces::At(now) } else { Graces::Ignored };
        let request = &waiting.request;
        Wish { prompt: &request.prompt, reuse: !request.prompt_logprobs, keep: request.keep, graces }
    }

    /// Chooses a seat for a wish.
    pub(crate) fn choose(&self, wish: Wish<'_>) -> Choice {
        admit::choose(self.model.as_ref(), &self.running, &self.warm, self.options.banks, wish)
    }

    /// Asks for a bank and memory for a conversation of `promise` tokens. Kept conversations are given up for it, the one
    /// it continues last, none in vain, and none that is waited for.
    pub(crate) fn fund(&mut self, waiting: &Waiting, promise: Tokens) -> Funded {
        let wish = self.wish(waiting);
        let choice = self.choose(wish);
        if !self.has_place(&choice, wish) {
            return Funded::Held;
        }
        // A copy costs more than going on in place, and that more than nothing to begin with.
        let mut quote = None;
        let in_place = choice.in_its_bank(&self.warm, wish);
        for choice in [Some(choice), in_place, Some(choice.without())].into_iter().flatten() {
            let asked = self.promise_for(&choice, wish, promise);
            if asked.verdict == Verdict::Admit {
                return Funded::Yes(choice);
            }
            quote = Some(asked);
        }
        let Some(quote) = quote else { return Funded::Later };
        let mendable = matches!(quote.verdict, Verdict::RefuseLive | Verdict::RefuseClass | Verdict::RetryObservation);
        let alone = self.deficit_alone(&quote);
        let in_vain = alone > Bytes::ZERO && self.restoring.is_empty();
        let deficit = if in_vain { alone } else { self.deficit_with_nothing_kept(&quote) };
        if mendable && !in_vain {
            // What runs gives its memory back, and so does what is read for a request that then leaves or is refused.
            let others = !self.running.is_empty() || !self.restoring.is_empty();
            if self.warm.has_graced(wish.graces) && (deficit == Bytes::ZERO || others) {
                return Funded::Held;
            }
            if others {
                // What a request that nobody goes on from may not have is not kept from those behind it, for a while.
                let passes = wish.keep == Keep::Nothing && matches!(wish.graces, Graces::At(_));
                return if passes { Funded::Held } else { Funded::Later };
            }
        }
        let price = self.model.price(promise);
        let fits =
            most_tokens_within(Bytes(price.0.saturating_sub(deficit.0)), promise, |tokens| self.model.price(tokens));
        let quote = if mendable { self.account.beyond_plan(price).unwrap_or(quote) } else { quote };
        match Refusal::of(&quote, fits) {
            Some(refusal) => Funded::Never(Refusal { deficit, ..refusal }),
            None => Funded::Later,
        }
    }

    /// Makes the promise for a seat, giving up kept conversations where that is enough.
    fn promise_for(&mut self, choice: &Choice, wish: Wish<'_>, promise: Tokens) -> Quote {
        let continued = choice.continued().map_or(Bytes::ZERO, |bank| self.held(bank));
        let price = self.model.price(promise).max(continued);
        // What nobody goes on from waits for running ones first.
        let takes = wish.keep != Keep::Nothing || self.running.is_empty();
        self.ask_for(price, continued, choice.source(), takes.then_some(wish.graces))
    }

    /// Asks for `price` bytes more than is promised, of which `counted` are counted there already. `spared` is not given
    /// up for it, and without `graces` nothing is.
    fn ask_for(&mut self, price: Bytes, counted: Bytes, spared: Option<BankId>, graces: Option<Graces>) -> Quote {
        let proposed = |promised: Bytes| Bytes(promised.0 - counted.0).checked_add(price).unwrap_or(Bytes(u64::MAX));
        let quote = self.account.ask(proposed(self.promised()));
        let Some(victims) = self.victims_for(&quote, spared, graces).filter(|victims| !victims.is_empty()) else {
            return quote;
        };
        victims.into_iter().for_each(|victim| self.give_up(victim));
        self.account.ask(proposed(self.promised()))
    }

    /// The kept conversations that make room for what was asked: none where there is room, `None` where all of them are
    /// not enough, or may not go for it.
    fn victims_for(&self, quote: &Quote, spared: Option<BankId>, graces: Option<Graces>) -> Option<Vec<BankId>> {
        match quote.verdict {
            Verdict::Admit => Some(Vec::new()),
            Verdict::RefuseLive | Verdict::RefuseClass => {
                let victims = self.warm.victims(spared, graces?);
                reclaim::plan(
                    quote.deficit,
                    victims.map(|warm| Victim { bank: warm.bank, brings: self.held(warm.bank) }),
                )
            }
            _ => None,
        }
    }

    /// What is missing even when every kept conversation is given up.
    fn deficit_with_nothing_kept(&self, quote: &Quote) -> Bytes {
        let kept = sum(self.warm.iter().map(|warm| self.held(warm.bank)));
        Bytes(quote.deficit.0.saturating_sub(kept.0))
    }

    /// What is missing even when every other conversation has given back all it has and was promised: waiting for them
    /// is in vain.
    fn deficit_alone(&self, quote: &Quote) -> Bytes {
        Bytes(quote.deficit.0.saturating_sub(self.promised().0))
    }

    /// Asks for memory for more of a running answer.
    pub(crate) fn can_lengthen(&mut self, index: usize, promise: Tokens) -> bool {
        let running = &self.running[index];
        let counted = self.promised_to(running.bank, running.promise());
        let price = self.model.price(promise).max(counted);
        // An answer that somebody reads comes before one that somebody may go on from.
        [Graces::At(self.watch.now()), Graces::Ignored]
            .into_iter()
            .any(|graces| self.ask_for(price, counted, None, Some(graces)).verdict == Verdict::Admit)
    }

    /// The kept conversation to give up first when one must go; those that are waited for go last.
    pub(crate) fn oldest_kept(&self) -> Option<BankId> {
        let now = Graces::At(self.watch.now());
        self.warm.least_recent(None, now).or_else(|| self.warm.least_recent(None, Graces::Ignored))
    }

    /// Enters what was promised and what is held now.
    pub(crate) fn enter_into_books(&mut self) {
        let running = sum(self.running.iter().map(|running| self.held(running.bank)));
        let filling = sum(self.restoring.iter().filter_map(Restoring::bank).map(|bank| self.held(bank)));
        let resident = sum([running, self.warm.held(), filling].into_iter());
        let promised = self.promised();
        self.account.publish(promised, resident);
        self.account.publish_beside(&self.model.device_memory(), self.model.device_memory_to_come());
        self.tally(resident);
        self.account.keep_free_for_restores(sum(self.restoring.iter().map(Restoring::reserved)));
    }

    /// Whether another bank may be opened for a choice: a free one, that of a conversation which makes way, or one
    /// beside those that may not be given up.
    fn has_place(&self, choice: &Choice, wish: Wish<'_>) -> bool {
        let makes_way = || wish.keep == Keep::Turn && self.warm.least_recent(choice.source(), wish.graces).is_some();
        choice.continued().is_some() || self.banks() < self.options.banks + BESIDE_MAX || makes_way()
    }

    /// Banks that are in use.
    pub(crate) fn banks(&self) -> usize {
        self.running.len() + self.warm.len() + self.restoring.iter().filter(|restoring| restoring.is_filling()).count()
    }

    /// Makes place for one more bank by giving up a conversation, the chosen one excepted. Without one that may go,
    /// the new bank is one beside.
    pub(crate) fn make_place(&mut self, spared: Option<BankId>, wish: Wish<'_>) {
        if wish.keep == Keep::Turn
            && self.banks() >= self.options.banks
            && let Some(victim) = self.warm.least_recent(spared, wish.graces)
        {
            self.close_kept(victim);
        }
    }

    /// Makes place and asks for memory for one more kept conversation, which `wish` continues.
    pub(crate) fn can_keep(&mut self, tokens: Tokens, wish: Wish<'_>) -> bool {
        self.make_place(None, wish);
        let turn = wish.keep == Keep::Turn;
        let full = self.banks() >= self.options.banks + if turn { BESIDE_MAX } else { 0 };
        let graces = turn.then_some(wish.graces);
        !full && self.ask_for(self.model.price(tokens), Bytes::ZERO, None, graces).verdict == Verdict::Admit
    }

    /// Whether [`Scheduler::can_keep`] would say yes to something of this price. Gives up nothing.
    pub(crate) fn could_keep(&mut self, price: Bytes, wish: Wish<'_>) -> bool {
        let turn = wish.keep == Keep::Turn;
        let graces = turn.then_some(wish.graces);
        let makes_way = graces.is_some_and(|graces| self.warm.least_recent(None, graces).is_some());
        let beside = if turn { BESIDE_MAX } else { 0 };
        let quote = self.account.ask(self.promised().checked_add(price).unwrap_or(Bytes(u64::MAX)));
        (makes_way || self.banks() < self.options.banks + beside) && self.victims_for(&quote, None, graces).is_some()
    }

    /// Gives up kept conversations beyond the number asked for, as soon as they may go.
    pub(crate) fn give_back_beside(&mut self) {
        while self.warm.len() > self.options.banks
            && let Some(victim) = self.warm.least_recent(None, Graces::At(self.watch.now()))
        {
            self.close_kept(victim);
        }
    }

    /// Gives up a kept conversation for its memory.
    pub(crate) fn give_up(&mut self, bank: BankId) {
        self.counters.reclaimed_banks.add(1);
        self.counters.reclaimed_bytes.add(self.held(bank).0 as usize);
        self.close_kept(bank);
    }

    /// How many of a prompt's tokens a conversation held that was given up lately, if that is more than any has now.
    pub(crate) fn driven_out(&mut self, prompt: &PromptRecord) -> Option<Tokens> {
        let held = self.ghosts.held(prompt.tokens(), self.watch.now());
        let running = self.running.iter().map(|running| running.record());
        let warm = self.warm.iter().map(|warm| (&warm.record, held));
        let mut others = running.chain(warm);
        let is_held = others.any(|(record, there)| record.overlap(prompt).reused.min(there) >= held);
        (held > Tokens(0) && !is_held).then_some(held)
    }

    /// Counts what a prompt has to compute though a conversation held it that was driven out.
    pub(crate) fn note_refault(&mut self, held: Tokens, cached: usize) {
        let again = held.index().saturating_sub(cached);
        if again > 0 {
            self.counters.refaults.add(1);
            self.counters.refault_tokens.add(again);
            tracing::info!(tokens = again, "memory: computed again, for a conversation was given up that held it");
        }
    }

    /// Saves a kept conversation, where conversations are saved, and frees its bank.
    fn close_kept(&mut self, bank: BankId) {
        if let Some(warm) = self.warm.take(bank) {
            self.ghosts.add(warm.record.tokens(), self.watch.now());
            self.save_before_it_goes(bank, &warm.record, SaveReason::Evict);
        }
        self.model.close_bank(bank);
        self.let_go(bank);
        self.enter_into_books();
    }

    /// Bytes all conversations may come to hold: what running ones were promised, and what kept ones have.
    fn promised(&self) -> Bytes {
        let running = self.running.iter().map(|running| self.promised_to(running.bank, running.promise()));
        let filling = self.restoring.iter().map(Restoring::promised);
        sum(running.chain(filling).chain([self.warm.held()]))
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
