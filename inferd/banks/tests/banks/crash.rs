//! A process that dies, or a power loss, at every call of a save.

use crate::support::disk::MemDisk;
use crate::support::{GEOMETRY, find, identity, open, options, quarantined, restore, save};
use ds4_banks::{Loaded, NotSaved, Service, Store, StoreOptions, SyncMode, Unusable};
use std::io::ErrorKind;

const OLD: &str = "<1 abcdefgh~";
const OLD_PROMPT: &str = "<1 abcdefghX";
const NEW: &str = "<1 abcdefghijklmnop <2";
const NEW_PROMPT: &str = "<1 abcdefghijklmnop <2 q";
const OTHER: &str = "<3 qrstuvqrstuvqrstuvqrstuvqrstuvqrstuvqrstuvqrstuv";
const OTHER_PROMPT: &str = "<3 qrstuvqrstuvqrstuvqrstuvqrstuvqrstuvqrstuvqrstuvw";

/// A disk with two conversations, made to last.
fn prepared() -> MemDisk {
    let disk = MemDisk::new();
    let store = open(disk.clone(), 1 << 20);
    save(&store, OLD).unwrap();
    save(&store, OTHER).unwrap();
    disk
}

/// Opens what a crash left and checks that nothing wrong can be restored and everything works again. Restores of the
/// support module compare every byte.
fn check(disk: &MemDisk, kept: &[&str]) -> bool {
    let store = open(disk.clone(), 1 << 20);
    for prompt in kept {
        assert!(restore(&store, prompt).is_some(), "{prompt} was lost");
    }
    let found = find(&store, NEW_PROMPT).map(|found| found.tokens) == Some(18);
    restore(&store, NEW_PROMPT).expect("its beginning was stored before");
    assert_eq!(quarantined(&store), 0, "a crash left a file that looks whole");
    assert!(disk.contents().iter().all(|(name, _)| !name.contains(".tmp")), "a temporary file is left");
    match save(&store, NEW) {
        Ok(_) => assert!(!found),
        Err(NotSaved::Stored) => assert!(found),
        Err(error) => panic!("{error}"),
    }
    assert_eq!(restore(&store, NEW_PROMPT).unwrap().transcript.len(), 18);
    found
}

#[test]
fn a_crash_at_any_call_of_a_save_never_leaves_a_file_that_loads_wrongly() {
    let mut cases = 0;
    for call in 0.. {
        let disk = prepared();
        let store = open(disk.clone(), 1 << 20);
        disk.stop_at(call);
        let saved = save(&store, NEW);
        drop(store);
        // The process dies, the machine goes on: everything written is there.
        let alive = disk.copy();
        for left in disk.after_power_loss() {
            let found = check(&left, &[OLD_PROMPT, OTHER_PROMPT]);
            assert!(found || saved.is_err(), "a save that was reported done is gone after a power loss");
            cases += 1;
        }
        if saved.is_ok() {
            println!("{call} calls, {cases} states after a power loss");
            assert!(call > 10, "the save makes fewer calls than it must");
            return;
        }
        alive.stop_at(usize::MAX / 2);
        check(&alive, &[OLD_PROMPT, OTHER_PROMPT]);
    }
}

#[test]
fn a_crash_while_room_is_made_loses_at_most_what_was_given_up() {
    for call in 0.. {
        let disk = prepared();
        disk.later(10 * 24 * 3600);
        let store = open(disk.clone(), 1 << 20);
        // The other one is in use, so that it is known which one goes.
        assert!(restore(&store, OLD_PROMPT).is_some());
        drop(store);
        let used = open(disk.clone(), 1 << 20).stats().bytes.0;
        let store = open(disk.clone(), used + 100);
        disk.stop_at(call);
        let saved = save(&store, NEW);
        drop(store);
        for left in disk.after_power_loss() {
            assert!(check(&left, &[OLD_PROMPT]) || saved.is_err());
        }
        if saved.is_ok() {
            return;
        }
    }
}

