//! What is killed when, and what has to survive it.

use std::fmt;

/// What is going on when the blow falls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The owner loads; a worker waits for it.
    Load,
    /// A worker boots: it takes the weights over and binds them.
    Import,
    /// A worker computes a prompt.
    Prefill,
    /// A worker writes an answer.
    Decode,
    /// A worker saves conversations to disk.
    Save,
    /// The victim was told to stop and has not ended yet.
    Shutdown,
}

/// Who is killed with SIGKILL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Victim {
    /// The process that serves.
    Worker,
    /// The process that holds the weights.
    Owner,
    /// The process that holds descriptors.
    Keeper,
    /// Both at once, so that only the disk is left.
    WorkerAndKeeper,
}

/// What became of the weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weights {
    /// The owner lives and has them.
    Held,
    /// The next owner took them back from the keeper and read no model.
    TakenBack,
    /// The next owner loaded them.
    Loaded,
}

/// Where the conversation that was there before went on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Conversation {
    /// There was none yet.
    None,
    /// In the worker, which lives.
    Live,
    /// In the dead worker's memory, which the next one took over.
    Adopted,
    /// From a file.
    Disk,
    /// Nowhere: it was computed again.
    Cold,
}

/// What became of the answer that was being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Running {
    /// None was.
    None,
    /// It came to its end as if nothing had happened.
    Whole,
    /// It broke off; what had come of it was right.
    Cut,
}

/// What a cell of the table says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Of the weights.
    pub(crate) weights: Weights,
    /// Of the conversation.
    pub(crate) conversation: Conversation,
    /// Of the running answer.
    pub(crate) running: Running,
}

/// Every phase, in order.
pub(crate) const PHASES: [Phase; 6] =
    [Phase::Load, Phase::Import, Phase::Prefill, Phase::Decode, Phase::Save, Phase::Shutdown];
/// Every victim.
pub(crate) const VICTIMS: [Victim; 4] = [Victim::Worker, Victim::Owner, Victim::Keeper, Victim::WorkerAndKeeper];

/// What has to survive.
pub(crate) fn expected(phase: Phase, victim: Victim) -> Outcome {
    let has_conversation = !matches!(phase, Phase::Load | Phase::Import);
    let weights = match (victim, phase) {
        // Nothing was parked yet.
        (Victim::Owner, Phase::Load) => Weights::Loaded,
        (Victim::Owner, _) => Weights::TakenBack,
        _ => Weights::Held,
    };
    let conversation = match victim {
        _ if !has_conversation => Conversation::None,
        Victim::Worker => Conversation::Adopted,
        Victim::Owner | Victim::Keeper => Conversation::Live,
        Victim::WorkerAndKeeper => Conversation::Disk,
    };
    let running = match (phase, victim) {
        (Phase::Load | Phase::Import, _) => Running::None,
        (_, Victim::Worker | Victim::WorkerAndKeeper) => Running::Cut,
        (_, Victim::Owner | Victim::Keeper) => Running::Whole,
    };
    Outcome { weights, conversation, running }
}

macro_rules! words {
    ($kind:ident: $($value:ident = $word:literal),+ $(,)?) => {
        impl fmt::Display for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self { $($kind::$value => $word,)+ })
            }
        }
    };
}

words!(Phase: Load = "load", Import = "import", Prefill = "prefill", Decode = "decode", Save = "save", Shutdown = "shutdown");
words!(Victim: Worker = "worker", Owner = "owner", Keeper = "keeper", WorkerAndKeeper = "worker and keeper");
words!(Weights: Held = "held", TakenBack = "taken back", Loaded = "loaded again");
words!(Conversation: None = "-", Live = "live", Adopted = "adopted", Disk = "from disk", Cold = "computed again");
words!(Running: None = "-", Whole = "whole", Cut = "cut");

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<12} | {:<14} | {:<7}", self.weights, self.conversation, self.running)
    }
}
