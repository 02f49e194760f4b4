//! The contract between a model family and the engine: steps over banks.

use crate::{Adopted, BankFormat, BankImage, ImageCheck, Import, Parcel, StepBatch, StepLogits};
use ds4_units::{BankId, Bytes, MemoryUse, TokenId, TokenPos, Tokens};
use std::sync::Arc;

/// What the rest of the worker may know about a loaded model.
#[derive(Clone, Debug)]
pub struct ModelInfo {
    /// `general.architecture` of the file.
    pub architecture: String,
    /// Which of the family's shapes this is, for the boot line: `Flash`, `PRO`, `custom`.
    pub shape: String,
    /// The longest conversation the model was trained for.
    pub trained_context: Tokens,
    /// The longest conversation a bank may hold here.
    pub context: Tokens,
    /// Length of a logits row.
    pub vocabulary: usize,
    /// Prompt rows in one step from which on more rows make no row cheaper.
    pub prefill_rows: usize,
}

/// What a token at least takes, whatever computes it: what speeds are compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenWork {
    /// Weights that are read for a token computed alone, as the file stores them. Conversations are read beside them.
    pub weights: Bytes,
    /// Multiplications and additions of its products, the ones for logits and attention left out.
    pub operations: u64,
    /// Of the weights, those of experts that the token has chosen.
    pub chosen: Bytes,
    /// Experts that a token chooses in a layer, and of how many.
    pub experts: (u32, u32),
}

impl TokenWork {
    /// Bytes of weights that a step of so many rows reads, each once: experts counted as if rows chose them independently
    /// and one as often as another.
    pub fn weights_of_step(&self, rows: u32) -> f64 {
        let (used, all) = (f64::from(self.experts.0.max(1)), f64::from(self.experts.1.max(1)));
        let reached = all * (1.0 - (1.0 - used / all).powi(rows.cast_signed()));
        (self.weights.0 - self.chosen.0) as f64 + self.chosen.0 as f64 / used * reached
    }
}

/// How large a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepSize {
    /// Tokens of all its segments.
    pub rows: usize,
    /// Its segments, each of which may want the logits of its last token.
    pub conversations: usize,
}

/// Why a step changed nothing. Every bank of the batch is at its previous frontier.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum StepError {
    #[error("bank {} is not open", .0.0)]
    UnknownBank(BankId),
    #[error("bank {} appears twice in one step", .0.0)]
    BankTwice(BankId),
    #[error("a segment of bank {} has no tokens", .0.0)]
    EmptySegment(BankId),
    #[error("bank {} is at token {}, but the segment starts at {}", .bank.0, .frontier.0, .start.0)]
    NotAtFrontier { bank: BankId, frontier: Tokens, start: TokenPos },
    #[error("bank {} would hold {} tokens; the context is {}", .bank.0, .wanted.0, .context.0)]
    PastContext { bank: BankId, wanted: Tokens, context: Tokens },
    #[error("token {token} is outside the vocabulary of {vocabulary}")]
    TokenOutsideVocabulary { token: u32, vocabulary: usize },
    #[error("of {tokens} tokens of bank {} {drafted} are guesses; one at least must not be", .bank.0)]
    OnlyGuesses { bank: BankId, tokens: usize, drafted: usize },
    #[error("a step with guesses has {rows} rows; it may have {most}")]
    TooManyGuesses { rows: usize, most: usize },
    #[error("bank {} was asked to take {count} guesses; its last step had {drafted}", .bank.0)]
    NotGuessed { bank: BankId, count: usize, drafted: usize },
    /// The device has not the memory that the step needs.
    #[error("{problem}")]
    OutOfMemory { problem: String, missing: Bytes },
    /// The device refused or failed. A lost one serves nobody in this process any more.
    #[error("{problem}")]
    Device { problem: String, lost: bool },
}

