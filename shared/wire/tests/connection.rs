//! Two ends of a real socket: file descriptors, slow ends, ends that vanish.

use ds4_wire::{Connection, Deadline, Event, FDS_PER_MESSAGE_MAX, Hello, Refusal, Reply, Request, WireError};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;
use std::time::Duration;

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}

fn now() -> Deadline {
    Deadline::after(Duration::from_millis(30))
}

fn pair() -> (Connection, Connection) {
    let (left, right) = UnixStream::pair().unwrap();
    (Connection::new(left).unwrap(), Connection::new(right).unwrap())
}

/// A connection and the bare socket at its other end.
fn against_raw() -> (Connection, UnixStream) {
    let (left, right) = UnixStream::pair().unwrap();
    (Connection::new(left).unwrap(), right)
}

fn fds_reply(count: usize) -> Reply {
    Reply::Fds { first: 0, count: count as u32 }
}

#[test]
fn a_full_batch_of_descriptors_arrives_in_order_and_closed_on_exec() {
    let (left, right) = pair();
    let files: Vec<File> = (0..FDS_PER_MESSAGE_MAX)
        .map(|index| {
            let mut file = tempfile::tempfile().unwrap();
            write!(file, "{index}").unwrap();
            file
        })
        .collect();
    let fds: Vec<BorrowedFd<'_>> = files.iter().map(AsFd::as_fd).collect();
    left.send_with_fds(&fds_reply(fds.len()), &fds, soon()).unwrap();
    left.send(&Reply::Done, soon()).unwrap();
    let (reply, received) = right.receive_with_fds::<Reply>(soon()).unwrap();
    assert_eq!(reply, fds_reply(FDS_PER_MESSAGE_MAX));
    assert_eq!(received.len(), FDS_PER_MESSAGE_MAX);
    for (index, fd) in received.into_iter().enumerate() {
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd())).unwrap();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap().trim();
        assert_ne!(u32::from_str_radix(flags, 8).unwrap() & 0o2000000, 0, "closed on exec");
        let mut text = String::new();
        std::io::Seek::rewind(&mut File::from(fd.try_clone().unwrap())).unwrap();
        File::from(fd).read_to_string(&mut text).unwrap();
        assert_eq!(text, index.to_string());
    }
    assert_eq!(right.receive::<Reply>(soon()).unwrap(), Reply::Done);
}

#[test]
fn one_descriptor_too_many_is_refused_before_sending() {
    let (left, _right) = pair();
    let file = tempfile::tempfile().unwrap();
    let fds = vec![file.as_fd(); FDS_PER_MESSAGE_MAX + 1];
    assert!(matches!(left.send_with_fds(&fds_reply(254), &fds, soon()), Err(WireError::TooManyFds { count: 254 })));
}

#[test]
fn descriptors_that_nobody_asked_for_are_closed() {
    let (left, right) = pair();
    let (mut reader, writer) = std::io::pipe().unwrap();
    left.send_with_fds(&Reply::Done, &[writer.as_fd(), writer.as_fd()], soon()).unwrap();
    drop(writer);
    assert!(matches!(right.receive::<Reply>(soon()), Err(WireError::UnexpectedFds { count: 2 })));
    // Only once the last writing end is closed does this end.
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).unwrap();
}

#[test]
fn descriptors_of_a_message_nobody_reads_are_closed_with_the_connection() {
    let (left, right) = pair();
    let (mut reader, writer) = std::io::pipe().unwrap();
    left.send_with_fds(&Reply::Done, &[writer.as_fd()], soon()).unwrap();
    drop((writer, right, left));
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).unwrap();
}

#[test]
fn a_message_larger_than_the_socket_buffer_arrives_whole() {
    let (left, right) = pair();
    let hello = Request::Hello(Hello { worker_id: "w".repeat(900_000), ..Hello::default() });
    let expected = hello.clone();
    let sender = thread::spawn(move || left.send(&hello, soon()));
    assert_eq!(right.receive::<Request>(soon()).unwrap(), expected);
    sender.join().unwrap().unwrap();
}

