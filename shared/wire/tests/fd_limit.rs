//! A process at its limit of open files. Alone in its binary: the limit is the process's.

use ds4_wire::{Connection, Deadline, Reply, WireError};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

fn open_fds() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn descriptors_that_find_no_room_are_an_error_and_none_leaks() {
    let soon = Deadline::after(Duration::from_secs(20));
    let (left, right) = UnixStream::pair().unwrap();
    let (left, right) = (Connection::new(left).unwrap(), Connection::new(right).unwrap());
    let file = tempfile::tempfile().unwrap();
    let before = open_fds();
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, before as u64 + 9, hard).unwrap();
    left.send_with_fds(&Reply::Fds { first: 0, count: 100 }, &vec![file.as_fd(); 100], soon).unwrap();
    let error = right.receive_with_fds::<Reply>(soon).unwrap_err();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    assert!(matches!(error, WireError::NoRoomForFds { got } if (1..100).contains(&got)), "{error}");
    assert!(error.to_string().contains("LimitNOFILE"));
    assert_eq!(open_fds(), before);
}
