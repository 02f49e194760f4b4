//! Weights that outlive their owners, because a keeper holds them.

use crate::kit::{Rig, small_model, soon, until};
use ds4_gpu::HostRange;
use ds4_import::{AttachOptions, Attached, OwnerState, attach};
use ds4_manifest::{Digest, WeightsManifest};
use ds4_tests::{Process, run};
use ds4_units::Bytes;
use ds4_wire::{Connection, KeeperRefusal, KeeperReply, KeeperRequest, KeptSet, Reply, Request};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::AtomicBool;

static NO: AtomicBool = AtomicBool::new(false);

fn keeper(rig: &Rig) -> Process {
    let keeper = Process::start(rig.weightd_program(&["keep", "--run-dir", rig.run_dir().to_str().unwrap()])).unwrap();
    keeper.wait_for_line("keeper listening").unwrap();
    keeper
}

fn connect(rig: &Rig) -> Connection {
    Connection::connect(&rig.run_dir().join("keeper.sock"), soon()).unwrap()
}

fn attached(rig: &Rig) -> Attached {
    attach(&rig.manifest(), &AttachOptions::new("test", &NO)).unwrap()
}

fn b_weight(attached: &Attached) -> Vec<u8> {
    attached.weights.tensor("b.weight").unwrap().bytes().unwrap().into_owned()
}

/// Memory files that a process holds.
fn memory_files(pid: Pid) -> usize {
    let links =
        fs::read_dir(format!("/proc/{pid}/fd")).unwrap().filter_map(|entry| entry.ok()?.path().read_link().ok());
    links.filter(|target| target.to_string_lossy().starts_with("/memfd:")).count()
}

/// Bytes that a process has read from files.
fn bytes_read(pid: Pid) -> u64 {
    let io = fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
    io.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap()
}

#[test]
fn a_killed_owners_weights_are_taken_back_without_reading_the_model() {
    let rig = Rig::slow(64);
    let _keeper = keeper(&rig);
    let first = rig.ready(&[]);
    first.wait_for_line("weights parked with the keeper").unwrap();
    let (worker, before) = (attached(&rig), rig.read_manifest());
    first.kill().unwrap();
    let second = rig.ready(&["--verify", "none"]);
    second.wait_for_line("weights taken back").unwrap();
    assert!(bytes_read(second.pid()) < 4 << 20, "the model has 64 MiB");
    let after = rig.read_manifest();
    assert_eq!(after.generation, before.generation + 1);
    assert_ne!(after.instance, before.instance);
    assert_eq!((&after.models, &after.ranges), (&before.models, &before.ranges));
    until("the worker has noticed", || worker.lease.owner() == OwnerState::Lost);
    assert_eq!(attached(&rig).identity, worker.identity);
}

#[test]
fn weights_are_the_same_through_crashes_and_upgrades_for_old_workers_and_new() {
    let rig = Rig::new();
    let keeper = keeper(&rig);
    let first = rig.ready(&[]);
    let worker = attached(&rig);
    let bytes = b_weight(&worker);
    first.kill().unwrap();
    // Read back and hashed before they are lent again.
    let second = rig.ready(&["--verify", "full"]);
    assert_eq!(b_weight(&attached(&rig)), bytes);
    let ended = second.terminate().unwrap();
    assert!(ended.output.contains("parked bytes="), "{}", ended.output);
    let third = rig.ready(&[]);
    third.wait_for_line("weights taken back").unwrap();
    assert_eq!((b_weight(&attached(&rig)), b_weight(&worker)), (bytes.clone(), bytes));
    assert_eq!(rig.read_manifest().generation, 3);
    drop(keeper);
}

