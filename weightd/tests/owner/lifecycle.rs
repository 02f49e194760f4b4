//! From the lock to the last byte: what is logged, what each ending leaves, what an earlier owner left.

use crate::kit::{PATIENCE, Rig, ask, greet, status, until, until_loading};
use ds4_manifest::{Digest, WeightsManifest};
use ds4_tests::{Finished, Process};
use ds4_wire::{Connection, Deadline, Event, Phase, Reply, Request};
use nix::sys::signal::Signal;
use std::fs;
use std::os::unix::net::UnixListener;
use std::thread;
use std::time::Duration;

/// Where each of these first stands in the output, in order.
fn in_order(ended: &Finished, lines: &[&str]) {
    let mut rest = ended.output.as_str();
    for line in lines {
        let Some(at) = rest.find(line) else { panic!("{line:?} is missing or out of order in\n{}", ended.output) };
        rest = &rest[at + line.len()..];
    }
}

#[test]
fn a_whole_life_logs_its_stable_lines_and_leaves_nothing() {
    let rig = Rig::new();
    let owner = rig.ready(&[]);
    assert_eq!(rig.left_behind(), ["weights.json", "weights.json.sock", "weights.lock"]);
    let manifest = rig.read_manifest();
    let ended = owner.terminate().unwrap();
    assert_eq!(ended.code(), Some(0), "{}", ended.output);
    let (path, bytes) = (rig.manifest(), manifest.totals.allocated.0);
    in_order(
        &ended,
        &[
            "backend=\"memfd\" reserve=0 B",
            &format!("broker listening path={}", rig.socket().display()),
            "running total",
            &format!(
                "ready manifest={} instance={} generation=1 ranges=2 bytes={bytes} load_s=",
                path.display(),
                manifest.instance
            ),
            " gib_per_s=",
            "draining workers=0",
            &format!("released bytes={bytes}"),
        ],
    );
    assert!(rig.left_behind().is_empty());
}

#[test]
fn the_manifest_is_there_only_while_the_broker_answers() {
    let rig = Rig::slow(512);
    let owner = rig.start(&[]);
    // From the first sight of the manifest on, an owner behind its socket hands out leases.
    until("the manifest", || rig.manifest().exists());
    assert_eq!(greet(&rig.connect()).unwrap().phase, Phase::Ready);
    owner.terminate().unwrap();
}

#[test]
fn an_owner_that_calls_itself_ready_has_published() {
    for _ in 0..10 {
        let rig = Rig::new();
        let owner = rig.start(&[]);
        until("ready", || {
            let Ok(connection) = Connection::connect(&rig.socket(), Deadline::after(PATIENCE)) else { return false };
            status(&connection).unwrap().phase == Phase::Ready
        });
        assert!(rig.manifest().exists());
        owner.terminate().unwrap();
    }
}

#[test]
fn a_loading_owner_answers_status_and_hello_with_its_progress() {
    let rig = Rig::slow(768);
    let owner = rig.start(&[]);
    let mut seen = Vec::new();
    until("ready", || {
        let Ok(connection) = Connection::connect(&rig.socket(), Deadline::after(PATIENCE)) else { return false };
        let welcome = greet(&connection).unwrap();
        assert_eq!(status(&connection).unwrap().instance.len(), 32);
        if let Phase::Loading { done, total, .. } = welcome.phase {
            assert!(done <= total && total >= 768 << 20);
            assert!(matches!(ask(&connection, &Request::Ranges).unwrap(), Reply::Refused(_)));
            if seen.is_empty() {
                let shown = rig.run(&["--status"]);
                assert!([Some(10), Some(0)].contains(&shown.code()), "{}", shown.output);
            }
            seen.push(done);
        }
        welcome.phase == Phase::Ready
    });
    assert!(seen.windows(2).all(|pair| pair[0] <= pair[1]), "{seen:?}");
    assert!(!seen.is_empty(), "it was loading for long enough to be asked");
    owner.terminate().unwrap();
}

#[test]
fn status_waits_for_an_owner_that_is_not_ready_yet() {
    let rig = Rig::slow(256);
    let waiting = Process::start(rig.weightd(&["--status", "--wait", "100", "--json"])).unwrap();
    let owner = rig.start(&[]);
    let ended = waiting.finish().unwrap();
    assert_eq!(ended.code(), Some(0), "{}", ended.output);
    let status: serde_json::Value = serde_json::from_str(&ended.output).unwrap();
    assert_eq!((status["state"].as_str(), status["pid"].as_i64()), (Some("ready"), Some(owner.pid().as_raw().into())));
    assert!(status["memory"].as_array().unwrap().iter().any(|term| term["term"] == "base weights"));
    owner.terminate().unwrap();
}

