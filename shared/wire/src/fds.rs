//! One send and one receive with file descriptors attached, and descriptors that a program was started with.
//!
//! The kernel installs descriptors in our table and hands over plain numbers; [`own`] is where a number becomes a
//! value that closes itself.
#![allow(unsafe_code)]

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// The kernel's limit for one message (SCM_MAX_FD).
pub const FDS_PER_MESSAGE_MAX: usize = 253;

/// Header of a control message on 64-bit Linux: length (8 bytes), level (4), type (4).
const CONTROL_HEADER: usize = 16;
/// Room for the most descriptors that one message carries.
const CONTROL_MAX: usize = CONTROL_HEADER + (FDS_PER_MESSAGE_MAX * size_of::<RawFd>()).next_multiple_of(8);

/// What one receive brought.
pub(crate) struct Received {
    /// Bytes read; 0 at the end of the stream.
    pub(crate) len: usize,
    /// Descriptors that came with them.
    pub(crate) fds: Vec<OwnedFd>,
    /// Whether the kernel had to drop some descriptors.
    pub(crate) dropped: bool,
}

/// Sends some of `bytes`, and all of `fds` with the first of them. Never blocks, never raises SIGPIPE.
pub(crate) fn send_some(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<usize, Errno> {
    let raw: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let control = if raw.is_empty() { &[][..] } else { &rights[..] };
    let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
    sendmsg::<()>(socket.as_raw_fd(), &[IoSlice::new(bytes)], control, flags, None)
}

/// Receives into `buffer`. Never blocks. Descriptors are closed on exec.
pub(crate) fn receive_some(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<Received, Errno> {
    let mut control = vec![0; CONTROL_MAX];
    let mut slices = [IoSliceMut::new(buffer)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC | MsgFlags::MSG_DONTWAIT;
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut slices, Some(&mut control), flags)?;
    let len = message.bytes;
    let mut fds = Vec::new();
    let dropped = match message.cmsgs() {
        Ok(messages) => {
            for message in messages {
                if let ControlMessageOwned::ScmRights(raw) = message {
                    fds.extend(raw.into_iter().map(own));
                }
            }
            false
        }
        // Some descriptors did not fit our table. Those that did are in the buffer and open: they must be closed.
        Err(_) => {
            fds.extend(installed(&control).map(own));
            true
        }
    };
    Ok(Received { len, fds, dropped })
}

/// The descriptors that the kernel installed, from the first control message of a receive that it had to cut.
fn installed(control: &[u8]) -> impl Iterator<Item = RawFd> + '_ {
    let (header, rest) = control.split_at(CONTROL_HEADER);
    let claimed = header.first_chunk().map_or(0, |bytes| usize::from_ne_bytes(*bytes));
    let kind = [libc_int(&header[8..]), libc_int(&header[12..])];
    let len = if kind == [SOL_SOCKET, SCM_RIGHTS] { claimed.saturating_sub(CONTROL_HEADER) } else { 0 };
    rest[..len.min(rest.len())].chunks_exact(size_of::<RawFd>()).map(libc_int)
}

const SOL_SOCKET: i32 = nix::libc::SOL_SOCKET;
const SCM_RIGHTS: i32 = nix::libc::SCM_RIGHTS;

fn libc_int(bytes: &[u8]) -> i32 {
    bytes.first_chunk().map_or(-1, |bytes| i32::from_ne_bytes(*bytes))
}

/// One datagram and the descriptors that came with it: what a service manager receives. Never blocks: without one it is an error.
pub fn datagram(socket: BorrowedFd<'_>) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut buffer = vec![0; 1 << 16];
    loop {
        match receive_some(socket, &mut buffer) {
            Ok(received) if received.dropped => return Err(io::Error::other("no room for the descriptors")),
            Ok(received) => {
                buffer.truncate(received.len);
                return Ok((buffer, received.fds));
            }
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// The first descriptor that a service manager passes on.
const FIRST_INHERITED: usize = 3;

/// Takes over `count` descriptors that this program was started with, from number 3 on, as a service manager passes
/// them. They are closed when something else is executed from now on. An error when they are not there, belong to this
/// program itself, or were taken before.
pub fn inherited(count: usize) -> io::Result<Vec<OwnedFd>> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidInput, why);
    let numbers = FIRST_INHERITED..FIRST_INHERITED.saturating_add(count);
    for number in numbers.clone() {
        if is_closed_on_exec(number)? {
            return Err(invalid(format!("descriptor {number} is this program's own")));
        }
    }
    if TAKEN.swap(true, Ordering::SeqCst) {
        return Err(invalid("they were taken before".to_owned()));
    }
    let fds: Vec<OwnedFd> = numbers.map(|number| own(number as RawFd)).collect();
    for fd in &fds {
        fcntl(fd, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    }
    Ok(fds)
}

/// Whether an open descriptor ends with the next program. All that this program opens do; what it was started with cannot.
fn is_closed_on_exec(number: usize) -> io::Result<bool> {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}"))?;
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:")).map(str::trim);
    let flags = flags.and_then(|flags| i32::from_str_radix(flags, 8).ok());
    let flags = flags.ok_or_else(|| io::Error::other(format!("no flags of descriptor {number} in {text:?}")))?;
    Ok(OFlag::from_bits_retain(flags).contains(OFlag::O_CLOEXEC))
}

/// Takes ownership of a descriptor that nothing in this program owns.
fn own(fd: RawFd) -> OwnedFd {
    // SAFETY: `receive_some` passes each number of one successful recvmsg call exactly once; the kernel opened that
    // descriptor in this process for that call, so it is open and no other value of this program owns it. `inherited`
    // passes, once in the life of the process, numbers that are open and not closed on exec: everything that this
    // program opens, through std and nix, is, so these were open before it began and nothing in it owns them.
    unsafe { OwnedFd::from_raw_fd(fd) }
}
