//! What a keeper and its clients say to each other. A keeper holds descriptors while owners and workers come and go:
//! those of weights, and those of conversations.
//!
//! The connection on which a set was parked or adopted is its lease: as long as it is open nobody else can adopt the
//! set, and when it closes the descriptors stay.

mod client;

pub use client::{Keeper, KeeperError};

use crate::{Connection, Deadline, WireError};
use bincode::{Decode, Encode};
use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};

/// How the names of sets begin that hold a conversation each.
pub const BANK_SETS: &str = "bank-";

/// What a keeper is asked.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum KeeperRequest {
    /// Deposits descriptors, which come with the message, as numbers `first` and following of `total`. With the last of
    /// them the set takes the place of the one of its name.
    Park {
        /// Name of the set.
        set: String,
        /// What its owner publishes.
        generation: u64,
        /// What the set is of: only who asks for the same may adopt it.
        fingerprint: [u8; 32],
        /// Number of the first descriptor of this message.
        first: u32,
        /// How many the set has in all.
        total: u32,
        /// How long it is kept once its lease has closed; `None` for as long as the keeper lives.
        orphaned_s: Option<u32>,
    },
    /// Asks what is kept under a name.
    Find {
        /// Name of the set.
        set: String,
    },
    /// Takes a set over, whose lease must be closed. This connection is its lease from here on.
    Adopt {
        /// Name of the set.
        set: String,
        /// What it must be of.
        fingerprint: [u8; 32],
    },
    /// Asks for descriptors of a set that this connection has adopted.
    Fds {
        /// Name of the set.
        set: String,
        /// Number of the first.
        first: u32,
        /// How many.
        count: u32,
    },
    /// Asks what is kept under names that begin so.
    List {
        /// How they begin.
        prefix: String,
    },
    /// Lets go of a set. Others must not hold its lease.
    Forget {
        /// Name of the set.
        set: String,
    },
}

/// What a keeper answers.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum KeeperReply {
    /// To `Park`, `Adopt` and `Forget`.
    Done,
    /// To `Find`.
    Found(Option<KeptSet>),
    /// To `List`: names and sets, in the order of the names.
    Listed(Vec<(String, KeptSet)>),
    /// To `Fds`: the descriptors came with this message.
    Fds {
        /// Number of the first.
        first: u32,
        /// How many.
        count: u32,
    },
    /// To a request that is not granted. The connection stays open.
    Refused(KeeperRefusal),
}

/// A set that is kept.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct KeptSet {
    /// What its owner published last.
    pub generation: u64,
    /// What it is of.
    pub fingerprint: [u8; 32],
    /// Its descriptors.
    pub fds: u32,
    /// The process that holds its lease, if one does.
    pub leased_by: Option<u32>,
}

/// Why a keeper does not do something.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum KeeperRefusal {
    /// The request cannot be understood, or makes no sense now.
    BadRequest {
        /// What is wrong.
        reason: String,
    },
    /// The client's user is not the keeper's. The keeper hangs up.
    User {
        /// The user seen.
        uid: u32,
    },
    /// There is no such set.
    Unknown,
    /// Another process holds its lease.
    Leased {
        /// Which.
        pid: u32,
    },
    /// The set is of something else.
    OtherContent,
    /// More than a keeper holds.
    Quota {
        /// Of what.
        what: String,
        /// How many it holds.
        max: u64,
    },
    /// A descriptor whose memory could still change its size, or that is no memory at all.
    NotMemory {
        /// Its number in the set.
        number: u32,
        /// What is wrong with it.
        reason: String,
    },
}

impl fmt::Display for KeeperRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeeperRefusal::BadRequest { reason } => write!(f, "bad request: {reason}"),
            KeeperRefusal::User { uid } => write!(f, "the keeper is of another user than uid {uid}"),
            KeeperRefusal::Unknown => f.write_str("nothing is kept under that name"),
            KeeperRefusal::Leased { pid } => write!(f, "pid {pid} holds the set"),
            KeeperRefusal::OtherContent => f.write_str("what is kept is of other content or layout"),
            KeeperRefusal::Quota { what, max } => write!(f, "more {what} than the {max} that a keeper holds"),
            KeeperRefusal::NotMemory { number, reason } => write!(f, "descriptor {number}: {reason}"),
        }
    }
}

impl Connection {
    /// Sends a request to a keeper and receives its answer, either with descriptors.
    pub fn ask_keeper(
        &self,
        request: &KeeperRequest,
        fds: &[BorrowedFd<'_>],
        deadline: Deadline,
    ) -> Result<(KeeperReply, Vec<OwnedFd>), WireError> {
        // A keeper that turns a client away says why before it hangs up.
        let sent = match self.send_with_fds(request, fds, deadline) {
            Err(error) if !error.is_gone() => return Err(error),
            sent => sent,
        };
        self.receive_with_fds(deadline).map_err(|error| sent.err().unwrap_or(error))
    }
}
