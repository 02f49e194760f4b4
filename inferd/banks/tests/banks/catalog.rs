//! The folder as people look at it.

use crate::support::disk::MemDisk;
use crate::support::{open, save, transcript};
use ds4_banks::{Catalog, Disk, Entry, Listed, Name};
use ds4_units::Bytes;

fn name(notation: &str) -> Name {
    Name::of_text(transcript(notation).text())
}

fn names<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Vec<String> {
    entries.into_iter().map(|entry| entry.facts.name.clone()).collect()
}

/// Two conversations, one of them in two files, a leftover and a stranger.
fn folder() -> MemDisk {
    let disk = MemDisk::new();
    let store = open(disk.clone(), 1 << 20);
    save(&store, "<1 abcdefgh~").unwrap();
    disk.later(60);
    save(&store, "<1 abcdefghijkl~").unwrap();
    disk.later(60);
    save(&store, "<2 xyz").unwrap();
    let subfolder = crate::support::identity().digest().folder();
    drop(disk.create(&subfolder, &format!("{}.tmp", name("<9 z").file())).unwrap());
    drop(disk.create(&subfolder, "notes.txt").unwrap());
    disk
}

#[test]
fn every_file_of_ours_is_listed_and_nothing_else() {
    let catalog = Catalog::read(&folder()).unwrap();
    let described = catalog.identities.values().next().unwrap();
    assert_eq!((described.renderer.as_str(), described.layout.as_str()), ("test/1", "24+20"));
    assert_eq!(catalog.entries.len(), 4);
    let found = catalog.entries.iter().find_map(|entry| match &entry.listed {
        Listed::Conversation(found, Ok(summary)) if *found == name("<1 abcdefghijkl~") => Some(*summary),
        _ => None,
    });
    let summary = found.unwrap();
    assert_eq!((summary.tokens, summary.chain, summary.continues), (13, 1, Some(name("<1 abcdefgh~"))));
    assert_eq!(summary.text_bytes, Bytes(15));
    assert_eq!(catalog.entries.iter().filter(|entry| entry.listed == Listed::Unfinished).count(), 1);
    assert_eq!(catalog.entries.iter().filter(|entry| entry.is_useless()).count(), 1);
}

#[test]
fn a_damaged_beginning_is_listed_with_what_is_wrong() {
    let disk = folder();
    disk.edit(&name("<2 xyz").file(), |bytes| bytes[8] ^= 1);
    let catalog = Catalog::read(&disk).unwrap();
    let damaged: Vec<&Entry> = catalog.entries.iter().filter(|entry| entry.is_useless()).collect();
    assert_eq!(damaged.len(), 2);
    assert!(damaged.iter().any(|entry| matches!(&entry.listed, Listed::Conversation(_, Err(_)))));
}

#[test]
fn what_continues_a_file_goes_before_it() {
    let catalog = Catalog::read(&folder()).unwrap();
    let first = name("<1 abcdefgh~").file();
    let pruned = catalog.to_prune(|entry, _| entry.facts.name == first, None);
    assert_eq!(names(pruned), [name("<1 abcdefghijkl~").file(), first]);
}

#[test]
fn the_longest_unused_go_until_the_rest_fits() {
    let catalog = Catalog::read(&folder()).unwrap();
    let all = catalog.bytes();
    assert!(catalog.to_prune(|_, _| false, Some(all)).is_empty());
    // The leftover is the newest file; the conversation in two files is the oldest, its end first.
    let pruned = catalog.to_prune(|_, _| false, Some(Bytes(all.0 - 1)));
    assert_eq!(names(pruned), [name("<1 abcdefghijkl~").file()]);
    let everything = catalog.to_prune(|_, _| false, Some(Bytes::ZERO));
    assert_eq!(everything.len(), 4);
    let useless = catalog.to_prune(|entry, _| entry.is_useless(), None);
    assert_eq!(names(useless), [format!("{}.tmp", name("<9 z").file())]);
}

#[test]
fn a_file_was_used_whenever_one_that_continues_it_was() {
    let catalog = Catalog::read(&folder()).unwrap();
    let used = |notation: &str| {
        let file = name(notation).file();
        catalog.entries.iter().find(|entry| entry.facts.name == file).unwrap().facts.used
    };
    let (first, second) = (used("<1 abcdefgh~"), used("<1 abcdefghijkl~"));
    assert!(first < second);
    let older_than = |oldest: u64| names(catalog.to_prune(|_, used| used < oldest, None));
    assert!(older_than(second).is_empty(), "what goes on is not old because it began long ago");
    assert_eq!(older_than(second + 1), [name("<1 abcdefghijkl~").file(), name("<1 abcdefgh~").file()]);
}