#[test]
fn an_end_that_does_not_read_times_the_sender_out() {
    let (left, _right) = pair();
    let hello = Request::Hello(Hello { worker_id: "w".repeat(900_000), ..Hello::default() });
    assert!(matches!(left.send(&hello, now()), Err(WireError::TimedOut)));
}

#[test]
fn an_end_that_stops_inside_a_message_times_the_receiver_out() {
    for sent in [&b""[..], b"\x04\x00", b"\x04\x00\x00\x00ab"] {
        let (left, mut raw) = against_raw();
        raw.write_all(sent).unwrap();
        assert!(matches!(left.receive::<Request>(now()), Err(WireError::TimedOut)), "{sent:?}");
    }
}

#[test]
fn the_end_of_the_stream_is_told_from_a_cut() {
    let (left, raw) = against_raw();
    drop(raw);
    let error = left.receive::<Request>(soon()).unwrap_err();
    assert!(matches!(error, WireError::Closed) && error.is_gone());
    let (left, mut raw) = against_raw();
    raw.write_all(b"\x09\x00\x00\x00abc").unwrap();
    drop(raw);
    assert!(matches!(left.receive::<Request>(soon()), Err(WireError::Cut { missing: 6 })));
}

#[test]
fn sending_to_an_end_that_is_gone_is_an_error_and_no_signal() {
    let (left, right) = pair();
    drop(right);
    assert!(left.send(&Request::Status, soon()).unwrap_err().is_gone());
}

#[test]
fn a_length_beyond_the_limit_is_refused_before_the_body() {
    let (left, mut raw) = against_raw();
    raw.write_all(&(1_048_577u32).to_le_bytes()).unwrap();
    assert!(matches!(left.receive::<Request>(soon()), Err(WireError::TooLong { len: 1_048_577 })));
}

#[test]
fn the_connection_goes_on_after_a_message_that_cannot_be_understood() {
    let (left, mut raw) = against_raw();
    raw.write_all(b"\x01\x00\x00\x00\x63\x00\x00\x00\x00").unwrap();
    let right = Connection::new(raw).unwrap();
    right.send(&Request::Status, soon()).unwrap();
    assert!(left.receive::<Request>(soon()).unwrap_err().is_recoverable());
    assert!(left.receive::<Request>(soon()).unwrap_err().is_recoverable());
    assert_eq!(left.receive::<Request>(soon()).unwrap(), Request::Status);
}

#[test]
fn the_peer_is_who_the_kernel_says() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let listener = UnixListener::bind(&path).unwrap();
    let client = Connection::connect(&path, soon()).unwrap();
    let server = Connection::new(listener.accept().unwrap().0).unwrap();
    assert_eq!(server.peer().unwrap().pid, std::process::id());
    assert_eq!(client.peer().unwrap().uid, server.peer().unwrap().uid);
}

#[test]
fn a_listener_that_never_accepts_times_the_connector_out() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let _listener = UnixListener::bind(&path).unwrap();
    let mut waiting = Vec::new();
    let error = loop {
        match Connection::connect(&path, now()) {
            Ok(connection) => waiting.push(connection),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, WireError::TimedOut), "{error}");
}

#[test]
fn an_answer_is_found_behind_the_events_before_it() {
    let (client, owner) = pair();
    for wait_ms in [1, 2] {
        owner.send(&Reply::Event(Event::Draining { wait_ms }), soon()).unwrap();
    }
    owner.send(&Reply::Done, soon()).unwrap();
    let mut events = Vec::new();
    assert_eq!(client.ask(&Request::Status, soon(), |event| events.push(event)).unwrap(), Reply::Done);
    assert_eq!(events, [Event::Draining { wait_ms: 1 }, Event::Draining { wait_ms: 2 }]);
}

#[test]
fn the_reason_for_being_turned_away_is_heard_after_the_door_is_shut() {
    let (client, owner) = pair();
    owner.send(&Reply::Refused(Refusal::Busy { max: 64 }), soon()).unwrap();
    drop(owner);
    let reply = client.ask(&Request::Status, soon(), |_| {}).unwrap();
    assert_eq!(reply, Reply::Refused(Refusal::Busy { max: 64 }));
}
