//! The contract between families, engine and API: model, step, prompt, tokenizer.

mod chat;
mod codec;
mod detokenizer;
mod family;
mod json;
mod model;
mod prompt;
mod record;
mod step;
mod tokenizer;

pub use chat::{
    AssistantMessage, Conversation, Effort, Instructions, Message, PastReasoning, Task, ThinkingMode, ToolArguments,
    ToolCall, ToolResult, ToolSchema, UserMessage,
};
pub use codec::{AnswerEnd, AnswerEvent, AnswerReader, Channel, PromptCodec, PromptError};
pub use detokenizer::{Detokenizer, Utf8Stream};
pub use family::{BindOptions, Family, FamilyError, KvRounding, LoadedModel, PromptSide};
pub use json::{JsonText, JsonTextError, NumberSpelling};
pub use model::{BankError, Model, ModelInfo, StepError};
pub use prompt::{Piece, Prompt, PromptText};
pub use record::{Overlap, PromptRecord};
pub use step::{LogitsWanted, Segment, StepBatch, StepLogits};
pub use tokenizer::{TextTooLarge, Tokenizer, TokenizerError, VocabularyParts};
