//! One end of a connection: whole messages, each within a deadline.

use crate::fds::{FDS_PER_MESSAGE_MAX, receive_some, send_some};
use crate::{Deadline, Event, FRAME_BODY_MAX, Reply, Request, WireError, decode, encode};
use bincode::{Decode, Encode};
use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, getsockopt, socket};
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long to wait before another try where the kernel gives nothing to wait on.
const RETRY: Duration = Duration::from_millis(5);

/// The process at the other end, as the kernel saw it when it connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Process id; 0 if it is in a process namespace we cannot see. For logs only.
    pub pid: u32,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// A connection. Dropping it closes it.
#[derive(Debug)]
pub struct Connection {
    socket: UnixStream,
}

impl Connection {
    /// Takes over an accepted or paired socket.
    pub fn new(socket: UnixStream) -> Result<Connection, WireError> {
        socket.set_nonblocking(true).map_err(|source| WireError::Io { action: "set up the connection", source })?;
        Ok(Connection { socket })
    }

    /// Connects to the socket at `path`. Blocks until `deadline` when the listener's queue is full.
    pub fn connect(path: &Path, deadline: Deadline) -> Result<Connection, WireError> {
        let failed = |errno: Errno| WireError::Io { action: "connect to the owner", source: errno.into() };
        let address = UnixAddr::new(path).map_err(failed)?;
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None).map_err(failed)?;
        loop {
            match connect(socket.as_raw_fd(), &address) {
                Ok(()) => return Ok(Connection { socket: UnixStream::from(socket) }),
                Err(Errno::EAGAIN) if deadline.is_over() => return Err(WireError::TimedOut),
                Err(Errno::EAGAIN) => std::thread::sleep(RETRY),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(failed(errno)),
            }
        }
    }

    /// Who is at the other end.
    pub fn peer(&self) -> Result<Peer, WireError> {
        let credentials = getsockopt(&self.socket, PeerCredentials)
            .map_err(|errno| WireError::Io { action: "ask who connected", source: errno.into() })?;
        let pid = u32::try_from(credentials.pid()).unwrap_or(0);
        Ok(Peer { pid, uid: credentials.uid(), gid: credentials.gid() })
    }

    /// Sends one message. Blocks until the kernel has taken all of it.
    pub fn send(&self, message: &impl Encode, deadline: Deadline) -> Result<(), WireError> {
        self.send_with_fds(message, &[], deadline)
    }

    /// Sends one message with file descriptors.
    pub fn send_with_fds(
        &self,
        message: &impl Encode,
        fds: &[BorrowedFd<'_>],
        deadline: Deadline,
    ) -> Result<(), WireError> {
        if fds.len() > FDS_PER_MESSAGE_MAX {
            return Err(WireError::TooManyFds { count: fds.len() });
        }
        let body = encode(message)?;
        let mut frame = (body.len() as u32).to_le_bytes().to_vec();
        frame.extend_from_slice(&body);
        let mut sent = 0;
        while sent < frame.len() {
            let fds = if sent == 0 { fds } else { &[] };
            match send_some(self.socket.as_fd(), &frame[sent..], fds) {
                Ok(count) => sent += count,
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => deadline.wait(self.socket.as_fd(), PollFlags::POLLOUT)?,
                // The other end holds too many descriptors it has not read yet.
                Err(Errno::ETOOMANYREFS) if deadline.is_over() => return Err(WireError::TimedOut),
                Err(Errno::ETOOMANYREFS) => std::thread::sleep(RETRY),
                Err(errno) => return Err(WireError::Io { action: "send", source: errno.into() }),
            }
        }
        Ok(())
    }

    /// Receives one message that carries no file descriptors; if some come, they are closed and it is an error.
    pub fn receive<M: Decode<()>>(&self, deadline: Deadline) -> Result<M, WireError> {
        let (message, fds) = self.receive_with_fds(deadline)?;
        if fds.is_empty() { Ok(message) } else { Err(WireError::UnexpectedFds { count: fds.len() }) }
    }

    /// Receives one message and the file descriptors that came with it.
    pub fn receive_with_fds<M: Decode<()>>(&self, deadline: Deadline) -> Result<(M, Vec<OwnedFd>), WireError> {
        let mut fds = Vec::new();
        let mut header = [0; 4];
        self.fill(&mut header, &mut fds, deadline).map_err(|error| match error {
            WireError::Cut { missing: 4 } => WireError::Closed,
            error => error,
        })?;
        let len = u32::from_le_bytes(header) as usize;
        if len > FRAME_BODY_MAX {
            return Err(WireError::TooLong { len: len as u64 });
        }
        let mut body = vec![0; len];
        self.fill(&mut body, &mut fds, deadline)?;
        Ok((decode(&body)?, fds))
    }

    /// Sends a request and receives its answer; events that come first go to `on_event`.
    pub fn ask(&self, request: &Request, deadline: Deadline, on_event: impl FnMut(Event)) -> Result<Reply, WireError> {
        let (reply, fds) = self.ask_with_fds(request, deadline, on_event)?;
        if fds.is_empty() { Ok(reply) } else { Err(WireError::UnexpectedFds { count: fds.len() }) }
    }

    /// [`Connection::ask`] for an answer that carries file descriptors.
    pub fn ask_with_fds(
        &self,
        request: &Request,
        deadline: Deadline,
        mut on_event: impl FnMut(Event),
    ) -> Result<(Reply, Vec<OwnedFd>), WireError> {
        // An owner that turns a client away says why before it hangs up: the answer may be there although the
        // request can no longer be sent.
        let sent = match self.send(request, deadline) {
            Err(error) if !error.is_gone() => return Err(error),
            sent => sent,
        };
        loop {
            match self.receive_with_fds(deadline) {
                Ok((Reply::Event(event), fds)) if fds.is_empty() => on_event(event),
                Ok((Reply::Event(_), fds)) => return Err(WireError::UnexpectedFds { count: fds.len() }),
                Ok(answer) => return Ok(answer),
                Err(error) => return Err(sent.err().unwrap_or(error)),
            }
        }
    }

    /// Reads exactly `buffer`, so that descriptors are never taken from the message after.
    fn fill(&self, buffer: &mut [u8], fds: &mut Vec<OwnedFd>, deadline: Deadline) -> Result<(), WireError> {
        let mut filled = 0;
        while filled < buffer.len() {
            match receive_some(self.socket.as_fd(), &mut buffer[filled..]) {
                Ok(received) => {
                    fds.extend(received.fds);
                    if received.dropped {
                        return Err(WireError::NoRoomForFds { got: fds.len() });
                    }
                    if fds.len() > FDS_PER_MESSAGE_MAX {
                        return Err(WireError::TooManyFds { count: fds.len() });
                    }
                    if received.len == 0 {
                        return Err(WireError::Cut { missing: buffer.len() - filled });
                    }
                    filled += received.len;
                }
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => deadline.wait(self.socket.as_fd(), PollFlags::POLLIN)?,
                Err(errno) => return Err(WireError::Io { action: "receive", source: errno.into() }),
            }
        }
        Ok(())
    }

    /// Ends the connection in both directions, which wakes whoever waits on it, here and at the other end.
    pub fn shut_down(&self) {
        // An error says that it has ended already.
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    /// Another handle on the same connection.
    pub fn try_clone(&self) -> io::Result<Connection> {
        Ok(Connection { socket: self.socket.try_clone()? })
    }
}

/// Readable when a message, or the end, has come.
impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
