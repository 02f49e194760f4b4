//! One connection of a keeper.

use super::memory_fd::objection;
use super::sets::{Deposit, Holder, Sets};
use crate::bell::wait;
use crate::listener::{CONNECTIONS_MAX, Serve};
use ds4_wire::{Connection, Deadline, FDS_PER_MESSAGE_MAX, KeeperRefusal, KeeperReply, KeeperRequest, WireError};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;
use tracing::{debug, info, warn};

/// From the first byte of a message to its last, in either direction.
const MESSAGE: Duration = Duration::from_secs(5);
/// Bytes of a set's name.
const NAME_MAX: usize = 64;

impl Serve for Sets {
    fn serve(&self, connection: &Connection) {
        let peer = match connection.peer() {
            Ok(peer) => peer,
            Err(error) => return warn!(%error, "connection refused"),
        };
        if peer.uid != nix::unistd::geteuid().as_raw() {
            warn!(pid = peer.pid, uid = peer.uid, "peer refused");
            let refused = KeeperReply::Refused(KeeperRefusal::User { uid: peer.uid });
            // It is being turned away; whether it hears why is its own affair.
            let _ = connection.send(&refused, Deadline::after(MESSAGE));
            return;
        }
        let mut session = Session { holder: self.holder(peer), pid: peer.pid, pending: None };
        match session.talk(connection, self) {
            Ok(()) | Err(WireError::Closed) => {}
            Err(error) if error.is_gone() => debug!(pid = peer.pid, %error, "connection lost"),
            Err(error) => warn!(pid = peer.pid, %error, "connection dropped"),
        }
    }

    fn turn_away(&self, connection: &Connection) {
        let quota = KeeperRefusal::Quota { what: "connections".to_owned(), max: CONNECTIONS_MAX as u64 };
        // The buffer of a new connection is empty.
        let _ = connection.send(&KeeperReply::Refused(quota), Deadline::after(Duration::ZERO));
    }
}

struct Session<'a> {
    holder: Holder<'a>,
    pid: u32,
    /// A deposit that is not complete yet, and how many descriptors it will have.
    pending: Option<(Deposit, u32)>,
}

impl Session<'_> {
    fn talk(&mut self, connection: &Connection, sets: &Sets) -> Result<(), WireError> {
        loop {
            let waited = wait([connection.as_fd(), sets.closing.as_fd()], None);
            let [_, closing] = waited.map_err(|source| WireError::Io { action: "wait on the connection", source })?;
            if closing {
                return Ok(());
            }
            let deadline = Deadline::after(MESSAGE);
            let (request, fds) = match connection.receive_with_fds::<KeeperRequest>(deadline) {
                Ok(received) => received,
                Err(error) if error.is_recoverable() => {
                    let reason = error.to_string();
                    connection.send(&KeeperReply::Refused(KeeperRefusal::BadRequest { reason }), deadline)?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            if let KeeperRequest::Fds { set, first, count } = &request {
                self.give(connection, set, *first, *count)?;
                continue;
            }
            let reply = self.answer(request, fds).unwrap_or_else(|refusal| {
                warn!(pid = self.pid, %refusal, "refused");
                KeeperReply::Refused(refusal)
            });
            connection.send(&reply, deadline)?;
        }
    }

    fn answer(&mut self, request: KeeperRequest, fds: Vec<OwnedFd>) -> Result<KeeperReply, KeeperRefusal> {
        let is_park = matches!(request, KeeperRequest::Park { .. });
        if !is_park && !fds.is_empty() {
            return Err(bad("descriptors came with a request that has none"));
        }
        match request {
            KeeperRequest::Park { set, generation, fingerprint, first, total, orphaned_s } => {
                if set.is_empty() || set.len() > NAME_MAX {
                    return Err(bad("a name has 1 to 64 bytes"));
                }
                let orphaned = orphaned_s.map(|seconds| Duration::from_secs(seconds.into()));
                let deposit = Deposit { set, generation, fingerprint, orphaned, fds };
                self.park(deposit, first, total).inspect_err(|_| self.pending = None)?;
            }
            KeeperRequest::Find { set } => return Ok(KeeperReply::Found(self.holder.find(&set))),
            KeeperRequest::List { prefix } => return Ok(KeeperReply::Listed(self.holder.list(&prefix))),
            KeeperRequest::Adopt { set, fingerprint } => {
                self.holder.adopt(&set, fingerprint)?;
                info!(pid = self.pid, set, "adopted");
            }
            KeeperRequest::Forget { set } => {
                self.holder.forget(&set)?;
                info!(pid = self.pid, set, "forgotten");
            }
            KeeperRequest::Fds { .. } => return Err(bad("not a request without descriptors in its answer")),
        }
        Ok(KeeperReply::Done)
    }

    /// Adds a message's descriptors to a deposit, and keeps it when it is complete.
    fn park(&mut self, part: Deposit, first: u32, total: u32) -> Result<(), KeeperRefusal> {
        self.holder.check_quota(&part.set, total)?;
        let numbers = first..first.saturating_add(part.fds.len() as u32);
        for (number, fd) in numbers.clone().zip(&part.fds) {
            if let Some(reason) = objection(fd.as_fd()) {
                return Err(KeeperRefusal::NotMemory { number, reason });
            }
        }
        let (deposit, total) = match self.pending.take() {
            None if first == 0 => (part, total),
            Some((mut deposit, promised)) => {
                let continues = (&deposit.set, deposit.generation, deposit.fingerprint, deposit.orphaned, promised)
                    == (&part.set, part.generation, part.fingerprint, part.orphaned, total);
                if !continues || deposit.fds.len() != first as usize {
                    return Err(bad("this is not the next part of the deposit under way"));
                }
                deposit.fds.extend(part.fds);
                (deposit, total)
            }
            None => return Err(bad("a deposit begins with descriptor 0")),
        };
        match deposit.fds.len() as u64 {
            0 => Err(bad("a set has descriptors")),
            count if count > u64::from(total) => Err(bad("more descriptors than the set has")),
            count if count < u64::from(total) => {
                self.pending = Some((deposit, total));
                Ok(())
            }
            fds => {
                let (set, generation) = (deposit.set.clone(), deposit.generation);
                self.holder.park(deposit)?;
                info!(pid = self.pid, set, generation, fds, "parked");
                Ok(())
            }
        }
    }

    fn give(&self, connection: &Connection, set: &str, first: u32, count: u32) -> Result<(), WireError> {
        let deadline = Deadline::after(MESSAGE);
        let kept = match self.holder.fds(set) {
            Ok(kept) => kept,
            Err(refusal) => return connection.send(&KeeperReply::Refused(refusal), deadline),
        };
        let end = (first as usize).saturating_add(count as usize);
        match kept.get(first as usize..end) {
            Some(fds) if (1..=FDS_PER_MESSAGE_MAX).contains(&fds.len()) => {
                let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
                connection.send_with_fds(&KeeperReply::Fds { first, count }, &fds, deadline)
            }
            _ => connection.send(&KeeperReply::Refused(bad("no such descriptors, or too many at once")), deadline),
        }
    }
}

fn bad(reason: &str) -> KeeperRefusal {
    KeeperRefusal::BadRequest { reason: reason.to_owned() }
}
