//! One connection: one client, which can only harm itself.
//!
//! Three kinds of trouble: a client that breaks the protocol, stalls or vanishes costs its own connection; a request
//! that makes no sense gets an answer that says so; nothing a client does ends the owner.

use crate::access::Access;
use crate::bell::wait;
use crate::store::{Lease, Store};
use ds4_units::Bytes;
use ds4_wire::{Connection, Deadline, Event, FDS_PER_MESSAGE_MAX, Peer, RangeSize, Refusal, Reply, Request, WireError};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;
use tracing::{debug, warn};

/// From connecting to a granted `Hello`.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// From the first byte of a message to its last, in either direction.
const MESSAGE: Duration = Duration::from_secs(5);

/// Why a connection ends without an error.
enum Next {
    Stay,
    HangUp,
}

/// What a connection needs to know of the owner.
pub(crate) struct Session<'a> {
    pub(crate) store: &'a Arc<Store>,
    pub(crate) access: &'a Access,
    pub(crate) own_uid: u32,
    pub(crate) drain_timeout: Duration,
}

impl Session<'_> {
    /// Serves a connection until it ends. Blocks.
    pub(crate) fn serve(&self, connection: &Connection) {
        let peer = match connection.peer() {
            Ok(peer) => peer,
            Err(error) => return warn!(%error, "connection refused"),
        };
        if !self.access.allows(self.own_uid, peer) {
            warn!(pid = peer.pid, uid = peer.uid, gid = peer.gid, "peer refused");
            let refusal = Refusal::User { uid: peer.uid, rule: self.access.rule(self.own_uid) };
            // It is being turned away; whether it hears why is its own affair.
            let _ = connection.send(&Reply::Refused(refusal), Deadline::after(MESSAGE));
            return;
        }
        match self.talk(connection, peer) {
            Ok(()) | Err(WireError::Closed) => {}
            Err(error) if error.is_gone() => debug!(pid = peer.pid, %error, "connection lost"),
            Err(error) => warn!(pid = peer.pid, %error, "connection dropped"),
        }
    }

    fn talk(&self, connection: &Connection, peer: Peer) -> Result<(), WireError> {
        let handshake = Deadline::after(HANDSHAKE);
        let mut greeted = false;
        let mut told = false;
        let mut lease = None;
        loop {
            let timeout = (!greeted).then(|| handshake.left());
            // Once told, the bell that stays rung must not wake us again: wait on the other one twice.
            let draining = if told { self.store.closing.as_fd() } else { self.store.draining.as_fd() };
            let waited = wait([connection.as_fd(), draining, self.store.closing.as_fd()], timeout);
            let [readable, draining, closing] =
                waited.map_err(|source| WireError::Io { action: "wait on the connection", source })?;
            if draining && !told {
                told = true;
                let wait_ms = u64::try_from(self.drain_timeout.as_millis()).unwrap_or(u64::MAX);
                // Without waiting: whoever reads its messages has room for this one.
                connection.send(&Reply::Event(Event::Draining { wait_ms }), Deadline::after(Duration::ZERO))?;
            }
            if closing {
                return Ok(());
            }
            if readable {
                let deadline = if greeted { Deadline::after(MESSAGE) } else { handshake };
                match connection.receive::<Request>(deadline) {
                    Ok(request) => match self.answer(connection, peer, request, &mut greeted, &mut lease)? {
                        Next::Stay => {}
                        Next::HangUp => return Ok(()),
                    },
                    Err(error) if error.is_recoverable() => {
                        self.refuse(connection, Refusal::BadRequest { reason: error.to_string() })?;
                    }
                    Err(error) => return Err(error),
                }
            }
            if !greeted && handshake.is_over() {
                return Err(WireError::TimedOut);
            }
        }
    }

    fn answer(
        &self,
        connection: &Connection,
        peer: Peer,
        request: Request,
        greeted: &mut bool,
        lease: &mut Option<Lease>,
    ) -> Result<Next, WireError> {
        let reply = match request {
            Request::Hello(_) if lease.is_some() => bad("this connection is attached already"),
            Request::Hello(hello) => match self.store.admit(&hello, peer) {
                Ok((welcome, granted)) => {
                    *greeted = true;
                    *lease = granted;
                    Reply::Welcome(welcome)
                }
                Err(refusal) => {
                    warn!(pid = peer.pid, %refusal, "worker refused");
                    let hang_up = matches!(refusal, Refusal::Protocol { .. });
                    self.refuse(connection, refusal)?;
                    return Ok(if hang_up { Next::HangUp } else { Next::Stay });
                }
            },
            Request::Status => Reply::Status(Box::new(self.store.status())),
            Request::Drain if self.access.administers(self.own_uid, peer) => {
                self.store.ask_release();
                Reply::Done
            }
            Request::Drain => Reply::Refused(Refusal::User {
                uid: peer.uid,
                rule: format!("only uid {} and root may shut the owner down", self.own_uid),
            }),
            Request::Bye => return Ok(Next::HangUp),
            Request::Ranges | Request::Fds { .. } | Request::Ready { .. } => match lease {
                Some(lease) => return self.lend(connection, lease, &request).map(|()| Next::Stay),
                None => Reply::Refused(Refusal::NotReady { phase: self.store.phase_now() }),
            },
        };
        connection.send(&reply, Deadline::after(MESSAGE))?;
        Ok(Next::Stay)
    }

    /// Answers what only a lease may ask.
    fn lend(&self, connection: &Connection, lease: &Lease, request: &Request) -> Result<(), WireError> {
        let deadline = Deadline::after(MESSAGE);
        let held = &lease.holdings;
        let generation = held.manifest.generation;
        match *request {
            Request::Ranges => {
                let table = held.ranges.iter().zip(0..).map(|(range, id)| RangeSize { id, len: range.len().0 });
                connection.send(&Reply::Ranges { generation, ranges: table.collect() }, deadline)
            }
            Request::Fds { generation: want, .. } if want != generation => {
                self.refuse(connection, Refusal::StaleGeneration { have: generation, want })
            }
            Request::Fds { first, count, .. } => {
                let end = (first as usize).saturating_add(count as usize);
                match held.ranges.get(first as usize..end) {
                    Some(ranges) if (1..=FDS_PER_MESSAGE_MAX).contains(&ranges.len()) => {
                        let fds: Vec<BorrowedFd<'_>> = ranges.iter().map(|range| range.fd()).collect();
                        connection.send_with_fds(&Reply::Fds { first, count }, &fds, deadline)
                    }
                    _ => connection.send(
                        &bad(&format!(
                            "{count} ranges from {first}: there are {}, and a message carries 1 to {FDS_PER_MESSAGE_MAX}",
                            held.ranges.len()
                        )),
                        deadline,
                    ),
                }
            }
            Request::Ready { imported_bytes } => {
                lease.set_imported(Bytes(imported_bytes));
                connection.send(&Reply::Done, deadline)
            }
            _ => connection.send(&bad("not a request of a lease"), deadline),
        }
    }

    fn refuse(&self, connection: &Connection, refusal: Refusal) -> Result<(), WireError> {
        connection.send(&Reply::Refused(refusal), Deadline::after(MESSAGE))
    }
}

fn bad(reason: &str) -> Reply {
    Reply::Refused(Refusal::BadRequest { reason: reason.to_owned() })
}
