//! The contract between families, engine and API: model, step, prompt, tokenizer.

mod family;
mod model;
mod prompt;
mod step;

pub use family::{BindOptions, Family, FamilyError, KvRounding, LoadedModel};
pub use model::{BankError, Model, ModelInfo, StepError};
pub use prompt::{Piece, Prompt, PromptText};
pub use step::{LogitsWanted, Segment, StepBatch, StepLogits};
