//! Tools of a request, and what becomes of the calls in an answer.

mod call_id;

pub use call_id::CallId;

use crate::{PromptText, ToolSchema};

/// The tools a request offers and how they may be called. The default offers none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolUse {
    /// The tools, in the order in which the prompt lists them.
    pub schemas: Vec<ToolSchema>,
    /// Whether the model may, must or must not call.
    pub choice: ToolChoice,
    /// Names that may be called, when not every listed tool may; the prompt lists all of them, so that it stays the
    /// same from turn to turn.
    pub allowed: Option<Vec<String>>,
    /// More than one call in an answer is welcome. Otherwise the answer ends after the first.
    pub parallel: bool,
    /// Values whose type the schema leaves no doubt about are converted to it.
    pub coerce: bool,
    /// When calls are shown.
    pub release: CallRelease,
}

impl Default for ToolUse {
    fn default() -> ToolUse {
        ToolUse {
            schemas: Vec::new(),
            choice: ToolChoice::Auto,
            allowed: None,
            parallel: true,
            coerce: true,
            release: CallRelease::Live,
        }
    }
}

impl ToolUse {
    /// Whether an answer may call a tool.
    pub fn is_armed(&self) -> bool {
        !self.schemas.is_empty() && self.choice != ToolChoice::Forbidden
    }

    /// Whether a tool of this name is offered.
    pub fn offers(&self, name: &str) -> bool {
        self.schemas.iter().any(|schema| schema.name().as_deref() == Some(name))
    }
}

/// Whether the model may, must or must not call a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// No tool is offered and none is called; a block of calls in the answer is left out.
    Forbidden,
    /// The answer begins with a call.
    Required,
    /// The answer begins with a call of this tool, which must be one that is offered.
    Named(String),
}

/// When the calls of an answer are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CallRelease {
    /// As they are generated.
    #[default]
    Live,
    /// When the block is complete: a malformed block can be tried once more before anybody saw it.
    Whole,
}

/// What became of a block of calls. [`ToolOutcome::name`] is the label of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolOutcome {
    /// It was well formed.
    Ok,
    /// What was missing at its end was added, or a broken rest left out.
    Repaired,
    /// The second attempt was good.
    Retried,
    /// The model forgot to end its reasoning before it.
    ImpliedClose,
    /// It is shown as text, or was cut off.
    Failed,
}

impl ToolOutcome {
    /// All of them.
    pub const ALL: [ToolOutcome; 5] =
        [ToolOutcome::Ok, ToolOutcome::Repaired, ToolOutcome::Retried, ToolOutcome::ImpliedClose, ToolOutcome::Failed];

    /// The published spelling.
    pub const fn name(self) -> &'static str {
        match self {
            ToolOutcome::Ok => "ok",
            ToolOutcome::Repaired => "repaired",
            ToolOutcome::Retried => "retried",
            ToolOutcome::ImpliedClose => "implied_close",
            ToolOutcome::Failed => "failed",
        }
    }
}

/// What was wrong with a block of calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolFault {
    /// In words, without anything the model wrote.
    pub problem: &'static str,
    /// At most 200 bytes around the fault, for traces.
    pub excerpt: PromptText,
}
