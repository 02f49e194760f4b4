//! What a service manager is told, where one has started the program: systemd's protocol of `NOTIFY_SOCKET`.
//!
//! Without a service manager nothing happens. A message that cannot be sent is logged and changes nothing else: the
//! manager's time-outs decide what it makes of the silence.

use sd_notify::NotifyState;
use std::io;
use std::os::fd::BorrowedFd;
use tracing::warn;

/// The program does its work from now on.
pub fn ready() {
    tell(&[NotifyState::Ready]);
}

/// The program has begun to end.
pub fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// One line for people who ask the manager how the program is.
pub fn status(text: &str) {
    tell(&[NotifyState::Status(text)]);
}

/// Gives the manager a descriptor to hold for the program's next start, under a name that no other has.
pub fn store_fd(name: &str, fd: BorrowedFd<'_>) -> io::Result<()> {
    // An odd state of a descriptor is no reason to drop it: whoever takes it back looks at it.
    let unpolled = NotifyState::Custom("FDPOLL=0");
    sd_notify::notify_with_fds(&[NotifyState::FdStore, NotifyState::FdName(name), unpolled], &[fd])
}

/// Lets the manager close what it holds under a name.
pub fn remove_fd(name: &str) -> io::Result<()> {
    sd_notify::notify(&[NotifyState::FdStoreRemove, NotifyState::FdName(name)])
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        warn!(%error, "the service manager cannot be told");
    }
}
