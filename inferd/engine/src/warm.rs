//! Finished conversations whose banks are kept, in case their next turn comes.

use ds4_banks::Kept;
use ds4_model::PromptRecord;
use ds4_units::{BankId, Bytes};

/// A kept bank and what it holds.
pub(crate) struct Warm {
    pub(crate) bank: BankId,
    pub(crate) record: PromptRecord,
    /// Memory of the bank, which changes only where [`WarmBanks::now_holds`] says so.
    pub(crate) held: Bytes,
    /// Its file, when it came from disk and nothing was computed with it yet.
    pub(crate) restored: Option<Kept>,
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

    /// The memory of a bank has changed.
    pub(crate) fn now_holds(&mut self, bank: BankId, held: Bytes) {
        if let Some(warm) = self.banks.iter_mut().find(|warm| warm.bank == bank) {
            self.held = Bytes(self.held.0 - warm.held.0 + held.0);
            warm.held = held;
        }
    }

    /// Whether a bank is kept.
    pub(crate) fn holds(&self, bank: BankId) -> bool {
        self.banks.iter().any(|warm| warm.bank == bank)
    }

    /// Takes a bank out.
    pub(crate) fn take(&mut self, bank: BankId) -> Option<Warm> {
        let index = self.banks.iter().position(|warm| warm.bank == bank)?;
        let warm = self.banks.remove(index);
        self.held = Bytes(self.held.0 - warm.held.0);
        Some(warm)
    }

    /// The bank to give up first, `spared` excepted.
    pub(crate) fn least_recent(&self, spared: Option<BankId>) -> Option<BankId> {
        self.victims(spared).next().map(|warm| warm.bank)
    }

    /// The banks that may be given up, in the order in which they are.
    pub(crate) fn victims(&self, spared: Option<BankId>) -> impl Iterator<Item = &Warm> {
        self.banks.iter().filter(move |warm| Some(warm.bank) != spared)
    }

    /// Memory of all kept banks.
    pub(crate) fn held(&self) -> Bytes {
        self.held
    }

    /// Marks a bank as just used.
    pub(crate) fn touch(&mut self, bank: BankId) {
        if let Some(warm) = self.take(bank) {
            self.keep(warm);
        }
    }
}
