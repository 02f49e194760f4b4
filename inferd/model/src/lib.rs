//! The contract between families, engine and API: model, step, prompt, tokenizer.

mod answer;
mod call_syntax;
mod chat;
mod codec;
mod constraint;
mod detokenizer;
mod family;
mod image;
mod journal;
mod json;
mod memory;
mod model;
mod prompt;
mod record;
mod step;
mod tokenizer;
mod tools;

pub use answer::{
    AnswerEnd, AnswerEvent, AnswerPosition, AnswerReader, AnswerSummary, CallEvent, Channel, Ending, NextToken,
};
pub use call_syntax::CallSyntax;
pub use chat::{
    AssistantMessage, Conversation, Effort, Instructions, Message, PastReasoning, Task, ThinkingMode, ToolArguments,
    ToolCall, ToolResult, ToolSchema, UserMessage,
};
pub use codec::{PromptCodec, PromptError};
pub use constraint::{ConstraintFault, ConstraintScope, TokenConstraint, TokenSet};
pub use detokenizer::{Detokenizer, Utf8Stream};
pub use family::{BankPrice, BindOptions, DraftSource, Family, FamilyError, KvRounding, LoadedModel, PromptSide};
pub use image::{BankFormat, BankImage, BlockBytes, ImageCheck, Import};
pub use journal::{Adopted, Journal, JournalError, Left, Parcel, Pieces};
pub use json::{JsonText, JsonTextError, NumberSpelling, push_json_escaped};
pub use memory::{AnswerMemory, REMEMBERED_BYTES_MAX, REMEMBERED_CALLS_MAX, SampledCalls, SampledPart, VisibleKey};
pub use model::{BankError, DraftWish, Model, ModelInfo, StepError, StepSize, TokenWork};
pub use prompt::{Piece, Prompt, PromptText};
pub use record::{Overlap, PartContent, PromptRecord, RecordPart};
pub use step::{LogitsWanted, Segment, StepBatch, StepLogits};
pub use tokenizer::{TextTooLarge, Tokenizer, TokenizerError, VocabularyParts};
pub use tools::{CallId, CallRelease, ToolChoice, ToolFault, ToolOutcome, ToolUse};
