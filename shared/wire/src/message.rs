//! The messages. Both ends are built from this file; a change raises [`PROTO_MAX`].

use bincode::{Decode, Encode};
use serde::Serialize;
use std::fmt;

/// Lowest protocol version spoken.
pub const PROTO_MIN: u32 = 1;
/// Highest protocol version spoken.
pub const PROTO_MAX: u32 = 1;

/// What a client asks.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Request {
    /// Asks to attach. Once the owner is ready the connection is a lease from here on; before, ask again.
    Hello(Hello),
    /// Asks for the table of ranges.
    Ranges,
    /// Asks for the file descriptors of `count` ranges from `first`, at most
    /// [`FDS_PER_MESSAGE_MAX`](crate::FDS_PER_MESSAGE_MAX) at a time.
    Fds {
        /// The generation the client is attached to.
        generation: u64,
        /// Id of the first range.
        first: u32,
        /// How many.
        count: u32,
    },
    /// Says that everything is imported.
    Ready {
        /// Bytes mapped.
        imported_bytes: u64,
    },
    /// Asks how the owner is. Needs no `Hello`.
    Status,
    /// Asks the owner to shut down as on SIGTERM. Only its own user and root may.
    Drain,
    /// Says that the client is leaving.
    Bye,
}

/// Who attaches, and to what.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Hello {
    /// Lowest protocol version the client speaks.
    pub proto_min: u32,
    /// Highest protocol version the client speaks.
    pub proto_max: u32,
    /// The client's name in logs.
    pub worker_id: String,
    /// Its process id in its own process namespace, for logs.
    pub pid: u32,
    /// The layouts it can read.
    pub capabilities: Vec<String>,
    /// What it insists on.
    pub want: Want,
}

/// What a client insists on; absent fields match anything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Want {
    /// Id of a model that must be there.
    pub model: Option<String>,
    /// The owner process it read about.
    pub instance: Option<[u8; 16]>,
    /// The generation it read about.
    pub generation: Option<u64>,
}

/// What an owner answers.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Reply {
    /// To `Hello`.
    Welcome(Welcome),
    /// To `Ranges`: the table, in order of id.
    Ranges {
        /// The generation they belong to.
        generation: u64,
        /// The ranges.
        ranges: Vec<RangeSize>,
    },
    /// To `Fds`: the file descriptors came with this message, in order of id.
    Fds {
        /// Id of the first range.
        first: u32,
        /// How many.
        count: u32,
    },
    /// To `Status`.
    Status(Box<OwnerStatus>),
    /// To a request that has no other answer.
    Done,
    /// To a request that cannot be granted. The connection stays open unless the refusal says otherwise.
    Refused(Refusal),
    /// To nothing: the owner tells its clients.
    Event(Event),
}

/// The answer to `Hello`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Welcome {
    /// The protocol version to speak.
    pub proto: u32,
    /// The owner process.
    pub instance: [u8; 16],
    /// What it holds or is loading.
    pub generation: u64,
    /// How far it is. The connection is a lease only with [`Phase::Ready`].
    pub phase: Phase,
}

/// How far an owner is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum Phase {
    /// It has its lock and its socket.
    Starting,
    /// It reads the model's header and lays out the ranges.
    Planning,
    /// It checks that memory suffices.
    Preflight,
    /// It reads the model.
    Loading {
        /// Bytes read.
        done: u64,
        /// Bytes to read.
        total: u64,
        /// Milliseconds since it began.
        elapsed_ms: u64,
    },
    /// Everything is loaded and about to be published.
    Exporting,
    /// Workers may attach.
    Ready,
    /// It is shutting down.
    Draining,
    /// Everything is in memory, loaded or taken back, and is compared with what it should be.
    Verifying,
}

impl Phase {
    /// Expected time until the load is done, in milliseconds; `None` unless it is under way.
    pub fn eta_ms(self) -> Option<u64> {
        match self {
            Phase::Loading { done, total, elapsed_ms } if done > 0 => {
                let left = u128::from(total.saturating_sub(done));
                u64::try_from(u128::from(elapsed_ms) * left / u128::from(done)).ok()
            }
            _ => None,
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Phase::Starting => f.write_str("starting"),
            Phase::Planning => f.write_str("planning"),
            Phase::Preflight => f.write_str("preflight"),
            Phase::Loading { done, total, .. } => {
                let percent = if *total == 0 { 100 } else { u128::from(*done) * 100 / u128::from(*total) };
                write!(f, "loading, {percent} %")?;
                match self.eta_ms() {
                    Some(eta) => write!(f, ", about {} s left", eta.div_ceil(1000)),
                    None => Ok(()),
                }
            }
            Phase::Exporting => f.write_str("exporting"),
            Phase::Ready => f.write_str("ready"),
            Phase::Draining => f.write_str("draining"),
            Phase::Verifying => f.write_str("verifying"),
        }
    }
}

