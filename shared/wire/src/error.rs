//! What can go wrong between two ends of a connection.

use crate::{FDS_PER_MESSAGE_MAX, FRAME_BODY_MAX};
use std::io;
use thiserror::Error;

/// A connection that failed, or one message on it that did.
#[derive(Debug, Error)]
pub enum WireError {
    /// The other end closed the connection between two messages.
    #[error("the other end closed the connection")]
    Closed,
    /// The other end closed the connection inside a message.
    #[error("the other end closed the connection inside a message, {missing} bytes before its end")]
    Cut {
        /// Bytes that did not come.
        missing: usize,
    },
    /// The other end did not send or take a whole message in time.
    #[error("the other end did not answer in time")]
    TimedOut,
    /// A message claims to be longer than any may be.
    #[error("a message of {len} bytes, more than the {FRAME_BODY_MAX} allowed")]
    TooLong {
        /// The length claimed.
        len: u64,
    },
    /// A whole message that is none of those known. The connection is still in step.
    #[error("a message that cannot be understood: {reason}")]
    Malformed {
        /// What the decoder found.
        reason: String,
    },
    /// File descriptors came where none belong. They are closed.
    #[error("{count} file descriptors came with a message that has none")]
    UnexpectedFds {
        /// How many.
        count: usize,
    },
    /// More or fewer file descriptors came than the message says. They are closed.
    #[error("{got} file descriptors came and the message says {want}")]
    FdCount {
        /// How many came.
        got: usize,
        /// How many it says.
        want: usize,
    },
    /// More file descriptors than one message can carry.
    #[error("{count} file descriptors for one message, which carries at most {FDS_PER_MESSAGE_MAX}")]
    TooManyFds {
        /// How many.
        count: usize,
    },
    /// The kernel could not give this process all the file descriptors sent. Those that came are closed.
    #[error("this process has no room for the file descriptors sent, only for {got}: raise its limit (LimitNOFILE=)")]
    NoRoomForFds {
        /// How many fitted.
        got: usize,
    },
    /// The system refused.
    #[error("{action}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl WireError {
    /// Whether the connection is in step and can go on after this error.
    pub fn is_recoverable(&self) -> bool {
        matches!(self, WireError::Malformed { .. })
    }

    /// Whether the other end is gone, as opposed to slow or wrong.
    pub fn is_gone(&self) -> bool {
        match self {
            WireError::Closed | WireError::Cut { .. } => true,
            WireError::Io { source, .. } => {
                matches!(source.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
            }
            _ => false,
        }
    }
}
