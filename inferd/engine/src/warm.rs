//! Finished conversations whose banks are kept, in case their next turn comes.

use ds4_banks::Kept;
use ds4_model::PromptRecord;
use ds4_units::BankId;

/// A kept bank and what it holds.
pub(crate) struct Warm {
    pub(crate) bank: BankId,
    pub(crate) record: PromptRecord,
    /// Its file, when it came from disk and nothing was computed with it yet.
    pub(crate) restored: Option<Kept>,
}

/// Kept banks, the least recently used first.
#[derive(Default)]
pub(crate) struct WarmBanks {
    banks: Vec<Warm>,
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
        self.banks.push(warm);
    }

    /// Whether a bank is kept.
    pub(crate) fn holds(&self, bank: BankId) -> bool {
        self.banks.iter().any(|warm| warm.bank == bank)
    }

    /// Takes a bank out.
    pub(crate) fn take(&mut self, bank: BankId) -> Option<Warm> {
        let index = self.banks.iter().position(|warm| warm.bank == bank)?;
        Some(self.banks.remove(index))
    }

    /// The bank to give up first, `spared` excepted.
    pub(crate) fn least_recent(&self, spared: Option<BankId>) -> Option<BankId> {
        self.banks.iter().map(|warm| warm.bank).find(|&bank| Some(bank) != spared)
    }

    /// Marks a bank as just used.
    pub(crate) fn touch(&mut self, bank: BankId) {
        if let Some(warm) = self.take(bank) {
            self.keep(warm);
        }
    }
}
