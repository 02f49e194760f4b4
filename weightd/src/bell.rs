//! Waking threads that wait in poll.

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Readable from the first ring until it is silenced; several threads can wait on one.
#[derive(Debug)]
pub(crate) struct Bell(EventFd);

impl Bell {
    pub(crate) fn new() -> io::Result<Bell> {
        Ok(Bell(EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?))
    }

    /// Wakes everyone who waits, now and later.
    pub(crate) fn ring(&self) {
        // It fails only when it has been rung 2^64 times: it is readable then.
        let _ = self.0.write(1);
    }

    /// Lets waiting block again.
    pub(crate) fn silence(&self) {
        // It fails only when it is silent already.
        let _ = self.0.read();
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Blocks until one of `fds` is readable or has ended, or until `timeout`; says which. All false is a timeout.
pub(crate) fn wait<const N: usize>(fds: [BorrowedFd<'_>; N], timeout: Option<Duration>) -> io::Result<[bool; N]> {
    let end = timeout.map(|timeout| Instant::now() + timeout);
    loop {
        let mut polled = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        let left = match end {
            None => PollTimeout::NONE,
            Some(end) => {
                let millis = end.saturating_duration_since(Instant::now()).as_micros().div_ceil(1000);
                PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX)
            }
        };
        match poll(&mut polled, left) {
            Err(Errno::EINTR) => {}
            Ok(0) if end.is_none_or(|end| Instant::now() < end) => {}
            Ok(_) => return Ok(polled.map(|fd| fd.any().unwrap_or(true))),
            Err(errno) => return Err(errno.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bell_wakes_until_it_is_silenced() {
        let (one, other) = (Bell::new().unwrap(), Bell::new().unwrap());
        let soon = Some(Duration::from_millis(1));
        assert_eq!(wait([one.as_fd(), other.as_fd()], soon).unwrap(), [false, false]);
        other.ring();
        other.ring();
        assert_eq!(wait([one.as_fd(), other.as_fd()], None).unwrap(), [false, true]);
        assert_eq!(wait([one.as_fd(), other.as_fd()], None).unwrap(), [false, true]);
        other.silence();
        assert_eq!(wait([one.as_fd(), other.as_fd()], soon).unwrap(), [false, false]);
    }
}
