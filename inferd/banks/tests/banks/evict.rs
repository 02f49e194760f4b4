//! What is given up, and what never is.

use crate::support::disk::MemDisk;
use crate::support::{evictions, find, open, restore, save, text};
use ds4_banks::NotSaved;

const DAY: u64 = 24 * 3600;

/// Bytes of one conversation as `conversation` makes them.
fn size() -> u64 {
    save(&open(MemDisk::new(), 1 << 20), &conversation(0)).unwrap().written.0
}

fn conversation(number: u64) -> String {
    format!("<{} {}", number + 1, text(number, 40))
}

fn prompt(number: u64) -> String {
    format!("{} <999", conversation(number))
}

#[test]
fn the_budget_is_kept_before_anything_is_written() {
    let disk = MemDisk::new();
    let budget = size() * 3 + 50;
    let store = open(disk.clone(), budget);
    for number in 0..20 {
        disk.later(60);
        save(&store, &conversation(number)).unwrap();
        let bytes: usize = disk.contents().iter().filter(|(name, _)| name.ends_with(".kv")).map(|(_, b)| b.len()).sum();
        assert!(bytes as u64 <= budget);
        assert!(restore(&store, &prompt(number)).is_some(), "the conversation just saved is gone");
    }
    assert_eq!((store.stats().files, evictions(&store)), (3, 17));
}

#[test]
fn what_is_about_to_be_restored_stays() {
    let disk = MemDisk::new();
    let store = open(disk.clone(), size() * 2 + 50);
    save(&store, &conversation(0)).unwrap();
    disk.later(30 * DAY);
    let found = find(&store, &prompt(0)).unwrap();
    for number in 1..5 {
        save(&store, &conversation(number)).unwrap();
    }
    assert!(store.load(found).is_ok());
}

#[test]
fn when_everything_is_needed_the_new_one_is_refused() {
    let store = open(MemDisk::new(), size() * 2 + 50);
    save(&store, &conversation(0)).unwrap();
    save(&store, &conversation(1)).unwrap();
    let needed = (find(&store, &prompt(0)).unwrap(), find(&store, &prompt(1)).unwrap());
    assert!(matches!(save(&store, &conversation(2)), Err(NotSaved::NoRoom { .. })));
    assert!(store.load(needed.0).is_ok() && store.load(needed.1).is_ok());
    save(&store, &conversation(2)).unwrap();
}

#[test]
fn what_can_never_fit_gives_nothing_up() {
    let store = open(MemDisk::new(), size() + 50);
    save(&store, &conversation(0)).unwrap();
    let long = format!("<1 {}", text(1, 400));
    assert!(matches!(save(&store, &long), Err(NotSaved::LargerThanBudget { .. })));
    assert!(restore(&store, &prompt(0)).is_some());
}

#[test]
fn a_beginning_outlives_what_continues_it_and_the_end_goes_first() {
    let disk = MemDisk::new();
    let store = open(disk.clone(), size() * 4);
    let system = text(3, 40);
    save(&store, &format!("<1 {system}~")).unwrap();
    save(&store, &format!("<1 {system}abcdefgh~")).unwrap();
    save(&store, &format!("<1 {system}abcdefghijklmnop~")).unwrap();
    disk.later(DAY);
    let mut number = 10;
    while find(&store, &format!("<1 {system}abcdefghijklmnopX")).unwrap().tokens == 57 {
        save(&store, &conversation(number)).unwrap();
        number += 1;
    }
    assert_eq!(restore(&store, &format!("<1 {system}abcdefghijklmnopX")).unwrap().transcript.len(), 49);
}

#[test]
fn a_fresh_beginning_outlives_the_dense_files_of_a_conversation_that_ended() {
    let disk = MemDisk::new();
    let store = open(disk.clone(), size() * 10);
    // Long files are dense: more tokens for a byte than the short ones that conversations begin with.
    for end in [200, 230, 260] {
        save(&store, &format!("<1 {}~", text(1, end))).unwrap();
    }
    disk.later(600);
    save(&store, &conversation(5)).unwrap();
    for number in 10..14 {
        disk.later(30);
        save(&store, &conversation(number)).unwrap();
        assert!(restore(&store, &prompt(5)).is_some(), "the new beginning went at save {number}");
    }
    let long = format!("<1 {}X", text(1, 260));
    assert!(find(&store, &long).is_none_or(|found| found.tokens < 261), "nothing of the ended one was given up");
}

#[test]
fn damaged_files_and_other_identities_go_before_anything_useful() {
    let disk = MemDisk::new();
    let other = ds4_banks::Identity { renderer: "old".into(), ..crate::support::identity() };
    let options = crate::support::options(1 << 20);
    let old = ds4_banks::Store::open(Box::new(disk.clone()), &other, crate::support::GEOMETRY, options).unwrap();
    save(&old, &conversation(0)).unwrap();
    drop(old);
    let store = open(disk.clone(), size() * 2 + 50);
    save(&store, &conversation(1)).unwrap();
    save(&store, &conversation(2)).unwrap();
    assert!(restore(&store, &prompt(1)).is_some() && restore(&store, &prompt(2)).is_some());
    assert_eq!(evictions(&store), 1);
}

#[test]
fn what_could_not_be_read_counts_and_goes_last() {
    let disk = MemDisk::new();
    let store = open(disk.clone(), 1 << 20);
    save(&store, &conversation(0)).unwrap();
    save(&store, &conversation(1)).unwrap();
    drop(store);
    // The folder, its description, the other folders and the files come before the first file.
    disk.fail_at(4, std::io::ErrorKind::PermissionDenied);
    let store = open(disk.clone(), size() * 2 + 50);
    assert_eq!((store.stats().files, store.stats().bytes.0), (1, size() * 2));
    let unread = (0..2).find(|&number| find(&store, &prompt(number)).is_none()).unwrap();
    save(&store, &conversation(2)).unwrap();
    assert!(restore(&open(disk.copy(), 1 << 20), &prompt(unread)).is_some(), "what was read went first");
    let _needed = find(&store, &prompt(2)).unwrap();
    save(&store, &conversation(3)).unwrap();
    assert!(find(&open(disk, 1 << 20), &prompt(unread)).is_none());
    assert_eq!((store.stats().files, evictions(&store)), (2, 2));
}

#[test]
fn what_could_not_be_read_and_is_saved_again_counts_once() {
    let disk = MemDisk::new();
    save(&open(disk.clone(), 1 << 20), &conversation(0)).unwrap();
    disk.fail_at(4, std::io::ErrorKind::PermissionDenied);
    let store = open(disk, 1 << 20);
    assert_eq!(store.stats().files, 0);
    save(&store, &conversation(0)).unwrap();
    assert_eq!((store.stats().files, store.stats().bytes.0), (1, size()));
}
