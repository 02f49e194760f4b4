//! What conversations hold, counted for whoever looks.

use crate::scheduler::Scheduler;
use ds4_units::{BankId, Bytes, Tokens};

/// What conversations cost and how they are cut, as the model says it once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BankRates {
    /// Tokens of one block.
    pub(crate) block: Tokens,
    /// What a token of the longest conversation is charged.
    pub(crate) priced: Bytes,
}

impl BankRates {
    pub(crate) fn of(model: &dyn ds4_model::Model) -> BankRates {
        let context = model.info().context;
        let priced = Bytes(model.price(context).0 / u64::from(context.0.max(1)));
        BankRates { block: model.bank_format().block_tokens, priced }
    }
}

impl Scheduler {
    /// Counts what banks hold now, `resident` bytes in all.
    pub(crate) fn tally(&self, resident: Bytes) {
        let running = self.running.iter().map(|running| running.bank);
        let banks = running.chain(self.warm.iter().map(|warm| warm.bank));
        let held = |bank: BankId| self.model.frontier(bank).map_or(0, Tokens::index);
        let block = self.bank_rates.block.index().max(1);
        let (tokens, blocks) =
            banks.map(held).fold((0, 0), |(tokens, blocks), held| (tokens + held, blocks + held.div_ceil(block)));
        self.counters.running.set(self.running.len());
        self.counters.warm.set(self.warm.len());
        self.counters.blocks_held.set(blocks);
        self.counters.tokens_held.set(tokens);
        self.counters.bytes_held.set(resident.index());
    }
}