#[test]
fn an_error_at_any_call_of_a_save_leaves_the_store_in_order() {
    for kind in [ErrorKind::StorageFull, ErrorKind::PermissionDenied, ErrorKind::Other] {
        for call in 0.. {
            let disk = prepared();
            let store = open(disk.clone(), 1 << 20);
            disk.fail_at(call, kind);
            let before = disk.calls();
            let saved = save(&store, NEW);
            if disk.calls() <= before + call {
                assert!(saved.is_ok());
                break;
            }
            let temporary = disk.contents().iter().any(|(name, _)| name.contains(".tmp"));
            assert!(!temporary, "a temporary file is left after an error at call {call}");
            match saved {
                // A full disk costs one conversation and is tried again.
                Ok(_) => assert!(kind == ErrorKind::StorageFull),
                Err(NotSaved::Io(_)) => assert!(kind != ErrorKind::StorageFull || call < 3),
                Err(NotSaved::ParentGone) => assert!(kind == ErrorKind::StorageFull),
                Err(error) => panic!("{error}"),
            }
            check(&disk, &[]);
        }
    }
}

#[test]
fn a_disk_that_stays_full_is_left_alone_for_a_while() {
    let disk = prepared();
    let store = open(disk.clone(), 1 << 20);
    disk.set_capacity(100);
    assert!(matches!(save(&store, NEW), Err(NotSaved::DiskFull { .. })));
    disk.set_capacity(1 << 40);
    assert!(matches!(save(&store, NEW), Err(NotSaved::Paused)));
    disk.later(120);
    save(&store, NEW).unwrap();
}

#[test]
fn without_waiting_a_power_loss_may_cost_what_was_saved_and_never_loads_wrongly() {
    let eager = StoreOptions { sync: SyncMode::None, ..options(1 << 20) };
    let disk = prepared();
    let store = Store::open(Box::new(disk.clone()), &identity(), GEOMETRY, eager).unwrap();
    save(&store, NEW).unwrap();
    let (mut lost, mut kept) = (0, 0);
    for left in disk.after_power_loss() {
        let store = open(left, 1 << 20);
        for prompt in [OLD_PROMPT, OTHER_PROMPT] {
            assert!(restore(&store, prompt).is_some(), "{prompt} was made to last before");
        }
        // Restores of the support module compare every byte.
        let whole = restore(&store, NEW_PROMPT).is_some_and(|loaded| loaded.transcript.len() == 18);
        *if whole { &mut kept } else { &mut lost } += 1;
        assert!(matches!(save(&store, NEW), Ok(_) | Err(NotSaved::Stored)));
        assert_eq!(restore(&store, NEW_PROMPT).unwrap().transcript.len(), 18);
    }
    assert!(lost > 0 && kept > 0, "{lost} states without it, {kept} with it");

    // A worker that stops waits for it.
    Service::start(store, Ok::<Loaded, Unusable>).unwrap().close();
    for left in disk.after_power_loss() {
        assert_eq!(restore(&open(left, 1 << 20), NEW_PROMPT).unwrap().transcript.len(), 18);
    }
}

#[test]
fn a_file_that_cannot_be_read_once_costs_no_conversation() {
    for call in 0.. {
        let disk = prepared();
        let store = open(disk.clone(), 1 << 20);
        save(&store, NEW).unwrap();
        let bytes = store.stats().bytes;
        drop(store);
        disk.fail_at(call, ErrorKind::PermissionDenied);
        let before = disk.calls();
        let opened = Store::open(Box::new(disk.clone()), &identity(), GEOMETRY, options(1 << 20));
        if disk.calls() <= before + call {
            assert!(call > 6, "the folder is read in fewer calls than it must");
            return;
        }
        assert!(opened.is_err() || opened.unwrap().stats().bytes == bytes, "what was not read is not counted");
        assert!(check(&disk, &[OLD_PROMPT, NEW_PROMPT, OTHER_PROMPT]));
    }
}
