//! One conversation at a time with a model.

use anyhow::Context;
use ds4_model::{LogitsWanted, Model, Segment, StepBatch};
use ds4_units::{BankId, Bytes, MemoryUse, TokenId, TokenPos, Tokens};

/// Tokens from the beginning of one stranger's text to that of the next.
const APART: usize = 449;

/// Copies of a conversation that go on side by side.
pub(crate) struct Forks {
    banks: Vec<BankId>,
    held: usize,
}

pub(crate) struct Conversation {
    model: Box<dyn Model>,
    bank: BankId,
    held: usize,
}

impl Conversation {
    pub(crate) fn new(mut model: Box<dyn Model>) -> Conversation {
        let bank = model.open_bank();
        Conversation { model, bank, held: 0 }
    }

    /// Goes on in a copy, which is forgotten afterwards.
    pub(crate) fn aside(&mut self, work: impl FnOnce(&mut Self) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let bank = match self.held {
            0 => self.model.open_bank(),
            held => self.model.fork(self.bank, Tokens(held as u32))?.0,
        };
        let own = (std::mem::replace(&mut self.bank, bank), self.held);
        let result = work(self);
        self.model.close_bank(self.bank);
        (self.bank, self.held) = own;
        result
    }

    /// Forgets everything.
    pub(crate) fn restart(&mut self) {
        self.model.close_bank(self.bank);
        self.bank = self.model.open_bank();
        self.held = 0;
    }

    /// Feeds tokens, so many a step, and returns the logits after the last.
    pub(crate) fn feed(&mut self, tokens: &[u32], rows: usize) -> anyhow::Result<Vec<f32>> {
        let mut logits = Vec::new();
        let chunks = tokens.chunks(rows);
        let count = chunks.len();
        for (index, chunk) in chunks.enumerate() {
            let tokens: Vec<TokenId> = chunk.iter().map(|&token| TokenId(token)).collect();
            let wanted = if index + 1 == count { LogitsWanted::Last } else { LogitsWanted::None };
            let start = TokenPos(self.held as u32);
            let segment = Segment { bank: self.bank, start, tokens: &tokens, logits: wanted, drafted: 0 };
            let step = self.model.step(&StepBatch { segments: &[segment] })?;
            self.held += chunk.len();
            if let Some(last) = step.last_of_segment(0) {
                logits = last.to_vec();
            }
        }
        (!logits.is_empty()).then_some(logits).context("no tokens, no logits")
    }

    /// So many copies of it.
    pub(crate) fn forks(&mut self, count: usize) -> anyhow::Result<Forks> {
        let at = Tokens(self.held as u32);
        let forks = (0..count).map(|_| self.model.fork(self.bank, at).map(|(bank, _)| bank));
        let banks = forks.collect::<Result<_, _>>()?;
        Ok(Forks { banks, held: self.held })
    }

    /// A copy of each of the first `count`.
    pub(crate) fn copies(&mut self, of: &Forks, count: usize) -> anyhow::Result<Forks> {
        let at = Tokens(of.held as u32);
        let copies = of.banks.iter().take(count).map(|&bank| self.model.fork(bank, at).map(|(copy, _)| copy));
        Ok(Forks { banks: copies.collect::<Result<_, _>>()?, held: of.held })
    }

    /// So many conversations that have nothing in common, each as long as this one: the tokens from other places on.
    pub(crate) fn strangers(&mut self, count: usize, tokens: &[u32], rows: usize) -> anyhow::Result<Forks> {
        let (own, held) = (self.bank, self.held);
        let mut banks = Vec::new();
        for index in 0..count {
            (self.bank, self.held) = (self.model.open_bank(), 0);
            banks.push(self.bank);
            let text: Vec<u32> = tokens.iter().copied().cycle().skip((index + 1) * APART).take(held).collect();
            self.feed(&text, rows)?;
        }
        (self.bank, self.held) = (own, held);
        Ok(Forks { banks, held })
    }

    /// Writes so many tokens in every copy, all copies in each step: the device chooses tokens, and each copy goes on
    /// with others all the same, so that their rows choose different experts.
    pub(crate) fn write(&mut self, forks: &mut Forks, steps: usize, tokens: &[u32]) -> anyhow::Result<()> {
        for _ in 0..steps {
            let start = TokenPos(forks.held as u32);
            let own = |copy: usize| TokenId(tokens[(forks.held + 37 * copy) % tokens.len()]);
            let own: Vec<TokenId> = (0..forks.banks.len()).map(own).collect();
            let segments = forks.banks.iter().zip(own.chunks(1));
            let segment = |(&bank, tokens)| Segment { bank, start, tokens, logits: LogitsWanted::Greedy, drafted: 0 };
            let segments: Vec<Segment<'_>> = segments.map(segment).collect();
            let step = self.model.step(&StepBatch { segments: &segments })?;
            anyhow::ensure!((0..segments.len()).all(|index| step.drawn(index).is_some()), "logits are not finite");
            forks.held += 1;
        }
        Ok(())
    }

    /// Forgets the copies.
    pub(crate) fn close(&mut self, forks: Forks) {
        forks.banks.into_iter().for_each(|bank| self.model.close_bank(bank));
    }

    /// Tokens held.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// Memory beyond weights and conversations.
    pub(crate) fn device_memory(&self) -> Vec<(MemoryUse, Bytes)> {
        self.model.device_memory()
    }
}