/// Why an operation on a bank was refused. Nothing changed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum BankError {
    #[error("bank {} is not open", .0.0)]
    UnknownBank(BankId),
    #[error("bank {} holds {} tokens; it cannot be cut at {}", .bank.0, .frontier.0, .to.0)]
    PastFrontier { bank: BankId, frontier: Tokens, to: Tokens },
    /// The device refused or failed.
    #[error("{problem}")]
    Device { problem: String },
    #[error("the stored bank {problem}")]
    Image { problem: String },
    #[error("the bank that was left {problem}")]
    Left { problem: String },
}

/// A wish for guesses at what follows in a bank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DraftWish {
    /// The bank.
    pub bank: BankId,
    /// The token at its frontier, which is not in the bank yet.
    pub next: TokenId,
    /// Guesses at most.
    pub count: usize,
    /// A guess counts only where the likeliest token's logit leads the second by so much; what would follow it is not
    /// guessed then.
    pub margin: f32,
}

/// A loaded model with its banks. One thread owns it; a call blocks that thread for as long as the work takes.
///
/// Guarantees, whatever the backend: however a token stream is cut into steps, and whatever other banks share those
/// steps, the greedy continuation is the same (bit-equal logits on the CPU); a step that fails leaves every bank at
/// its previous frontier.
pub trait Model: Send {
    /// Facts about the model.
    fn info(&self) -> &ModelInfo;

    /// Opens an empty bank.
    fn open_bank(&mut self) -> BankId;

    /// Forgets a bank and frees its memory. Unknown ids are ignored: closing twice is harmless.
    fn close_bank(&mut self, bank: BankId);

    /// How many tokens the bank holds; `None` when it is not open.
    fn frontier(&self, bank: BankId) -> Option<Tokens>;

