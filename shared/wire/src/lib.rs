//! What an owner, its workers and its keeper say to each other over Unix sockets, and how file descriptors travel with
//! it.
//!
//! A message is one frame: a 32-bit little-endian length and a bincode body of at most 1 MiB. A client speaks first
//! and gets one [`Reply`] for each [`Request`], except that the owner may send [`Reply::Event`] at any time. The open
//! connection is the lease: there is no message that returns it, closing does.
//!
//! This crate knows both ends and no policy: who may attach and for how long is the owner's business.

mod connection;
mod deadline;
mod error;
mod fd_limit;
mod fds;
mod frame;
mod keeper;
mod message;

pub use connection::{Connection, Peer};
pub use deadline::Deadline;
pub use error::WireError;
pub use fd_limit::raise_fd_limit;
pub use fds::{FDS_PER_MESSAGE_MAX, datagram, inherited};
pub use frame::{FRAME_BODY_MAX, decode, encode};
pub use keeper::{BANK_SETS, Keeper, KeeperError, KeeperRefusal, KeeperReply, KeeperRequest, KeptSet};
pub use message::{
    Event, Hello, MemoryTerm, OwnerStatus, PROTO_MAX, PROTO_MIN, Phase, RangeSize, Refusal, Reply, Request, Want,
    Welcome, WorkerStatus,
};
