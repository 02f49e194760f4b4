//! What a worker may promise to conversations: what is free, less what must stay free and what it takes for its steps.

use crate::BootError;
use ds4_governor::{BankPlan, Floors, Observation, plan_banks};
use ds4_model::{Model, StepError, StepSize};
use ds4_units::{Bytes, Tokens};

/// Conversations in one step when the operator names no number of them, at most.
const CONVERSATIONS_MOST: usize = 32;

/// Steps are never made smaller than this for want of memory.
const ROWS_FEWEST: usize = 128;

/// What the operator asks for.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Never promised to anyone.
    pub floor: Bytes,
    /// Prompt rows of a step.
    pub rows: Option<usize>,
    /// Conversations.
    pub banks: Option<usize>,
}

/// Where a worker's memory goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledger {
    /// What was free before.
    pub free: Bytes,
    /// Never promised to anyone.
    pub floor: Bytes,
    /// The largest step there may be.
    pub step: StepSize,
    /// Rows of the step that was asked for; more than the largest step has where memory is short.
    pub rows_asked: usize,
    /// What its activations take.
    pub activations: Bytes,
    /// What recordings of steps may come to take.
    pub recordings: Bytes,
    /// What is left, and for how many conversations.
    pub banks: BankPlan,
}

impl Ledger {
    /// Divides what is free. Steps are as large as was asked, or as the model likes best, and smaller where only that
    /// leaves room for a conversation of full length, or for any. Nothing is taken yet.
    ///
    /// # Errors
    /// When the device fails.
    pub fn plan(model: &mut dyn Model, observation: &Observation, asked: &Asked) -> Result<Ledger, BootError> {
        let (context, recordings) = (model.info().context, model.device_memory_to_come());
        let rows_asked = asked.rows.unwrap_or(model.info().prefill_rows).max(1);
        let conversations = asked.banks.unwrap_or(CONVERSATIONS_MOST);
        let halves = std::iter::successors(Some(rows_asked), |rows| Some(rows / 2).filter(|&half| half >= ROWS_FEWEST));
        let mut ledgers = Vec::new();
        for rows in halves {
            let step = StepSize { rows, conversations };
            let activations = model.activations(step).map_err(refused)?;
            let substrate_outstanding = Bytes(activations.0.saturating_add(recordings.0));
            let floors = Floors { floor: asked.floor, substrate_outstanding };
            let price = |tokens: Tokens| model.price(tokens);
            let banks = plan_banks(observation, &floors, context, price, asked.banks);
            let is_enough = banks.full.fit > 0 || activations == Bytes::ZERO;
            let (free, floor) = (observation.free, asked.floor);
            ledgers.push(Ledger { free, floor, step, rows_asked, activations, recordings, banks });
            if is_enough {
                return Ok(ledgers.swap_remove(ledgers.len() - 1));
            }
        }
        let any = ledgers.iter().position(|ledger| ledger.banks.budget > ledger.banks.empty);
        Ok(ledgers.swap_remove(any.unwrap_or(ledgers.len() - 1)))
    }

    /// Takes what steps need, so that no request has to wait or be refused for it later. Where conversations that were
    /// taken over, or somebody else, have it by now, steps become smaller.
    ///
    /// # Errors
    /// When the device has not the memory for the smallest either.
    pub fn take_activations(&mut self, model: &mut dyn Model) -> Result<(), BootError> {
        loop {
            let half = self.step.rows / 2;
            match model.take_activations(self.step) {
                Err(StepError::OutOfMemory { .. }) if half >= ROWS_FEWEST => {
                    self.step.rows = half;
                    self.activations = model.activations(self.step).map_err(refused)?;
                }
                taken => return taken.map_err(refused),
            }
        }
    }
}

