//! Every bound of the engine, by name.

use crate::SpeculationOptions;
use ds4_units::{Bytes, Tokens};
use std::time::Duration;

/// Requests that wait for a bank, in the inbox and behind it, when the operator names no number. One more is refused at
/// once.
pub const QUEUED_MAX: usize = 256;

/// The same where the operator wants no limit: what the inbox holds.
pub(crate) const INBOX_MAX: usize = 65_536;

/// Events a request may have unread. A reader further behind than this is evicted.
pub const EVENTS_UNREAD_MAX: usize = 1024;

/// Banks when the operator names no number: conversations that run or are kept warm at the same time.
pub const BANKS_DEFAULT: usize = 8;

/// Banks beyond those asked for while none of the kept ones may be given up: one request at a time runs beside them.
pub(crate) const BESIDE_MAX: usize = 1;

/// How long the bank of an answer that ended with tool calls waits for the results of those calls, and how long another
/// request waits for such a bank at most.
pub const GRACE: Duration = Duration::from_secs(60);

/// Bytes of a restored conversation that are copied into its bank between two steps: a few milliseconds that whoever
/// writes waits for. And as many as nobody minds while nothing runs.
pub(crate) const IMPORT_PART: Bytes = Bytes::mib(4);
pub(crate) const IMPORT_PART_ALONE: Bytes = Bytes::mib(64);

/// Requests held up by kept banks that others may pass at a time.
pub(crate) const HELD_PASSED_MAX: usize = 32;

/// How long a step may take while somebody reads an answer: the price that reader pays for a newcomer's prompt.
pub const STEP_TARGET: Duration = Duration::from_millis(80);

/// Rows of one request that count as decoding: a drawn token, or tokens that follow without being drawn.
pub(crate) const DECODE_ROWS_MAX: usize = 64;

/// Prompt rows in one step of a request that wants to know what was likely at each: a row of logits has the size of
/// the vocabulary.
pub const PROMPT_LOGPROBS_ROWS: usize = 64;

/// Most alternatives a request may ask for per position.
pub const TOP_LOGPROBS_MAX: usize = 1024;

/// Answer tokens a request is charged for at first, however many it may draw: few answers are longer, and a promise of
/// a whole context would keep others out for nothing.
pub const CHARGED_TOKENS: Tokens = Tokens(32_768);

/// A longer answer is charged for this part of the first charge at a time.
pub(crate) const CHARGED_MORE: u32 = 16;

/// Bytes of all prompts that wait for a bank, when the operator names no number.
pub const QUEUED_BYTES_MAX: Bytes = Bytes::mib(256);

/// How long a request waits for a bank before it is turned away, when the operator does not say.
pub const QUEUE_AGE_MAX: Duration = Duration::from_secs(600);

/// A kept conversation that was not used for so long gives back what its next turn does not need.
pub const IDLE_TRIM: Duration = Duration::from_secs(120);

/// The operator's choices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EngineOptions {
    /// Conversations that run or are kept warm at the same time; at least one.
    pub banks: usize,
    /// Prompt rows in one step while nobody decodes; as many as the model likes best when not said.
    pub prefill_rows: Option<usize>,
    /// How long a step may take while somebody decodes: it gets as many prompt rows as that allows.
    pub step_target: Duration,
    /// Answer tokens a request is charged for at first.
    pub charged_tokens: Tokens,
    /// Requests that wait for a bank; 0 for as many as come.
    pub queued_max: usize,
    /// Bytes of their prompts; 0 for as many as come.
    pub queued_bytes_max: Bytes,
    /// How long a request waits for a bank before it is turned away; zero for ever.
    pub queue_age_max: Duration,
    /// A kept conversation that was not used for so long gives back what its next turn does not need.
    pub idle_trim: Duration,
    /// How long the bank of an answer that ended with tool calls waits for their results.
    pub grace: Duration,
    /// How to guess ahead, where the model can; not at all when not said.
    pub speculation: Option<SpeculationOptions>,
}

impl Default for EngineOptions {
    fn default() -> EngineOptions {
        EngineOptions {
            banks: BANKS_DEFAULT,
            prefill_rows: None,
            step_target: STEP_TARGET,
            charged_tokens: CHARGED_TOKENS,
            queued_max: QUEUED_MAX,
            queued_bytes_max: QUEUED_BYTES_MAX,
            queue_age_max: QUEUE_AGE_MAX,
            idle_trim: IDLE_TRIM,
            grace: GRACE,
            speculation: None,
        }
    }
}