#[test]
fn a_signal_at_any_stage_leaves_nothing_behind() {
    let mut codes = Vec::new();
    for (round, signal) in (0..24).zip([Signal::SIGTERM, Signal::SIGINT].into_iter().cycle()) {
        let rig = Rig::slow(256);
        let owner = rig.start(&[]);
        match round {
            // The first lines of the program: before and after the signals are handled.
            0..4 => thread::sleep(Duration::from_millis(round)),
            4..8 => drop(owner.wait_for_line("starting").unwrap()),
            8..12 => drop(owner.wait_for_line("broker listening").unwrap()),
            12..16 => drop(owner.wait_for_line("running total").unwrap()),
            16..20 => until_loading(&rig),
            20..22 => until("the manifest", || rig.manifest().exists()),
            _ => drop(owner.wait_for_line("ready manifest=").unwrap()),
        }
        owner.signal(signal).unwrap();
        let ended = owner.finish().unwrap();
        assert!(rig.left_behind().is_empty(), "{:?}\n{}", rig.left_behind(), ended.output);
        // A signal before the program handles them ends it as usual.
        let early = ended.code().is_none() && !ended.output.contains("starting");
        let expected = if ended.output.contains("ready manifest=") { 0 } else { 8 };
        assert!(early || ended.code() == Some(expected), "round {round}: {:?}\n{}", ended.status, ended.output);
        codes.push(ended.code());
    }
    assert!(codes.contains(&Some(8)) && codes.contains(&Some(0)), "{codes:?}");
}

#[test]
fn of_two_owners_that_race_one_serves_and_the_other_ends_with_6() {
    let rig = Rig::new();
    let contenders: Vec<Process> = (0..6).map(|_| rig.start(&[])).collect();
    let mut serving = Vec::new();
    until("a decision", || contenders.iter().filter(|owner| owner.has_ended()).count() == 5 && rig.manifest().exists());
    for owner in contenders {
        if !owner.has_ended() {
            serving.push(owner);
            continue;
        }
        let ended = owner.finish().unwrap();
        assert_eq!(ended.code(), Some(6), "{}", ended.output);
        assert!(ended.output.contains("another owner holds the lock"), "{}", ended.output);
    }
    let [winner] = serving.try_into().ok().expect("one winner");
    assert_eq!(greet(&rig.connect()).unwrap().phase, Phase::Ready);
    let late = rig.run_owner(&[]);
    let pid = format!("pid {}, started ", winner.pid());
    assert!(late.code() == Some(6) && late.output.contains(&pid), "{}", late.output);
    assert!(late.output.contains(rig.manifest().to_str().unwrap()), "{}", late.output);
    assert_eq!(winner.terminate().unwrap().code(), Some(0));
    assert!(rig.left_behind().is_empty());
}

#[test]
fn owners_of_different_names_with_one_manifest_or_socket_do_not_touch_each_other() {
    let rig = Rig::new();
    let owner = rig.ready(&[]);
    let manifest = rig.manifest();
    let same_manifest = rig.run_owner(&["--name", "other", "--manifest", manifest.to_str().unwrap()]);
    assert_eq!(same_manifest.code(), Some(6), "{}", same_manifest.output);
    assert!(same_manifest.output.contains(&format!("pid {} serves", owner.pid())), "{}", same_manifest.output);
    let socket = rig.socket();
    let same_socket = rig.run_owner(&["--name", "other", "--broker-socket", socket.to_str().unwrap()]);
    assert_eq!(same_socket.code(), Some(6), "{}", same_socket.output);
    assert_eq!(greet(&rig.connect()).unwrap().phase, Phase::Ready);
    assert_eq!(rig.left_behind(), ["weights.json", "weights.json.sock", "weights.lock"]);
    owner.terminate().unwrap();
}

#[test]
fn the_manifest_of_a_killed_owner_is_refused_or_replaced_as_asked() {
    let rig = Rig::new();
    let owner = rig.ready(&[]);
    let pid = owner.pid();
    let instance = rig.read_manifest().instance;
    owner.kill().unwrap();
    assert_eq!(rig.left_behind().len(), 3, "a killed owner cleans nothing up");

    let looked = rig.run(&["--status"]);
    assert_eq!(looked.code(), Some(12), "{}", looked.output);
    let refused = rig.run_owner(&["--on-stale-manifest", "refuse"]);
    assert_eq!(refused.code(), Some(7), "{}", refused.output);
    for part in ["is stale", " s old", &format!("its owner, pid {pid}, is gone"), "--on-stale-manifest replace"] {
        assert!(refused.output.contains(part), "{part} is not in\n{}", refused.output);
    }
    assert!(rig.manifest().exists(), "a refusal changes nothing");

    let owner = rig.ready(&[]);
    let manifest = rig.read_manifest();
    assert_eq!((manifest.generation, manifest.instance == instance), (2, false));
    let ended = owner.terminate().unwrap();
    assert!(ended.output.contains("stale manifest replaced"), "{}", ended.output);
    assert!(rig.left_behind().is_empty());
}