fn refused(error: StepError) -> BootError {
    match error {
        StepError::OutOfMemory { problem, .. } => BootError::Memory { problem },
        error => BootError::Device { problem: error.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ds4_governor::Source;
    use ds4_model::{BankFormat, BankImage, ModelInfo, StepBatch, StepLogits};
    use ds4_units::{BankId, TokenId};

    /// A model whose steps take 10 bytes a row and whose recordings take 300; a token costs a byte. Its device has so many
    /// bytes when they are taken.
    struct Priced(ModelInfo, u64);

    fn priced(had: u64) -> Priced {
        let info = ModelInfo {
            architecture: String::new(),
            shape: String::new(),
            trained_context: Tokens(1000),
            context: Tokens(1000),
            vocabulary: 2,
            prefill_rows: 1024,
        };
        Priced(info, had)
    }

    impl Model for Priced {
        fn info(&self) -> &ModelInfo {
            &self.0
        }
        fn activations(&mut self, size: StepSize) -> Result<Bytes, StepError> {
            Ok(Bytes(10 * size.rows as u64))
        }
        fn take_activations(&mut self, size: StepSize) -> Result<(), StepError> {
            let missing = Bytes((10 * size.rows as u64).saturating_sub(self.1));
            let problem = "none is left".to_owned();
            if missing > Bytes::ZERO { Err(StepError::OutOfMemory { problem, missing }) } else { Ok(()) }
        }
        fn device_memory_to_come(&self) -> Bytes {
            Bytes(300)
        }
        fn price(&self, tokens: Tokens) -> Bytes {
            Bytes(u64::from(tokens.0))
        }
        fn open_bank(&mut self) -> BankId {
            BankId(0)
        }
        fn close_bank(&mut self, _: BankId) {}
        fn frontier(&self, _: BankId) -> Option<Tokens> {
            None
        }
        fn step(&mut self, _: &StepBatch<'_>) -> Result<StepLogits, StepError> {
            Err(StepError::UnknownBank(BankId(0)))
        }
        fn checkpoint(&mut self, bank: BankId) -> Result<(), ds4_model::BankError> {
            Err(ds4_model::BankError::UnknownBank(bank))
        }
        fn restorable(&self, bank: BankId, _: Tokens) -> Result<Tokens, ds4_model::BankError> {
            Err(ds4_model::BankError::UnknownBank(bank))
        }
        fn truncate(&mut self, bank: BankId, _: Tokens) -> Result<Tokens, ds4_model::BankError> {
            Err(ds4_model::BankError::UnknownBank(bank))
        }
        fn fork(&mut self, source: BankId, _: Tokens) -> Result<(BankId, Tokens), ds4_model::BankError> {
            Err(ds4_model::BankError::UnknownBank(source))
        }
        fn bank_format(&self) -> BankFormat {
            unreachable!("nothing is stored")
        }
        fn export(&self, bank: BankId, _: usize) -> Result<BankImage, ds4_model::BankError> {
            Err(ds4_model::BankError::UnknownBank(bank))
        }
        fn import(&mut self, _: &[TokenId], _: &BankImage) -> Result<BankId, ds4_model::BankError> {
            Err(ds4_model::BankError::UnknownBank(BankId(0)))
        }
        fn resident_bytes(&self, bank: BankId) -> Result<Bytes, ds4_model::BankError> {
            Err(ds4_model::BankError::UnknownBank(bank))
        }
    }

    fn plan(free: u64, rows: Option<usize>) -> Ledger {
        let asked = Asked { floor: Bytes(100), rows, banks: None };
        let observation = Observation::of(Source::CudaFree, Bytes(free));
        Ledger::plan(&mut priced(0), &observation, &asked).unwrap()
    }

    #[test]
    fn what_steps_take_is_not_promised_to_conversations() {
        let ledger = plan(100 + 10_240 + 300 + 2_999, None);
        assert_eq!((ledger.step.rows, ledger.activations, ledger.recordings), (1024, Bytes(10_240), Bytes(300)));
        assert_eq!((ledger.banks.full.fit, ledger.banks.next_needs), (2, Bytes(1)));
        assert_eq!(plan(100 + 10_240 + 300 + 3_000, None).banks.full.fit, 3);
    }

    #[test]
    fn steps_are_as_large_as_what_is_there_when_it_is_taken() {
        let mut ledger = plan(1 << 30, None);
        ledger.take_activations(&mut priced(10 * 300)).unwrap();
        assert_eq!((ledger.step.rows, ledger.activations), (256, Bytes(2_560)));
        assert!(matches!(ledger.take_activations(&mut priced(10 * 100)), Err(BootError::Memory { .. })));
    }

    #[test]
    fn steps_become_smaller_until_one_conversation_fits() {
        let rows = |free, asked| plan(free, asked).step.rows;
        assert_eq!(rows(100 + 10_240 + 300 + 1_000, None), 1024);
        assert_eq!(rows(100 + 10_240 + 300 + 999, None), 512);
        assert_eq!(rows(100 + 1_280 + 300 + 1_000, None), 128);
        // Where none of full length fits in any case, steps are as large as leaves room for a shorter one.
        let short = plan(100 + 1_280 + 300 + 999, None);
        assert_eq!((short.step.rows, short.rows_asked, short.banks.check().is_err()), (128, 1024, true));
        assert_eq!(plan(100 + 300, None).step.rows, 128);
        assert_eq!(rows(1 << 30, Some(300)), 300);
    }
}
