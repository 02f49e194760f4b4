//! Finished conversations whose banks are kept, in case their next turn comes.

use crate::admit::Origin;
use ds4_model::PromptRecord;
use ds4_units::{BankId, Bytes, Tokens};
use std::time::Instant;

/// A kept bank and what it holds.
pub(crate) struct Warm {
    pub(crate) bank: BankId,
    pub(crate) record: PromptRecord,
    /// Memory of the bank, which changes only where [`WarmBanks::was_trimmed`] says so.
    pub(crate) held: Bytes,
    /// Where it came from, until something is computed with it.
    pub(crate) origin: Origin,
    /// Somebody is about to go on from it.
    pub(crate) grace: Option<Grace>,
    /// When it was last used.
    pub(crate) used: Instant,
    /// It has given back what its next turn does not need, and has not been used since.
    pub(crate) trimmed: bool,
}

/// An answer that ended with tool calls: its client runs them and comes back, so its bank goes to nobody else meanwhile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grace {
    pub(crate) until: Instant,
    /// A prompt that shares so many tokens with the bank is the one that was waited for.
    pub(crate) from: Tokens,
}

/// Whether graces count for whoever asks for a bank.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Graces {
    /// Those that are not over at this time.
    At(Instant),
    /// None: who asks has waited long enough, or cannot wait.
    Ignored,
}

impl Warm {
    /// Whether its bank may be taken for another conversation.
    fn may_go(&self, graces: Graces) -> bool {
        match (graces, self.grace) {
            (Graces::At(now), Some(grace)) => now >= grace.until,
            _ => true,
        }
    }
}

/// Kept banks, the least recently used first.
#[derive(Default)]
pub(crate) struct WarmBanks {
    banks: Vec<Warm>,
    /// Of all of them.
    held: Bytes,
}

impl WarmBanks {
    pub(crate) fn len(&self) -> usize {
        self.banks.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Warm> {
        self.banks.iter()
    }

    /// Keeps a bank as the most recently used.
    pub(crate) fn keep(&mut self, warm: Warm) {
        self.held = Bytes(self.held.0 + warm.held.0);
        self.banks.push(warm);
    }

    /// A bank has given back what it could, and holds so much now.
    pub(crate) fn was_trimmed(&mut self, bank: BankId, held: Bytes) {
        if let Some(warm) = self.banks.iter_mut().find(|warm| warm.bank == bank) {
            self.held = Bytes(self.held.0 - warm.held.0 + held.0);
            (warm.held, warm.trimmed) = (held, true);
        }
    }

    /// Banks that were not used since `then` and may have something to give back.
    pub(crate) fn untrimmed_since(&self, then: Instant) -> Vec<BankId> {
        self.banks.iter().filter(|warm| !warm.trimmed && warm.used <= then).map(|warm| warm.bank).collect()
    }

    /// The kept bank of this name.
    pub(crate) fn get(&self, bank: BankId) -> Option<&Warm> {
        self.banks.iter().find(|warm| warm.bank == bank)
    }

    /// Whether a bank is kept.
    pub(crate) fn holds(&self, bank: BankId) -> bool {
        self.get(bank).is_some()
    }

    /// Takes a bank out.
    pub(crate) fn take(&mut self, bank: BankId) -> Option<Warm> {
        let index = self.banks.iter().position(|warm| warm.bank == bank)?;
        let warm = self.banks.remove(index);
        self.held = Bytes(self.held.0 - warm.held.0);
        Some(warm)
    }

    /// The bank to give up first, `spared` excepted.
    pub(crate) fn least_recent(&self, spared: Option<BankId>, graces: Graces) -> Option<BankId> {
        self.victims(spared, graces).next().map(|warm| warm.bank)
    }

    /// The banks that may be given up, in the order in which they are.
    pub(crate) fn victims(&self, spared: Option<BankId>, graces: Graces) -> impl Iterator<Item = &Warm> {
        self.banks.iter().filter(move |warm| Some(warm.bank) != spared && warm.may_go(graces))
    }

    /// Whether a bank is kept that may go.
    pub(crate) fn may_go(&self, bank: BankId, graces: Graces) -> bool {
        self.get(bank).is_some_and(|warm| warm.may_go(graces))
    }

    /// Who was waited for has come, and waits now: its bank is kept until then, at most.
    pub(crate) fn keep_until(&mut self, bank: BankId, until: Instant) {
        let found = self.banks.iter_mut().find(|warm| warm.bank == bank);
        if let Some(grace) = found.and_then(|warm| warm.grace.as_mut()) {
            grace.until = grace.until.max(until);
        }
    }

    /// Whether some bank may not go.
    pub(crate) fn has_graced(&self, graces: Graces) -> bool {
        self.banks.iter().any(|warm| !warm.may_go(graces))
    }

    /// Memory of all kept banks.
    pub(crate) fn held(&self) -> Bytes {
        self.held
    }

    /// Marks a bank as just used; `continued` when that was what it was kept for.
    pub(crate) fn touch(&mut self, bank: BankId, continued: bool, now: Instant) {
        if let Some(mut warm) = self.take(bank) {
            (warm.used, warm.trimmed) = (now, false);
            warm.grace = warm.grace.filter(|_| !continued);
            self.keep(warm);
        }
    }
}
