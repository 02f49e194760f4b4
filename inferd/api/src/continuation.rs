//! Finished turns that a client may go on from without sending them again.
//!
//! A record holds what its turn said, so going on from it is rendering the whole conversation: the engine finds the
//! bank that still holds it, and where there is none any more, the turn costs its prompt and is answered all the same.
//! What decides is the client's view: results are taken only for exactly the calls of the last turn of a
//! conversation. A conversation that went on, by whatever way, leaves its older turn behind.

mod follow;
mod records;

pub(crate) use follow::with_what_came_before;

use crate::limits;
use crate::tools::{Names, Offer};
use crate::transcript::Transcript;
use records::Records;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The surfaces that can go on from a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Responses,
    Messages,
}

/// What a turn was asked with, and what was said.
#[derive(Clone, Debug, Default)]
pub(crate) struct Said {
    /// Instructions that stand beside the messages.
    pub(crate) instructions: Option<String>,
    /// The messages.
    pub(crate) transcript: Transcript,
    /// The tools.
    pub(crate) offer: Offer,
    /// What they are to the client.
    pub(crate) names: Names,
}

impl Said {
    /// All of it as one conversation.
    pub(crate) fn whole(&self) -> Transcript {
        let mut whole = Transcript::default();
        if let Some(instructions) = &self.instructions {
            whole.instructions(instructions.as_str());
        }
        whole.append(&self.transcript);
        whole
    }
}

/// What is kept of a turn.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) protocol: Protocol,
    /// The reply's id; `None` when it is not to be found by it.
    pub(crate) id: Option<String>,
    /// Once the turn is over, its answer is the end of it.
    pub(crate) said: Said,
}

/// What became of turns since the start, and how many are kept now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Turns that were kept.
    pub(crate) published: u64,
    /// Requests that went on from one.
    pub(crate) resolved: u64,
    /// Requests that would have, and found none.
    pub(crate) missed: u64,
    /// Turns whose conversation went on by another way.
    pub(crate) demoted: u64,
    /// Turns that are kept.
    pub(crate) live: u64,
}

impl Counts {
    fn looked(&mut self, found: bool) {
        *(if found { &mut self.resolved } else { &mut self.missed }) += 1;
    }
}

/// Why a turn cannot be gone on from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// This call was never made here, or so long ago that nobody remembers.
    Unknown(String),
    /// It was, and the conversation moved on, or the record was given up, or not all of its calls are answered.
    MovedOn,
}

/// How many turns are kept and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepTurns {
    /// Turns at most.
    pub records: usize,
    /// A turn that is younger is not given up for another.
    pub grace: Duration,
    /// A turn that is older is given up.
    pub lifetime: Duration,
}

impl Default for KeepTurns {
    fn default() -> KeepTurns {
        KeepTurns {
            records: limits::KEPT_TURNS_MAX,
            grace: Duration::from_secs(limits::KEPT_GRACE_S),
            lifetime: Duration::from_secs(limits::KEPT_LIFETIME_S),
        }
    }
}

/// The registry of kept turns. No call blocks but for another's look-up.
pub(crate) struct Continuations {
    records: Mutex<Records>,
}

impl Continuations {
    pub(crate) fn new(keep: KeepTurns) -> Continuations {
        Continuations { records: Mutex::new(Records::new(keep)) }
    }

    /// The turn of exactly these calls, when its conversation has not moved on.
    pub(crate) fn by_calls(&self, protocol: Protocol, ids: &[String]) -> Result<Arc<Kept>, Lost> {
        self.lock().by_calls(protocol, ids, Instant::now())
    }

    /// The turn of this response.
    pub(crate) fn by_response(&self, id: &str) -> Option<Arc<Kept>> {
        self.lock().by_response(id, Instant::now())
    }

    /// Forgets the turn of this response; says whether there was one.
    pub(crate) fn forget(&self, id: &str) -> bool {
        self.lock().forget(id, Instant::now())
    }

    /// What became of turns.
    pub(crate) fn counts(&self) -> Counts {
        self.lock().counts(Instant::now())
    }

    /// Keeps a turn. Earlier turns of the same conversation can no longer be gone on from by their calls.
    pub(crate) fn keep(&self, kept: Kept) {
        self.lock().keep(kept, Instant::now());
    }

    fn lock(&self) -> MutexGuard<'_, Records> {
        // The records hold no half-made state.
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
