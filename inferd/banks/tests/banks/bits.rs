//! Damage.

use crate::support::disk::MemDisk;
use crate::support::{find, open, save, snapshot, tool_calls, transcript};
use ds4_banks::LoadError;

/// A disk with a file that continues another and has a tool map, and its name.
fn one_of_everything() -> (MemDisk, String) {
    let disk = MemDisk::new();
    let store = open(disk.clone(), 1 << 20);
    save(&store, "<1 abcdefgh~").unwrap();
    let longer = transcript("<1 abcdefghijklmn <2 o~");
    let saved = store.save(&snapshot(&store, &longer, tool_calls())).unwrap();
    assert!(saved.continued);
    (disk, format!("{}.kv", ds4_banks::Name::of_text(longer.text())))
}

const PROMPT: &str = "<1 abcdefghijklmn <2 opq";

/// Whether the damaged conversation is offered whole, now and after a restart.
fn is_used(disk: &MemDisk) -> bool {
    let store = open(disk.clone(), 1 << 20);
    match find(&store, PROMPT) {
        Some(found) if found.tokens == 17 => store.load(found).is_ok(),
        _ => false,
    }
}

#[test]
fn every_single_bit_that_flips_is_noticed() {
    let (disk, name) = one_of_everything();
    assert!(is_used(&disk));
    let len = disk.contents().iter().find(|(file, _)| *file == name).unwrap().1.len();
    for bit in 0..len * 8 {
        let damaged = disk.copy();
        damaged.edit(&name, |bytes| bytes[bit / 8] ^= 1 << (bit % 8));
        assert!(!is_used(&damaged), "bit {} of byte {} of {len}", bit % 8, bit / 8);
    }
    println!("{} bits in {len} bytes", len * 8);
}

#[test]
fn a_bit_that_flips_after_the_start_is_noticed_on_restore() {
    let (disk, name) = one_of_everything();
    let len = disk.contents().iter().find(|(file, _)| *file == name).unwrap().1.len();
    for byte in 0..len {
        let damaged = disk.copy();
        let store = open(damaged.clone(), 1 << 20);
        let found = find(&store, PROMPT).unwrap();
        damaged.edit(&name, |bytes| bytes[byte] ^= 0x10);
        assert!(matches!(store.load(found), Err(LoadError::Damaged(_))), "byte {byte} of {len}");
    }
}

#[test]
fn a_file_of_any_other_length_is_not_used() {
    let (disk, name) = one_of_everything();
    let len = disk.contents().iter().find(|(file, _)| *file == name).unwrap().1.len();
    for cut in 0..len {
        let damaged = disk.copy();
        damaged.edit(&name, |bytes| bytes.truncate(cut));
        assert!(!is_used(&damaged), "{cut} of {len} bytes");
    }
    disk.edit(&name, |bytes| bytes.push(0));
    assert!(!is_used(&disk), "one byte more");
}

#[test]
fn a_file_under_another_s_name_is_not_used() {
    let (disk, name) = one_of_everything();
    let bytes = disk.contents().into_iter().find(|(file, _)| *file == name).unwrap().1;
    let store = open(disk.clone(), 1 << 20);
    save(&store, "<4 xyz").unwrap();
    let other = format!("{}.kv", ds4_banks::Name::of_text(transcript("<4 xyz").text()));
    disk.edit(&name, |held| *held = b"gone".to_vec());
    disk.edit(&other, |held| *held = bytes);
    assert!(!is_used(&disk));
}
