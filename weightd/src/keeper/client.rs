//! The owner's end of a connection to a keeper.

use ds4_wire::{
    Connection, Deadline, FDS_PER_MESSAGE_MAX, KeeperRefusal, KeeperReply, KeeperRequest, KeptSet, WireError,
};
use std::io::ErrorKind;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;
use thiserror::Error;

/// How long a keeper has for an answer.
const ANSWER: Duration = Duration::from_secs(5);
/// Between two looks whether an owner that has just died has let go.
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

/// A connection to a keeper, and the lease of what is parked or adopted over it.
#[derive(Debug)]
pub(crate) struct Keeper {
    connection: Connection,
    pid: u32,
}

impl Keeper {
    /// Connects to the keeper behind a socket; `None` if nobody is there. Refuses a keeper of another user.
    pub(crate) fn connect(socket: &Path) -> Result<Option<Keeper>, KeeperError> {
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
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// What is kept under a name. While another process holds its lease, looks again for up to `patience`: the kernel
    /// closes the connections of a killed owner a moment after its death.
    pub(crate) fn find(&self, set: &str, patience: Duration) -> Result<Option<KeptSet>, KeeperError> {
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
    pub(crate) fn adopt(&self, set: &str, found: &KeptSet) -> Result<Vec<OwnedFd>, KeeperError> {
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

    /// Parks a set, in place of what is kept under its name.
    pub(crate) fn park(
        &self,
        set: &str,
        generation: u64,
        fingerprint: [u8; 32],
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), KeeperError> {
        let total = fds.len() as u32;
        let parts = fds.chunks(FDS_PER_MESSAGE_MAX).zip((0..).step_by(FDS_PER_MESSAGE_MAX));
        for (part, first) in parts {
            self.done(&KeeperRequest::Park { set: set.to_owned(), generation, fingerprint, first, total }, part)?;
        }
        Ok(())
    }

    /// Lets go of a set; false if there is none.
    pub(crate) fn forget(&self, set: &str) -> Result<bool, KeeperError> {
        match self.done(&KeeperRequest::Forget { set: set.to_owned() }, &[]) {
            Ok(()) => Ok(true),
            Err(KeeperError::Refused(KeeperRefusal::Unknown)) => Ok(false),
            Err(error) => Err(error),
        }
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
