//! What a model family offers the worker.

use crate::{Model, PromptCodec, Tokenizer};
use ds4_import::{ComputeDevice, Weights};
use ds4_units::{Bytes, Tokens};
use std::sync::Arc;

/// How KV rows are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum KvRounding {
    /// The packed rows the model was trained with: what ships.
    #[default]
    Exact,
    /// Plain F32 rows, to compare the graph with a reference that does not round.
    Off,
}

/// Choices a worker makes when it binds a model.
#[derive(Clone, Debug)]
pub struct BindOptions {
    /// The longest conversation a bank may hold.
    pub context: Tokens,
    /// How KV rows are kept.
    pub kv_rounding: KvRounding,
    /// Where the model computes; the weights must be there.
    pub device: ComputeDevice,
}

/// A draft block that was trained beside a model, in a file of its own: it guesses what the model will say.
#[derive(Clone, Copy)]
pub struct DraftSource<'a> {
    /// Its file's header.
    pub file: &'a ds4_gguf::Model,
    /// Its tensors.
    pub weights: &'a Weights,
}

/// A model ready to run, with what turns conversations into its tokens and back.
pub struct LoadedModel {
    /// The model; the engine thread takes it.
    pub model: Box<dyn Model>,
    /// Its tokenizer, shared by request handlers.
    pub tokenizer: Arc<Tokenizer>,
    /// Its prompt protocol, shared by request handlers.
    pub codec: Arc<dyn PromptCodec>,
}

/// A model's tokenizer and prompt protocol.
pub type PromptSide = (Arc<Tokenizer>, Arc<dyn PromptCodec>);

/// What a conversation of so many tokens costs: the most that it ever holds.
pub type BankPrice = Box<dyn Fn(Tokens) -> Bytes + Send + Sync>;

/// Why a file cannot be run by the family its architecture names.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum FamilyError {
    #[error("architecture {found:?} is not supported; this build runs {supported}")]
    UnknownArchitecture { found: String, supported: String },
    #[error("metadata key {key}: {problem}")]
    Metadata { key: String, problem: String },
    #[error("tensor {tensor}: {problem}")]
    Tensor { tensor: String, problem: String },
    /// A file with a draft block, of another model than this one.
    #[error("the draft block's {what} is {found}; the model's is {wanted}")]
    OtherDraft { what: String, found: String, wanted: String },
    #[error("this family has no draft blocks")]
    NoDrafts,
    #[error("prompt profile {found:?} is not known; this family has {known}")]
    UnknownPromptProfile { found: String, known: String },
    #[error("{0}")]
    Device(String),
    #[error("tokenizer: {0}")]
    Tokenizer(String),
}

/// One architecture's validator, binder, graph and prompt protocol, behind one value in the families' table.
pub trait Family: Sync {
    /// The value of `general.architecture` this family answers to.
    fn architecture(&self) -> &'static str;

    /// Checks metadata and tensor table and names the shape (`Flash`, `PRO`, `custom`). Reads no tensor bytes.
    fn validate(&self, file: &ds4_gguf::Model) -> Result<String, FamilyError>;

    /// Tokenizer and prompt protocol, for what needs no weights. `profile` names one of the family's prompt wordings;
    /// the family's default is used when it names none.
    fn prompt_side(&self, file: &ds4_gguf::Model, profile: Option<&str>) -> Result<PromptSide, FamilyError>;

    /// Checks that a file has a draft block of the model in `file`. Reads no tensor bytes.
    fn validate_draft(&self, file: &ds4_gguf::Model, draft: &ds4_gguf::Model) -> Result<(), FamilyError> {
        let _ = (file, draft);
        Err(FamilyError::NoDrafts)
    }

    /// What conversations will cost on this device, which needs no weights to say, `with_draft` block or without.
    /// [`Model::price`] says the same.
    fn bank_price(
        &self,
        file: &ds4_gguf::Model,
        with_draft: bool,
        kv_rounding: KvRounding,
        device: &ComputeDevice,
    ) -> Result<BankPrice, FamilyError>;

    /// Binds weights to a runnable model.
    fn bind(
        &self,
        file: &ds4_gguf::Model,
        weights: &Weights,
        draft: Option<DraftSource<'_>>,
        options: &BindOptions,
    ) -> Result<Box<dyn Model>, FamilyError>;
}
