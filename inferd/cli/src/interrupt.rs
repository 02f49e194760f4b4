//! Ctrl-C: the first one asks, the second one ends the process.

use crate::error::CliError;
use ds4_host::{Exit, StopSignals};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a stop was asked for.
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Takes over the stop signals. A thread waits for them, so that the second one works whatever the others do.
    pub(crate) fn install() -> Result<Interrupt, CliError> {
        let signals = StopSignals::install().map_err(CliError::Signals)?;
        let flag = signals.flag();
        let watch = move || {
            let mut count = 0;
            loop {
                let mut waiting = [PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
                // An error is an interrupted wait: look and wait again.
                let _ = poll(&mut waiting, PollTimeout::NONE);
                count += signals.take();
                if count > 1 {
                    std::process::exit(i32::from(Exit::Interrupted.code()));
                }
            }
        };
        std::thread::Builder::new().name("signals".into()).spawn(watch).map_err(CliError::Signals)?;
        Ok(Interrupt(flag))
    }

    /// Set once a stop was asked for.
    pub(crate) fn flag(&self) -> &AtomicBool {
        &self.0
    }

    pub(crate) fn is_requested(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}