    /// Computes the batch and moves every bank's frontier past its segment, but for segments with guesses.
    fn step(&mut self, batch: &StepBatch<'_>) -> Result<StepLogits, StepError>;

    /// Moves the banks of the last step's segments with guesses past their certain tokens and so many of the guesses.
    /// Comes right after that step: whatever happens to a bank in between makes it forget what it was computed.
    fn accept(&mut self, accepted: &[(BankId, usize)]) -> Result<(), StepError> {
        let refused = |&(bank, count): &(BankId, usize)| StepError::NotGuessed { bank, count, drafted: 0 };
        accepted.first().map_or(Ok(()), |first| Err(refused(first)))
    }

    /// Rows that a step with guesses may have at most; 0 where the model guesses nothing.
    fn draft_rows(&self) -> usize {
        0
    }

    /// Guesses what follows in each bank, which stays as it is. Fewer guesses than were wished for, or none, are an
    /// answer as well.
    fn draft(&mut self, wishes: &[DraftWish]) -> Result<Vec<Vec<TokenId>>, StepError> {
        Ok(vec![Vec::new(); wishes.len()])
    }

    /// Remembers the present frontier as a position the bank can be cut back to. Banks keep a bounded number of
    /// checkpoints and take some by themselves.
    fn checkpoint(&mut self, bank: BankId) -> Result<(), BankError>;

    /// The largest position at or below `to` that [`Model::truncate`] and [`Model::fork`] can reach without
    /// recomputing; `Tokens(0)` is always reachable.
    fn restorable(&self, bank: BankId, to: Tokens) -> Result<Tokens, BankError>;

    /// Cuts the bank to the largest restorable position at or below `to` and returns it.
    fn truncate(&mut self, bank: BankId, to: Tokens) -> Result<Tokens, BankError>;

    /// Opens a new bank holding the first tokens of `source`, up to the largest restorable position at or below `to`,
    /// and returns both.
    fn fork(&mut self, source: BankId, to: Tokens) -> Result<(BankId, Tokens), BankError>;

    /// How banks are laid out.
    fn bank_format(&self) -> BankFormat;

    /// The bank's state at its frontier: blocks from `first_block` on and the recurrent part. May wait for the device.
    fn export(&self, bank: BankId, first_block: usize) -> Result<BankImage, BankError>;

    /// Opens a bank of these tokens from the state that an export of all blocks gave. The bank goes on as the
    /// exported one would have; it can be cut back to its beginning only. Bytes that no bank can have are refused.
    fn import(&mut self, tokens: &[TokenId], image: &BankImage) -> Result<BankId, BankError>;

    /// What [`Model::import`] asks of an image before it takes it, for threads that have the time.
    fn image_check(&self) -> ImageCheck {
        Arc::new(|_, _| Ok(()))
    }

    /// Goes on with an import, by about `bytes` bytes and at least one block; true when the bank is whole. Until then it
    /// is open and empty. After an error it is closed by whoever asked.
    fn import_part(&mut self, import: &mut Import, bytes: Bytes) -> Result<bool, BankError> {
        let _ = bytes;
        import.bank = Some(self.import(import.tokens(), import.image())?);
        Ok(true)
    }

    /// Keeps a journal of every bank from now on, so that another process can go on with it when this one is killed.
    /// `content` is the identity of the weights. Nothing where banks cannot be left to others.
    fn keep_journals(&mut self, content: [u8; 32]) {
        let _ = content;
    }

    /// Of what a bank that is left to others must be, to be taken over here: see [`Model::adopt`].
    fn fingerprint(&self) -> Option<[u8; 32]> {
        None
    }

    /// Which descriptors keep the bank: a number that is another one when they are others. `None` while there is
    /// nothing to keep.
    fn epoch(&self, bank: BankId) -> Option<u32> {
        let _ = bank;
        None
    }

    /// The descriptors themselves; `None` when there is nothing to keep.
    fn parcel(&self, bank: BankId) -> Result<Option<Parcel>, BankError> {
        Err(BankError::UnknownBank(bank))
    }

    /// Opens a bank in the memory that a dead process has left, at its last committed step. Whatever is in doubt
    /// is refused.
    fn adopt(&mut self, parcel: Parcel) -> Result<Adopted, BankError> {
        let _ = parcel;
        Err(BankError::Left { problem: "cannot be taken over by this model".into() })
    }

    /// Memory the bank holds now.
    fn resident_bytes(&self, bank: BankId) -> Result<Bytes, BankError>;

    /// Gives back memory that a bank which rests does not need for going on: old checkpoints, room for steps to come.
    fn trim(&mut self, _bank: BankId) {}

    /// Memory of the device beyond lent weights and banks, by what it is for, and of the host for copies from and to it.
    fn device_memory(&self) -> Vec<(MemoryUse, Bytes)> {
        Vec::new()
    }

    /// The most that a step of `size` would take of a device's memory beside weights and banks, beyond what steps have
    /// taken already. Computes nothing. The host's is one of them.
    fn activations(&mut self, _size: StepSize) -> Result<Bytes, StepError> {
        Ok(Bytes::ZERO)
    }

    /// Takes that memory, so that no step up to `size` has to. What a device gives only when it is reached is in
    /// [`Model::device_memory_to_come`] until then. When it fails nothing was taken.
    fn take_activations(&mut self, _size: StepSize) -> Result<(), StepError> {
        Ok(())
    }

    /// The most that [`Model::device_memory`] may yet grow by while no step is larger than what memory was taken for.
    fn device_memory_to_come(&self) -> Bytes {
        Bytes::ZERO
    }

    /// What a token at least takes, where the family says it.
    fn token_work(&self) -> Option<TokenWork> {
        None
    }

    /// Memory a bank of this many tokens needs.
    fn price(&self, tokens: Tokens) -> Bytes;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_choose_at_random_share_more_experts_the_more_they_are() {
        let work = TokenWork { weights: Bytes(1000), operations: 0, chosen: Bytes(600), experts: (6, 256) };
        assert_eq!(work.weights_of_step(1), 1000.0);
        // 250 of 256 experts are still free for the second row.
        assert!((work.weights_of_step(2) - (400.0 + 100.0 * (12.0 - 36.0 / 256.0))).abs() < 1e-9);
        assert!(work.weights_of_step(16) < 400.0 + 16.0 * 600.0);
        assert!((work.weights_of_step(4096) - (400.0 + 256.0 * 100.0)).abs() < 1e-6);
        let dense = TokenWork { chosen: Bytes(0), experts: (0, 0), ..work };
        assert_eq!(dense.weights_of_step(64), 1000.0);
    }
}