/// A range in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct RangeSize {
    /// Its id.
    pub id: u32,
    /// Its length in bytes.
    pub len: u64,
}

/// Why a request is not granted.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Refusal {
    /// The request cannot be understood, or makes no sense now.
    BadRequest {
        /// What is wrong.
        reason: String,
    },
    /// No common protocol version. The owner hangs up.
    Protocol {
        /// Lowest version of the owner.
        min: u32,
        /// Highest version of the owner.
        max: u32,
    },
    /// The client's user may not attach. The owner hangs up.
    User {
        /// The user seen.
        uid: u32,
        /// Who may.
        rule: String,
    },
    /// Too many connections. The owner hangs up.
    Busy {
        /// How many there may be.
        max: u32,
    },
    /// Nothing to hand out yet.
    NotReady {
        /// How far the owner is.
        phase: Phase,
    },
    /// The owner is shutting down.
    Draining,
    /// The client wants another owner process than this one.
    StaleInstance {
        /// This one.
        have: [u8; 16],
        /// The one it wants.
        want: [u8; 16],
    },
    /// The client wants another generation than the one held.
    StaleGeneration {
        /// The one held.
        have: u64,
        /// The one it wants.
        want: u64,
    },
    /// The client wants a model that is not held.
    UnknownModel {
        /// The models held.
        have: Vec<String>,
        /// The one it wants.
        want: String,
    },
    /// The client cannot read a layout in use.
    MissingCapability {
        /// The layout.
        capability: String,
        /// The owner flag that would avoid it.
        avoid_with: String,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::BadRequest { reason } => write!(f, "bad request: {reason}"),
            Refusal::Protocol { min, max } => write!(f, "the owner speaks protocol {min} to {max}"),
            Refusal::User { uid, rule } => write!(f, "uid {uid} may not attach: {rule}"),
            Refusal::Busy { max } => write!(f, "the owner has {max} connections, as many as it takes"),
            Refusal::NotReady { phase } => write!(f, "the owner is not ready: {phase}"),
            Refusal::Draining => f.write_str("the owner is shutting down"),
            Refusal::StaleInstance { have, want } => {
                write!(f, "the owner is instance {}, not {}", Hex(have), Hex(want))
            }
            Refusal::StaleGeneration { have, want } => write!(f, "the owner holds generation {have}, not {want}"),
            Refusal::UnknownModel { have, want } => {
                write!(f, "the owner holds {}, not {want:?}", have.join(", "))
            }
            Refusal::MissingCapability { capability, avoid_with } => {
                write!(f, "the worker cannot read {capability:?}; an owner started with {avoid_with} does without it")
            }
        }
    }
}

struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// What the owner tells its clients unasked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Event {
    /// It is shutting down. What is mapped stays valid.
    Draining {
        /// How long it waits for its clients to leave, in milliseconds.
        wait_ms: u64,
    },
}

/// How an owner is.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct OwnerStatus {
    /// The owner process, in hexadecimal.
    pub instance: String,
    /// What it holds or is loading.
    pub generation: u64,
    /// How far it is.
    #[serde(flatten)]
    pub phase: Phase,
    /// Its process id.
    pub pid: u32,
    /// Milliseconds since it started.
    pub uptime_ms: u64,
    /// Where its manifest is, or will be.
    pub manifest: String,
    /// The models held or being loaded, as id and path.
    pub models: Vec<(String, String)>,
    /// Number of ranges; 0 before it is ready.
    pub ranges: u64,
    /// Bytes held; 0 before it is ready.
    pub bytes: u64,
    /// The memory table of its start.
    pub memory: Vec<MemoryTerm>,
    /// Its workers, oldest first.
    pub workers: Vec<WorkerStatus>,
}

/// One line of the memory table.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct MemoryTerm {
    /// What it is.
    pub term: String,
    /// How much.
    pub bytes: u64,
    /// Where the figure comes from.
    pub source: String,
}

/// One lease.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct WorkerStatus {
    /// Its name in logs.
    pub worker_id: String,
    /// Its process id, as the kernel saw it.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// Milliseconds since it attached.
    pub since_ms: u64,
    /// Bytes it says it has mapped.
    pub imported_bytes: u64,
}
