//! One conversation at a time with a model.

use anyhow::Context;
use ds4_model::{LogitsWanted, Model, Segment, StepBatch};
use ds4_units::{BankId, Bytes, TokenId, TokenPos};

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
            let segment = Segment { bank: self.bank, start, tokens: &tokens, logits: wanted };
            let step = self.model.step(&StepBatch { segments: &[segment] })?;
            self.held += chunk.len();
            if let Some(last) = step.last_of_segment(0) {
                logits = last.to_vec();
            }
        }
        (!logits.is_empty()).then_some(logits).context("no tokens, no logits")
    }

    /// Tokens held.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// Memory beyond weights and conversations.
    pub(crate) fn device_memory(&self) -> Vec<(&'static str, Bytes)> {
        self.model.device_memory()
    }
}
