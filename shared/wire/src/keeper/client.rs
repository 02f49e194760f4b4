//! A client's end of a connection to a keeper.

use super::{KeeperRefusal, KeeperReply, KeeperRequest, KeptSet};
use crate::{Connection, Deadline, FDS_PER_MESSAGE_MAX, WireError};
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;
use thiserror::Error;

/// How long a keeper has for an answer.
const ANSWER: Duration = Duration::from_secs(5);
/// Between two looks whether a holder that has just died has let go.
const PAUSE: Duration = Duration::from_millis(10);

/// What a keeper did not do.
#[derive(Debug, Error)]
pub enum KeeperError {
    /// The connection failed.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// It refuses.
    #[error("the keeper refuses: {0}")]
    Refused(KeeperRefusal),
    /// It answers something else than it should.
    #[error("the keeper answers something else")]
    WrongReply,
}

impl KeeperError {
    /// Whether the keeper is gone or cannot be talked to any more; else it has refused one request.
    pub fn is_lost(&self) -> bool {
        !matches!(self, KeeperError::Refused(_))
    }
}

/// A connection to a keeper, and the lease of what is parked or adopted over it. Calls block for some seconds at most.
#[derive(Debug)]
pub struct Keeper {
    connection: Connection,
    pid: u32,
}

impl Keeper {
    /// Connects to the keeper behind a socket; `None` if nobody is there. Refuses a keeper of another user.
    pub fn connect(socket: &Path) -> Result<Option<Keeper>, KeeperError> {
        let connection = match Connection::connect(socket, Deadline::after(ANSWER)) {
            Ok(connection) => connection,
            Err(WireError::Io { source, .. })
                if matches!(source.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        let peer = connection.peer()?;
        if peer.uid != nix::unistd::geteuid().as_raw() {
            return Err(KeeperError::Refused(KeeperRefusal::User { uid: peer.uid }));
        }
        Ok(Some(Keeper { connection, pid: peer.pid }))
    }

    /// The keeper's process, as the kernel saw it.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// What is kept under a name. While another process holds its lease, looks again for up to `patience`: the kernel
    /// closes the connections of a killed process a moment after its death.
    pub fn find(&self, set: &str, patience: Duration) -> Result<Option<KeptSet>, KeeperError> {
        let deadline = Deadline::after(patience);
        loop {
            match self.ask(&KeeperRequest::Find { set: set.to_owned() }, &[])? {
                (KeeperReply::Found(Some(found)), _) if found.leased_by.is_some() && !deadline.is_over() => {
                    std::thread::sleep(PAUSE);
                }
                (KeeperReply::Found(found), _) => return Ok(found),
                _ => return Err(KeeperError::WrongReply),
            }
        }
    }

    /// Takes a set over, with all its descriptors.
    pub fn adopt(&self, set: &str, found: &KeptSet) -> Result<Vec<OwnedFd>, KeeperError> {
        let name = || set.to_owned();
        self.done(&KeeperRequest::Adopt { set: name(), fingerprint: found.fingerprint }, &[])?;
        let mut all = Vec::with_capacity(found.fds as usize);
        while all.len() < found.fds as usize {
            let first = all.len() as u32;
            let count = (found.fds - first).min(FDS_PER_MESSAGE_MAX as u32);
            match self.ask(&KeeperRequest::Fds { set: name(), first, count }, &[])? {
                (reply, fds) if reply == (KeeperReply::Fds { first, count }) && fds.len() == count as usize => {
                    all.extend(fds);
                }
                _ => return Err(KeeperError::WrongReply),
            }
        }
        Ok(all)
    }

    /// Everything that is kept under names that begin so.
    pub fn list(&self, prefix: &str) -> Result<Vec<(String, KeptSet)>, KeeperError> {
        match self.ask(&KeeperRequest::List { prefix: prefix.to_owned() }, &[])? {
            (KeeperReply::Listed(listed), _) => Ok(listed),
            _ => Err(KeeperError::WrongReply),
        }
    }

    /// Parks a set, in place of what is kept under its name. `orphaned_s` is how long it stays when this connection is gone.
    pub fn park(
        &self,
        set: &str,
        (generation, fingerprint): (u64, [u8; 32]),
        orphaned_s: Option<u32>,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), KeeperError> {
        let total = fds.len() as u32;
        let parts = fds.chunks(FDS_PER_MESSAGE_MAX).zip((0..).step_by(FDS_PER_MESSAGE_MAX));
        for (part, first) in parts {
            let set = set.to_owned();
            self.done(&KeeperRequest::Park { set, generation, fingerprint, first, total, orphaned_s }, part)?;
        }
        Ok(())
    }

    /// Lets go of a set; false if there is none.
    pub fn forget(&self, set: &str) -> Result<bool, KeeperError> {
        match self.done(&KeeperRequest::Forget { set: set.to_owned() }, &[]) {
            Ok(()) => Ok(true),
            Err(KeeperError::Refused(KeeperRefusal::Unknown)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Lets go of every set under names that begin so whose lease is closed; says how many there were.
    pub fn forget_orphans(&self, prefix: &str) -> Result<usize, KeeperError> {
        let mut forgotten = 0;
        for (set, kept) in self.list(prefix)? {
            // One that has found a holder meanwhile stays.
            if kept.leased_by.is_none()
                && !matches!(self.forget(&set), Err(KeeperError::Refused(KeeperRefusal::Leased { .. })))
            {
                forgotten += 1;
            }
        }
        Ok(forgotten)
    }

    fn done(&self, request: &KeeperRequest, fds: &[BorrowedFd<'_>]) -> Result<(), KeeperError> {
        match self.ask(request, fds)? {
            (KeeperReply::Done, _) => Ok(()),
            _ => Err(KeeperError::WrongReply),
        }
    }

    fn ask(&self, request: &KeeperRequest, fds: &[BorrowedFd<'_>]) -> Result<(KeeperReply, Vec<OwnedFd>), KeeperError> {
        match self.connection.ask_keeper(request, fds, Deadline::after(ANSWER))? {
            (KeeperReply::Refused(refusal), _) => Err(KeeperError::Refused(refusal)),
            answer => Ok(answer),
        }
    }
}

/// Readable when the keeper has gone: it says nothing unasked.
impl AsFd for Keeper {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}
