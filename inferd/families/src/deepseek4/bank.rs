//! One conversation's state: memory, frontier and the checkpoints it can be cut back to.

use ds4_kernels::backend::{Backend, BackendError};
use ds4_kernels::bank::{BankImage, BankSizes};
use ds4_units::{Bytes, Tokens};
use std::collections::VecDeque;

/// Checkpoints that a bank of so many tokens keeps at most; taking one more forgets the oldest. A short conversation
/// has few places to go back to, and each costs as much as hundreds of its tokens.
pub(super) fn checkpoints_most(tokens: Tokens) -> usize {
    (2 + tokens.index() / 1024).min(CHECKPOINTS_MAX)
}

/// Checkpoints of the longest.
const CHECKPOINTS_MAX: usize = 16;

/// Checkpoints that a bank at rest keeps: its end, where its last prompt ended, and one more of each.
const CHECKPOINTS_RESTING: usize = 4;

/// A bank takes a checkpoint by itself whenever a step ends this many tokens or more after the last one.
const CHECKPOINT_INTERVAL: u32 = 2048;

/// A bank on a backend.
pub(super) struct Bank<B: Backend> {
    memory: B::Bank,
    tokens: Tokens,
    /// Tokens the running step adds.
    pending: u32,
    /// In order of position, none twice.
    checkpoints: VecDeque<(Tokens, B::Checkpoint)>,
}

impl<B: Backend> Bank<B> {
    pub(super) fn empty(backend: &B, sizes: BankSizes) -> Bank<B> {
        Bank { memory: backend.new_bank(sizes), tokens: Tokens(0), pending: 0, checkpoints: VecDeque::new() }
    }

    /// A second bank with the same state. Blocks may be shared until one of the two writes to them.
    pub(super) fn fork(&self, backend: &B) -> Result<Bank<B>, BackendError> {
        let (memory, checkpoints) = (backend.fork(&self.memory)?, self.checkpoints.clone());
        Ok(Bank { memory, tokens: self.tokens, pending: 0, checkpoints })
    }

    /// A bank of `tokens` tokens with these bytes. Its end is a position it can be cut back to.
    pub(super) fn from_image(
        backend: &B,
        sizes: BankSizes,
        tokens: Tokens,
        image: &BankImage,
    ) -> Result<Bank<B>, BackendError> {
        let memory = backend.write_bank(sizes, image)?;
        let mut bank = Bank { memory, tokens, pending: 0, checkpoints: VecDeque::new() };
        bank.checkpoint(backend)?;
        Ok(bank)
    }

    /// Its bytes from block `first` on.
    pub(super) fn image(&self, backend: &B, first: usize) -> Result<BankImage, BackendError> {
        backend.read_bank(&self.memory, first)
    }

    /// Tokens the bank holds.
    pub(super) fn tokens(&self) -> Tokens {
        self.tokens
    }

    pub(super) fn memory_mut(&mut self) -> &mut B::Bank {
        &mut self.memory
    }

    /// Prepares to take `count` more tokens. Until [`Bank::commit`] the bank still holds what it held.
    pub(super) fn begin(&mut self, backend: &B, count: usize) -> Result<(), BackendError> {
        self.pending = u32::try_from(count).expect("a segment fits the context");
        backend.begin(&mut self.memory, self.tokens.index() + count)
    }

    /// Takes the step's tokens.
    pub(super) fn commit(&mut self, backend: &B) {
        backend.commit(&mut self.memory);
        self.tokens.0 += self.pending;
        let last = self.checkpoints.back().map_or(0, |(tokens, _)| tokens.0);
        if self.tokens.0 - last >= CHECKPOINT_INTERVAL {
            // Without this checkpoint the bank is only reused less.
            let _ = self.checkpoint(backend);
        }
    }

    /// Remembers the present frontier.
    pub(super) fn checkpoint(&mut self, backend: &B) -> Result<(), BackendError> {
        if self.checkpoints.back().is_some_and(|(tokens, _)| *tokens == self.tokens) || self.tokens.0 == 0 {
            return Ok(());
        }
        while self.checkpoints.len() >= checkpoints_most(self.tokens) {
            self.checkpoints.pop_front();
        }
        self.checkpoints.push_back((self.tokens, backend.checkpoint(&self.memory)?));
        Ok(())
    }

    /// Forgets all checkpoints but the latest.
    pub(super) fn trim(&mut self) {
        let old = self.checkpoints.len().saturating_sub(CHECKPOINTS_RESTING);
        self.checkpoints.drain(..old);
    }

    /// The largest position at or below `to` that the bank can be cut to.
    pub(super) fn restorable(&self, to: Tokens) -> Tokens {
        if to >= self.tokens {
            return self.tokens;
        }
        let reachable = self.checkpoints.iter().rev().map(|(tokens, _)| *tokens);
        reachable.into_iter().find(|&tokens| tokens <= to).unwrap_or(Tokens(0))
    }

    /// Cuts the bank to [`Bank::restorable`] and returns where that is.
    pub(super) fn truncate(&mut self, backend: &B, sizes: BankSizes, to: Tokens) -> Result<Tokens, BackendError> {
        let reached = self.restorable(to);
        if reached < self.tokens {
            self.checkpoints.retain(|(tokens, _)| *tokens <= reached);
            match self.checkpoints.back() {
                Some((tokens, checkpoint)) => backend.restore(&mut self.memory, checkpoint, tokens.index())?,
                None => self.memory = backend.new_bank(sizes),
            }
            self.tokens = reached;
        }
        Ok(reached)
    }

    /// Memory of blocks, recurrent part and checkpoints.
    pub(super) fn resident_bytes(&self, backend: &B) -> Bytes {
        let checkpoints: u64 =
            self.checkpoints.iter().map(|(_, checkpoint)| backend.checkpoint_bytes(checkpoint).0).sum();
        Bytes(backend.bank_bytes(&self.memory).0 + checkpoints)
    }
}