/// Changes the text of a published manifest and seals it again, as the owner it names could have.
fn forge(rig: &Rig, from: &str, to: &str) {
    let text = fs::read_to_string(rig.manifest()).unwrap();
    let body = text.split(",\"sha256\":").next().unwrap().replace(from, to);
    assert!(!text.starts_with(&body), "{from} is in the manifest");
    fs::write(rig.manifest(), format!("{body},\"sha256\":\"{}\"}}\n", Digest::of(body.as_bytes()))).unwrap();
    WeightsManifest::parse(&fs::read(rig.manifest()).unwrap()).unwrap();
}

#[test]
fn a_manifest_from_before_the_last_boot_is_stale_whatever_its_pid() {
    let rig = Rig::new();
    rig.ready(&[]).kill().unwrap();
    let manifest = rig.read_manifest();
    // Process 1 always runs.
    forge(&rig, &format!("\"pid\":{}", manifest.owner.pid), "\"pid\":1");
    forge(&rig, &manifest.owner.boot_id, "00000000-0000-0000-0000-000000000000");
    let refused = rig.run_owner(&["--on-stale-manifest", "refuse"]);
    assert!(refused.code() == Some(7) && refused.output.contains("restarted since"), "{}", refused.output);
}

#[test]
fn a_reused_process_id_is_not_taken_for_the_owner() {
    let rig = Rig::new();
    rig.ready(&[]).kill().unwrap();
    let pid = rig.read_manifest().owner.pid;
    forge(&rig, &format!("\"pid\":{pid}"), &format!("\"pid\":{}", std::process::id()));
    let refused = rig.run_owner(&["--on-stale-manifest", "refuse"]);
    assert!(refused.code() == Some(7) && refused.output.contains("is another process now"), "{}", refused.output);
}

#[test]
fn an_owner_that_lives_and_does_not_answer_is_never_replaced() {
    let rig = Rig::new();
    let owner = rig.ready(&[]);
    owner.signal(Signal::SIGSTOP).unwrap();
    let manifest = rig.manifest();
    let ended = rig.run_owner(&["--name", "other", "--manifest", manifest.to_str().unwrap()]);
    assert_eq!(ended.code(), Some(7), "{}", ended.output);
    assert!(ended.output.contains("does not answer"), "{}", ended.output);
    let looked = rig.run(&["--status"]);
    assert_eq!(looked.code(), Some(14), "{}", looked.output);
    owner.signal(Signal::SIGCONT).unwrap();
    assert_eq!(owner.terminate().unwrap().code(), Some(0));
}

#[test]
fn what_is_no_manifest_is_left_alone() {
    let rig = Rig::new();
    for (text, code, says) in [
        ("notes to myself", 7, "truncated or edited"),
        ("DS4_WEIGHT_SERVER_VMM_V1\nowner 1 0 base -\n", 2, "text-form manifest"),
        ("{\"schema\":\"ds4.weights/9\"}", 7, "ds4.weights/9"),
    ] {
        fs::write(rig.manifest(), text).unwrap();
        let ended = rig.run_owner(&[]);
        assert_eq!(ended.code(), Some(code), "{}", ended.output);
        assert!(ended.output.contains(says), "{}", ended.output);
        assert_eq!(fs::read_to_string(rig.manifest()).unwrap(), text);
    }
}

#[test]
fn a_dead_socket_is_cleared_and_another_file_in_its_place_is_not() {
    let rig = Rig::new();
    drop(UnixListener::bind(rig.socket()).unwrap());
    assert_eq!(rig.ready(&[]).terminate().unwrap().code(), Some(0));
    fs::write(rig.socket(), "precious").unwrap();
    let ended = rig.run_owner(&[]);
    assert!(ended.code() == Some(2) && ended.output.contains("is not a socket"), "{}", ended.output);
    assert_eq!(fs::read_to_string(rig.socket()).unwrap(), "precious");
}