#[test]
fn release_frees_what_is_kept_with_and_without_an_owner() {
    let rig = Rig::new();
    let keeper = keeper(&rig);
    for with_owner in [true, false] {
        let owner = rig.ready(&[]);
        assert_eq!(memory_files(keeper.pid()), 3, "two ranges and the manifest");
        let owner = if with_owner { Some(owner) } else { owner.terminate().map(|_| None).unwrap() };
        let kept = format!("a keeper, pid {}, holds its generation", keeper.pid());
        assert_eq!(rig.run(&["--status"]).output.contains(&kept), !with_owner);
        assert_eq!(rig.run(&["--release"]).code(), Some(0));
        if let Some(owner) = owner {
            let ended = owner.wait_for_end().unwrap();
            assert!(ended.output.contains("released bytes="), "{}", ended.output);
        }
        assert_eq!(memory_files(keeper.pid()), 0);
    }
    assert_eq!(rig.run(&["--release"]).code(), Some(13));
}

#[test]
fn an_owner_that_is_released_before_it_has_loaded_frees_what_is_kept_of_a_dead_one() {
    let rig = Rig::new();
    let keeper = keeper(&rig);
    for _ in 0..50 {
        rig.ready(&[]).kill().unwrap();
        let next = rig.start(&[]);
        until("the next one listens", || Connection::connect(&rig.socket(), soon()).is_ok());
        assert_eq!(rig.connect().ask(&Request::Drain, soon(), |_| {}).unwrap(), Reply::Done);
        let ended = next.finish().unwrap();
        assert_eq!(memory_files(keeper.pid()), 0, "{}", ended.output);
        // Before it had looked at what was kept.
        if ended.code() == Some(8) {
            return;
        }
    }
    panic!("it was always faster than the test");
}

#[test]
fn what_was_kept_of_another_file_or_plan_is_freed_and_the_model_loaded() {
    let rig = Rig::new();
    let keeper = keeper(&rig);
    rig.ready(&[]).kill().unwrap();
    small_model(1).write(&rig.model()).unwrap();
    let changed = rig.ready(&[]);
    changed.wait_for_line("they are of other files, another layout or another device").unwrap();
    let bytes = b_weight(&attached(&rig));
    assert_eq!(memory_files(keeper.pid()), 3, "only the new ones");
    changed.kill().unwrap();
    let other_plan = rig.ready(&["--span-mb", "64"]);
    other_plan.wait_for_line("not taken back, but freed").unwrap();
    assert_eq!(b_weight(&attached(&rig)), bytes);
}

#[test]
fn without_a_keeper_an_owner_serves_and_frees_as_ever() {
    let rig = Rig::new();
    let ended = rig.ready(&["--keeper", "off"]).terminate().unwrap();
    assert!(ended.output.contains("released bytes=") && !ended.output.contains("keeper"), "{}", ended.output);
    let gone = keeper(&rig);
    let owner = rig.ready(&[]);
    gone.kill().unwrap();
    let ended = owner.terminate().unwrap();
    assert_eq!(ended.code(), Some(0));
    assert!(ended.output.contains("released bytes="), "{}", ended.output);
}

#[test]
fn an_owner_starts_a_keeper_that_outlives_it() {
    let rig = Rig::new();
    let owner = rig.ready(&["--keeper", "start"]);
    let line = owner.wait_for_line("keeper found").unwrap();
    let pid = line.split("pid=").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    let keeper = Pid::from_raw(pid);
    owner.kill().unwrap();
    let second = rig.ready(&["--keeper", "start"]);
    second.wait_for_line("weights taken back").unwrap();
    assert_eq!(memory_files(keeper), 3);
    kill(keeper, Signal::SIGTERM).unwrap();
    until("the keeper ends", || !rig.run_dir().join("keeper.sock").exists());
}

#[test]
fn a_second_keeper_is_told_of_the_first() {
    let rig = Rig::new();
    let _keeper = keeper(&rig);
    let second = run(rig.weightd_program(&["keep", "--run-dir", rig.run_dir().to_str().unwrap()])).unwrap();
    assert_eq!(second.code(), Some(6), "{}", second.output);
}

fn park(set: &str, first: u32, total: u32) -> KeeperRequest {
    KeeperRequest::Park { set: set.to_owned(), generation: 1, fingerprint: [7; 32], first, total, orphaned_s: None }
}

