//! The broker against clients that are wrong, slow, many, dying, or somebody else.

use crate::kit::{PATIENCE, Rig, ask, greet, hello, open_fds, soon, status, until};
use ds4_tests::Process;
use ds4_wire::{Connection, Deadline, FRAME_BODY_MAX, Hello, Phase, Refusal, Reply, Request, Want, WireError, encode};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Steps of the exchange at which a client can die.
const STEPS: u64 = 13;
/// Connections that one doomed process holds when it is killed; the broker takes 64.
const PER_PROCESS: u64 = 50;
/// Tells the test program to be a doomed client.
const DOOMED: &str = "DS4_TEST_DOOMED_CLIENT";

fn refusal(reply: Reply) -> Refusal {
    match reply {
        Reply::Refused(refusal) => refusal,
        other => panic!("no refusal but {other:?}"),
    }
}

/// A whole exchange, as a worker does it; returns the lengths of the ranges received.
fn whole_exchange(rig: &Rig) -> Vec<u64> {
    let connection = rig.connect();
    let welcome = greet(&connection).unwrap();
    assert_eq!(welcome.phase, Phase::Ready);
    let Reply::Ranges { generation, ranges } = ask(&connection, &Request::Ranges).unwrap() else { panic!("ranges") };
    let request = Request::Fds { generation, first: 0, count: ranges.len() as u32 };
    let (_, fds) = connection.ask_with_fds(&request, soon(), |_| {}).unwrap();
    let lens: Vec<u64> = fds.into_iter().map(|fd| fs::File::from(fd).metadata().unwrap().len()).collect();
    assert_eq!(lens, ranges.iter().map(|range| range.len).collect::<Vec<_>>());
    assert_eq!(ask(&connection, &Request::Ready { imported_bytes: lens.iter().sum() }).unwrap(), Reply::Done);
    lens
}

#[test]
fn after_a_thousand_clients_killed_at_every_step_the_next_is_served_and_no_descriptor_is_left() {
    let rig = Rig::new();
    let owner = rig.ready(&[]);
    let baseline = open_fds(&owner);
    for round in 0..1000 / PER_PROCESS {
        let mut client = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "broker::a_doomed_client", "--ignored", "--nocapture"])
            .env(DOOMED, format!("{round} {}", rig.socket().display()))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // It says so when all its connections are where they are to die.
        let mut output = client.stdout.take().unwrap();
        let mut said = Vec::new();
        let mut byte = [0];
        while !said.ends_with(b"in place") {
            assert_eq!(output.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&said));
            said.push(byte[0]);
        }
        client.kill().unwrap();
        client.wait().unwrap();
        // The broker takes 64 at a time: the next fifty wait until these are gone.
        until("the end of all leases", || open_fds(&owner) == baseline);
    }
    assert_eq!(whole_exchange(&rig).len(), 2);
    until("the end of the last lease", || open_fds(&owner) == baseline);
    assert_eq!(status(&rig.connect()).unwrap().workers, []);
    let ended = owner.terminate().unwrap();
    assert_eq!(ended.code(), Some(0), "{}", ended.output);
}

/// Not a test: what the test above runs and kills.
#[test]
#[ignore = "a child process of another test"]
fn a_doomed_client() {
    let Ok(told) = std::env::var(DOOMED) else { return };
    let (round, socket) = told.split_once(' ').unwrap();
    let first = round.parse::<u64>().unwrap() * PER_PROCESS;
    let held: Vec<_> = (first..first + PER_PROCESS).map(|number| die_at(number % STEPS, socket)).collect();
    println!("in place");
    std::io::stdout().flush().unwrap();
    std::thread::sleep(PATIENCE);
    drop(held);
}

