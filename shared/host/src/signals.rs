//! SIGTERM and SIGINT as a flag to look at and a file descriptor to wait on.

use signal_hook::consts::{SIGINT, SIGTERM};
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The process's stop signals. Install it before the first large allocation, once per process; while it lives (and
/// after), the signals no longer end the process by themselves.
pub struct StopSignals {
    requested: Arc<AtomicBool>,
    wakeup: UnixStream,
}

impl StopSignals {
    /// Takes over SIGTERM and SIGINT.
    pub fn install() -> io::Result<StopSignals> {
        let requested = Arc::new(AtomicBool::new(false));
        let (wakeup, sender) = UnixStream::pair()?;
        wakeup.set_nonblocking(true)?;
        for signal in [SIGTERM, SIGINT] {
            // The flag first: whoever wakes up finds it set.
            signal_hook::flag::register(signal, requested.clone())?;
            signal_hook::low_level::pipe::register(signal, sender.try_clone()?)?;
        }
        Ok(StopSignals { requested, wakeup })
    }

    /// Whether a stop was asked for.
    pub fn is_requested(&self) -> bool {
        self.requested.load(Ordering::SeqCst)
    }

    /// The flag itself, for code that checks it between pieces of work.
    pub fn flag(&self) -> Arc<AtomicBool> {
        self.requested.clone()
    }

    /// Signals that came since the last call. Does not block.
    pub fn take(&self) -> usize {
        let mut buffer = [0; 64];
        let mut count = 0;
        loop {
            match (&self.wakeup).read(&mut buffer) {
                Ok(0) => return count,
                Ok(n) => count += n,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return count,
            }
        }
    }
}

/// Readable once a signal has come and until [`StopSignals::take`] is called.
impl AsFd for StopSignals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wakeup.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::signal::{Signal, raise};

    #[test]
    fn a_signal_sets_the_flag_and_wakes_the_waiter() {
        let signals = StopSignals::install().unwrap();
        assert!(!signals.is_requested());
        assert_eq!(signals.take(), 0);
        raise(Signal::SIGTERM).unwrap();
        raise(Signal::SIGINT).unwrap();
        assert!(signals.is_requested());
        assert_eq!(signals.take(), 2);
        assert_eq!(signals.take(), 0);
    }
}