fn ask(connection: &Connection, request: &KeeperRequest, fds: &[BorrowedFd<'_>]) -> KeeperReply {
    connection.ask_keeper(request, fds, soon()).unwrap().0
}

fn adopt(connection: &Connection, fingerprint: u8) -> KeeperReply {
    ask(connection, &KeeperRequest::Adopt { set: "s".to_owned(), fingerprint: [fingerprint; 32] }, &[])
}

#[test]
fn a_set_is_adopted_only_when_its_lease_is_closed_and_only_for_the_same_content() {
    let rig = Rig::new();
    let _keeper = keeper(&rig);
    let range = HostRange::create("s", Bytes(5)).unwrap().seal().unwrap();
    let (first, second) = (connect(&rig), connect(&rig));
    assert_eq!(ask(&first, &park("s", 0, 1), &[range.fd()]), KeeperReply::Done);
    let leased = KeeperReply::Refused(KeeperRefusal::Leased { pid: std::process::id() });
    assert_eq!(adopt(&second, 7), leased);
    assert_eq!(ask(&second, &park("s", 0, 1), &[range.fd()]), leased);
    assert_eq!(ask(&second, &KeeperRequest::Forget { set: "s".into() }, &[]), leased);
    drop(first);
    until("the lease closes", || adopt(&second, 9) != leased);
    assert_eq!(adopt(&second, 9), KeeperReply::Refused(KeeperRefusal::OtherContent));
    assert_eq!(adopt(&second, 7), KeeperReply::Done);
    let (reply, fds) =
        second.ask_keeper(&KeeperRequest::Fds { set: "s".into(), first: 0, count: 1 }, &[], soon()).unwrap();
    assert_eq!((reply, fds.len()), (KeeperReply::Fds { first: 0, count: 1 }, 1));
}

#[test]
fn what_nobody_comes_back_for_is_freed_when_its_time_is_over_and_not_before() {
    let rig = Rig::new();
    let keeper = keeper(&rig);
    let range = HostRange::create("s", Bytes(5)).unwrap().seal().unwrap();
    let parked = |connection: &Connection, set: &str, orphaned_s| {
        let (set, fingerprint) = (set.to_owned(), [7; 32]);
        let park = KeeperRequest::Park { set, generation: 1, fingerprint, first: 0, total: 1, orphaned_s };
        assert_eq!(ask(connection, &park, &[range.fd()]), KeeperReply::Done);
    };
    let listed = |prefix: &str| {
        let request = KeeperRequest::List { prefix: prefix.to_owned() };
        match ask(&connect(&rig), &request, &[]) {
            KeeperReply::Listed(sets) => sets.into_iter().map(|(name, _)| name).collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        }
    };
    let (first, second) = (connect(&rig), connect(&rig));
    parked(&first, "s", Some(0));
    parked(&first, "s/long", Some(3600));
    parked(&first, "t", None);
    parked(&second, "s/held", Some(0));
    assert_eq!(listed("s"), ["s", "s/held", "s/long"]);
    drop(first);
    until("it is freed", || !listed("s").contains(&"s".to_owned()));
    assert_eq!((listed("s"), listed("t")), (vec!["s/held".into(), "s/long".into()], vec!["t".to_owned()]));
    keeper.wait_for_line("nobody came back for it").unwrap();
}

#[test]
fn what_is_no_final_memory_or_no_whole_deposit_is_not_kept() {
    let rig = Rig::new();
    let keeper = keeper(&rig);
    let good = HostRange::create("s", Bytes(5)).unwrap().seal().unwrap();
    let file = tempfile::tempfile().unwrap();
    let connection = connect(&rig);
    let refused = |reply: KeeperReply, says: &str| match reply {
        KeeperReply::Refused(refusal) => assert!(refusal.to_string().contains(says), "{refusal}"),
        other => panic!("{other:?}"),
    };
    refused(ask(&connection, &park("s", 0, 2), &[good.fd(), file.as_fd()]), "descriptor 1: it is no memory");
    refused(ask(&connection, &park("s", 1, 2), &[good.fd()]), "begins with descriptor 0");
    refused(ask(&connection, &park("s", 0, 1), &[good.fd(), good.fd()]), "more descriptors than the set has");
    refused(ask(&connection, &park("s", 0, 1), &[]), "a set has descriptors");
    refused(ask(&connection, &park("", 0, 1), &[good.fd()]), "1 to 64 bytes");
    refused(ask(&connection, &park("s", 0, u32::MAX), &[good.fd()]), "descriptors than the");
    for index in 0..1024 {
        assert_eq!(ask(&connection, &park(&format!("s{index}"), 0, 1), &[good.fd()]), KeeperReply::Done);
    }
    refused(ask(&connection, &park("s", 0, 1), &[good.fd()]), "more sets than the 1024");
    for index in 0..1024 {
        ask(&connection, &KeeperRequest::Forget { set: format!("s{index}") }, &[]);
    }
    // Half a deposit goes with its connection.
    assert_eq!(ask(&connection, &park("s", 0, 2), &[good.fd()]), KeeperReply::Done);
    assert_eq!(memory_files(keeper.pid()), 1);
    drop(connection);
    until("it is let go", || memory_files(keeper.pid()) == 0);
}

/// Takes over what a dead owner parked, and parks it again as `change` leaves it.
fn forge(rig: &Rig, change: impl Fn(&mut WeightsManifest, &mut Vec<OwnedFd>)) {
    let connection = connect(rig);
    until("the lease of the dead owner closes", || adopt_parked(&connection));
    let set = || "weights".to_owned();
    let fds = KeeperRequest::Fds { set: set(), first: 0, count: 3 };
    let (_, mut fds) = connection.ask_keeper(&fds, &[], soon()).unwrap();
    let note = fs::File::from(fds.remove(0));
    let mut text = vec![0; note.metadata().unwrap().len() as usize];
    note.read_exact_at(&mut text, 0).unwrap();
    let mut manifest = WeightsManifest::parse(&text).unwrap();
    change(&mut manifest, &mut fds);
    let text = manifest.to_text().unwrap();
    let note = HostRange::create("forged", Bytes(text.len() as u64)).unwrap();
    note.write_at(0, text.as_bytes()).unwrap();
    let note = note.seal().unwrap();
    let fingerprint = find_parked(&connection).fingerprint;
    let park = KeeperRequest::Park { set: set(), generation: 1, fingerprint, first: 0, total: 3, orphaned_s: None };
    assert_eq!(ask(&connection, &park, &[note.fd(), fds[0].as_fd(), fds[1].as_fd()]), KeeperReply::Done);
}

#[test]
fn kept_memory_that_is_not_what_its_manifest_says_is_freed_and_the_model_loaded() {
    let rig = Rig::new();
    let _keeper = keeper(&rig);
    let owner = rig.ready(&[]);
    let bytes = b_weight(&attached(&rig));
    owner.kill().unwrap();
    forge(&rig, |_, fds| fds.reverse());
    let owner = rig.ready(&[]);
    owner.wait_for_line("not taken back, but freed").unwrap();
    assert_eq!(b_weight(&attached(&rig)), bytes);
    owner.kill().unwrap();
    forge(&rig, |manifest, _| manifest.models[0].tensors[1].leaf_root = Digest::of(b"something else"));
    let owner = rig.ready(&["--verify", "full"]);
    owner.wait_for_line("b.weight").unwrap();
    owner.wait_for_line("is not in memory as it is in the file").unwrap();
    assert_eq!(b_weight(&attached(&rig)), bytes);
}

fn find_parked(connection: &Connection) -> KeptSet {
    match ask(connection, &KeeperRequest::Find { set: "weights".to_owned() }, &[]) {
        KeeperReply::Found(Some(found)) => found,
        other => panic!("{other:?}"),
    }
}

fn adopt_parked(connection: &Connection) -> bool {
    let fingerprint = find_parked(connection).fingerprint;
    let adopt = KeeperRequest::Adopt { set: "weights".to_owned(), fingerprint };
    ask(connection, &adopt, &[]) == KeeperReply::Done
}