/// Goes as far as `step` and stops there.
fn die_at(step: u64, socket: &str) -> Box<dyn std::any::Any> {
    let mut raw = UnixStream::connect(socket).unwrap();
    let frame = |request: &Request| {
        let body = encode(request).unwrap();
        [&(body.len() as u32).to_le_bytes()[..], &body].concat()
    };
    let greeting = frame(&Request::Hello(hello()));
    match step {
        0 => {}
        1 => raw.write_all(&greeting[..2]).unwrap(),
        2 => raw.write_all(&greeting[..greeting.len() / 2]).unwrap(),
        3 => raw.write_all(&greeting).unwrap(),
        4 => raw.write_all(&u32::MAX.to_le_bytes()).unwrap(),
        5 => raw.write_all(&[7, 0, 0, 0, 99, 99, 99, 99, 99, 99, 99]).unwrap(),
        _ => {}
    }
    if step < 6 {
        return Box::new(raw);
    }
    let connection = Connection::new(raw).unwrap();
    greet(&connection).unwrap();
    let fds = Request::Fds { generation: 1, first: 0, count: 2 };
    match step {
        6 => {}
        7 => connection.send(&Request::Ranges, soon()).unwrap(),
        8 => drop(ask(&connection, &Request::Ranges).unwrap()),
        9 => connection.send(&fds, soon()).unwrap(),
        10 => return Box::new((connection.ask_with_fds(&fds, soon(), |_| {}).unwrap(), connection)),
        11 => (0..20).for_each(|_| connection.send(&fds, soon()).unwrap()),
        _ => drop(ask(&connection, &Request::Ready { imported_bytes: 1 }).unwrap()),
    }
    Box::new(connection)
}

#[test]
fn silent_and_half_silent_clients_delay_nobody_and_are_hung_up_on() {
    let rig = Rig::new();
    let owner = rig.ready(&[]);
    let mut silent: Vec<UnixStream> = (0..20).map(|_| UnixStream::connect(rig.socket()).unwrap()).collect();
    silent.iter_mut().step_by(2).for_each(|client| client.write_all(&[9, 0]).unwrap());
    assert_eq!(whole_exchange(&rig).len(), 2);
    // The deadline for a handshake passes.
    for mut client in silent {
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        // The end, or a reset because of the half message.
        match client.read_to_end(&mut Vec::new()) {
            Ok(count) => assert_eq!(count, 0),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
        }
    }
    owner.terminate().unwrap();
}

#[test]
fn a_client_that_never_reads_its_answers_loses_its_connection_only() {
    let rig = Rig::new();
    let owner = rig.ready(&[]);
    let greedy = rig.connect();
    greet(&greedy).unwrap();
    // Ask until the answers no longer fit anywhere; the owner then waits for us, and gives up.
    let lost = loop {
        if let Err(error) = greedy.send(&Request::Status, Deadline::after(Duration::from_millis(500))) {
            break error;
        }
    };
    assert!(matches!(lost, WireError::TimedOut) || lost.is_gone(), "{lost}");
    assert_eq!(whole_exchange(&rig).len(), 2);
    until("the end of the greedy lease", || status(&rig.connect()).unwrap().workers.is_empty());
    owner.terminate().unwrap();
}

#[test]
fn the_65th_connection_is_told_to_come_back_and_may() {
    let rig = Rig::new();
    let owner = rig.ready(&[]);
    let mut held: Vec<Connection> = (0..64).map(|_| rig.connect()).collect();
    for connection in &held {
        greet(connection).unwrap();
    }
    let busy = rig.connect();
    assert_eq!(refusal(ask(&busy, &Request::Status).unwrap()), Refusal::Busy { max: 64 });
    held.pop();
    until("room for one more", || greet(&rig.connect()).is_ok());
    owner.terminate().unwrap();
}

#[test]
fn whatever_ids_its_clients_have_an_owner_answers_how_it_is() {
    let rig = Rig::new();
    let owner = rig.ready(&[]);
    let called = |len: usize| Request::Hello(Hello { worker_id: "w".repeat(len), ..hello() });
    let first = rig.connect();
    for len in [FRAME_BODY_MAX - 100, 129] {
        let refused = refusal(ask(&first, &called(len)).unwrap());
        let says = format!("a worker's id has 128 bytes at most, this one has {len}");
        assert!(refused.to_string().contains(&says), "{refused}");
    }
    // As many as there may be, with the longest ids there may be.
    let clients: Vec<Connection> = std::iter::once(first).chain((1..64).map(|_| rig.connect())).collect();
    for client in &clients {
        assert!(matches!(ask(client, &called(128)).unwrap(), Reply::Welcome(_)));
    }
    assert_eq!(status(&clients[63]).unwrap().workers.len(), 64);
    owner.terminate().unwrap();
}