#[test]
fn a_draining_owner_tells_its_workers_waits_for_them_and_takes_no_new_ones() {
    let rig = Rig::new();
    let owner = rig.ready(&["--drain-timeout", "600"]);
    let worker = rig.connect();
    greet(&worker).unwrap();
    owner.signal(Signal::SIGTERM).unwrap();
    let told = worker.receive::<Reply>(Deadline::after(PATIENCE)).unwrap();
    assert_eq!(told, Reply::Event(Event::Draining { wait_ms: 600_000 }));
    assert!(!rig.manifest().exists(), "the manifest goes first");
    let late = rig.connect();
    assert!(greet(&late).unwrap_err().to_string().contains("Draining"));
    let looked = rig.run(&["--status"]);
    assert_eq!(looked.code(), Some(11), "{}", looked.output);
    assert!(!owner.has_ended());
    drop(worker);
    let ended = owner.finish().unwrap();
    assert_eq!(ended.code(), Some(0), "{}", ended.output);
    in_order(&ended, &["worker attached", "draining workers=1", "worker left", "released"]);
    assert!(rig.left_behind().is_empty());
}

#[test]
fn a_second_signal_or_a_timeout_ends_the_waiting() {
    for (timeout, signals) in [("600", 2), ("0", 1)] {
        let rig = Rig::new();
        let owner = rig.ready(&["--drain-timeout", timeout]);
        let worker = rig.connect();
        greet(&worker).unwrap();
        for _ in 0..signals {
            owner.signal(Signal::SIGTERM).unwrap();
            worker.receive::<Reply>(Deadline::after(PATIENCE)).ok();
        }
        let ended = owner.finish().unwrap();
        assert_eq!(ended.code(), Some(0), "{}", ended.output);
        assert!(ended.output.contains("workers keep what they have mapped"), "{}", ended.output);
        assert!(rig.left_behind().is_empty());
    }
}

#[test]
fn release_ends_a_serving_and_a_loading_owner() {
    // Its memory takes a moment to free, and the lock goes after it.
    let rig = Rig::slow(1024);
    let owner = rig.ready(&[]);
    assert_eq!(rig.run(&["--release"]).code(), Some(0));
    assert!(rig.left_behind().is_empty(), "another owner may start at once");
    assert_eq!(owner.finish().unwrap().code(), Some(0));
    let ended = rig.run(&["--release"]);
    assert_eq!(ended.code(), Some(13), "{}", ended.output);

    let rig = Rig::slow(768);
    let owner = rig.start(&[]);
    until_loading(&rig);
    assert_eq!(rig.run(&["--release"]).code(), Some(0));
    let ended = owner.finish().unwrap();
    let expected = if ended.output.contains("ready manifest=") { 0 } else { 8 };
    assert_eq!(ended.code(), Some(expected), "{}", ended.output);
    assert!(rig.left_behind().is_empty());
}

#[test]
fn status_without_an_owner_ends_with_13() {
    let rig = Rig::new();
    let looked = rig.run(&["--status"]);
    assert_eq!(looked.code(), Some(13), "{}", looked.output);
    let looked = rig.run(&["--status", "--broker-socket", rig.socket().to_str().unwrap(), "--json"]);
    assert_eq!(looked.code(), Some(13), "{}", looked.output);
    let answer: serde_json::Value = serde_json::from_str(&looked.output).unwrap();
    assert_eq!(answer["exit"], 13);
    drop(UnixListener::bind(rig.socket()).unwrap());
    assert_eq!(rig.run(&["--status"]).code(), Some(13));
}

/// An owner that is stopped in the middle of loading.
fn stopped_while_loading() -> (Rig, Process) {
    for _ in 0..10 {
        let rig = Rig::slow(1024);
        let owner = rig.start(&[]);
        until_loading(&rig);
        owner.signal(Signal::SIGSTOP).unwrap();
        if !rig.manifest().exists() && !owner.output().contains("ready manifest=") {
            return (rig, owner);
        }
    }
    panic!("it was always faster than the test");
}

#[test]
fn a_file_that_changes_or_shrinks_while_loading_ends_with_3() {
    type Change = fn(&fs::File);
    let changes: [(Change, &str); 2] = [
        (|file| file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap(), "changed while loading"),
        (|file| file.set_len(4096).unwrap(), "truncated"),
    ];
    for (change, says) in changes {
        let (rig, owner) = stopped_while_loading();
        change(&fs::OpenOptions::new().write(true).open(rig.model()).unwrap());
        owner.signal(Signal::SIGCONT).unwrap();
        let ended = owner.finish().unwrap();
        assert_eq!(ended.code(), Some(3), "{}", ended.output);
        assert!(ended.output.contains(says) || ended.output.contains("changed while"), "{}", ended.output);
        assert!(rig.left_behind().is_empty());
    }
}
