//! A point in time until which an exchange may take, and waiting on a socket until then.

use crate::WireError;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// When to give up.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// This long from now.
    pub fn after(time: Duration) -> Deadline {
        Deadline(Instant::now().checked_add(time))
    }

    /// Waits as long as it takes.
    pub fn never() -> Deadline {
        Deadline(None)
    }

    /// The time left; zero once it has passed.
    pub fn left(self) -> Duration {
        self.0.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()))
    }

    /// Whether it has passed.
    pub fn is_over(self) -> bool {
        self.left().is_zero()
    }

    /// Blocks until `fd` has one of `events` or the deadline passes.
    pub(crate) fn wait(self, fd: BorrowedFd<'_>, events: PollFlags) -> Result<(), WireError> {
        loop {
            // Rounded up: a wait of less than a millisecond must not become a busy loop.
            let timeout = match self.0 {
                None => PollTimeout::NONE,
                Some(_) => PollTimeout::try_from(self.left().as_micros().div_ceil(1000)).unwrap_or(PollTimeout::MAX),
            };
            match poll(&mut [PollFd::new(fd, events)], timeout) {
                Ok(0) if self.is_over() => return Err(WireError::TimedOut),
                Ok(0) | Err(Errno::EINTR) => {}
                Ok(_) => return Ok(()),
                Err(errno) => return Err(WireError::Io { action: "wait on the connection", source: errno.into() }),
            }
        }
    }
}