#[test]
fn requests_that_make_no_sense_are_answered_and_the_connection_goes_on() {
    let rig = Rig::new();
    let owner = rig.ready(&[]);
    let connection = rig.connect();
    let not_yet = refusal(ask(&connection, &Request::Ranges).unwrap());
    assert!(matches!(not_yet, Refusal::NotReady { .. }), "{not_yet}");
    greet(&connection).unwrap();
    let again = refusal(ask(&connection, &Request::Hello(hello())).unwrap());
    assert!(again.to_string().contains("attached already"), "{again}");
    for (first, count) in [(0, 0), (0, 3), (2, 1), (u32::MAX, u32::MAX), (0, 254)] {
        let bad = refusal(ask(&connection, &Request::Fds { generation: 1, first, count }).unwrap());
        assert!(bad.to_string().contains("there are 2"), "{bad}");
    }
    let stale = refusal(ask(&connection, &Request::Fds { generation: 7, first: 0, count: 1 }).unwrap());
    assert_eq!(stale, Refusal::StaleGeneration { have: 1, want: 7 });
    assert!(matches!(ask(&connection, &Request::Ranges).unwrap(), Reply::Ranges { .. }));
    assert_eq!(ask(&connection, &Request::Bye).unwrap_err().to_string(), "the other end closed the connection");
    owner.terminate().unwrap();
}

#[test]
fn an_unknown_operation_is_answered_and_the_connection_goes_on() {
    let rig = Rig::new();
    let owner = rig.ready(&[]);
    let mut raw = UnixStream::connect(rig.socket()).unwrap();
    raw.write_all(&[1, 0, 0, 0, 99]).unwrap();
    let connection = Connection::new(raw).unwrap();
    let answer = refusal(connection.receive::<Reply>(soon()).unwrap());
    assert!(matches!(answer, Refusal::BadRequest { .. }), "{answer}");
    assert_eq!(greet(&connection).unwrap().phase, Phase::Ready);
    owner.terminate().unwrap();
}

#[test]
fn a_hello_for_something_else_names_both_sides() {
    let rig = Rig::new();
    let owner = rig.ready(&[]);
    let instance = rig.read_manifest().instance.0;
    let want = |want: Want| Hello { want, ..hello() };
    let cases = [
        (Hello { proto_min: 7, proto_max: 9, ..hello() }, Refusal::Protocol { min: 1, max: 1 }),
        (want(Want { generation: Some(9), ..Want::default() }), Refusal::StaleGeneration { have: 1, want: 9 }),
        (
            want(Want { instance: Some([0; 16]), ..Want::default() }),
            Refusal::StaleInstance { have: instance, want: [0; 16] },
        ),
        (
            want(Want { model: Some("mtp".into()), ..Want::default() }),
            Refusal::UnknownModel { have: vec!["base".into()], want: "mtp".into() },
        ),
    ];
    for (hello, expected) in cases {
        assert_eq!(refusal(ask(&rig.connect(), &Request::Hello(hello)).unwrap()), expected);
    }
    owner.terminate().unwrap();
}

#[test]
fn another_user_is_refused_by_name_unless_allowed() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: only root can start a process as another user");
        return;
    }
    let rig = Rig::new();
    // The other user must be able to reach program and socket.
    for folder in [rig.path().to_owned(), rig.run_dir()] {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let program = rig.path().join("ds4-weightd");
    fs::copy(env!("CARGO_BIN_EXE_ds4-weightd"), &program).unwrap();
    let look = |uid: u32| {
        let mut command = Command::new(&program);
        command.arg("--status").arg("--run-dir").arg(rig.run_dir()).uid(uid).gid(uid);
        ds4_tests::run(command).unwrap()
    };
    let owner: Process = rig.ready(&["--allow-uid", "4001", "--allow-gid", "4002"]);
    let refused = look(4003);
    assert_eq!(refused.code(), Some(14), "{}", refused.output);
    assert!(refused.output.contains("uid 4003 may not attach: uid 0 and root may"), "{}", refused.output);
    assert!(refused.output.contains("--allow-uid 4001"), "{}", refused.output);
    assert_eq!(look(4001).code(), Some(0));
    assert_eq!(look(4002).code(), Some(0));
    let mut release = Command::new(&program);
    release.arg("--release").arg("--run-dir").arg(rig.run_dir()).uid(4001).gid(4001);
    let ended = ds4_tests::run(release).unwrap();
    assert_eq!(ended.code(), Some(1), "{}", ended.output);
    assert!(ended.output.contains("may shut the owner down"), "{}", ended.output);
    let ended = owner.terminate().unwrap();
    assert!(ended.output.contains("peer refused"), "{}", ended.output);
}
