//! Files that somebody made up.

use crate::support::disk::MemDisk;
use crate::support::seal::seal;
use crate::support::{find, open, save, snapshot, tool_calls, transcript};
use proptest::prelude::*;
use std::path::Path;

#[path = "../../fuzz/check.rs"]
#[allow(unreachable_pub)]
mod fuzz;

const PROMPT: &str = "<1 abcdefghijklmn <2 opq";

fn honest() -> (MemDisk, String, usize) {
    let disk = MemDisk::new();
    let store = open(disk.clone(), 1 << 20);
    save(&store, "<1 abcdefgh~").unwrap();
    let longer = transcript("<1 abcdefghijklmn <2 o~");
    store.save(&snapshot(&store, &longer, tool_calls())).unwrap();
    let name = format!("{}.kv", ds4_banks::Name::of_text(longer.text()));
    let len = disk.contents().iter().find(|(file, _)| *file == name).unwrap().1.len();
    (disk, name, len)
}

/// Everything a worker does with a folder; only that it ends well is of interest.
fn use_folder(disk: MemDisk) {
    let store = open(disk, 1 << 20);
    while let Some(found) = find(&store, PROMPT) {
        if store.load(found).is_ok() {
            return;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn random_bytes_are_set_aside(bytes in prop::collection::vec(any::<u8>(), 0..600), start in 0usize..300) {
        let (disk, name, _) = honest();
        disk.edit(&name, |held| {
            held.truncate(start);
            held.extend(bytes);
        });
        use_folder(disk);
    }

    #[test]
    fn changed_numbers_with_right_checksums_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<[u8; 4]>()), 1..4),
        large in any::<bool>(),
    ) {
        let (disk, name, len) = honest();
        disk.edit(&name, |held| {
            for (at, value) in &changes {
                let at = at.index(len - 4);
                held[at..at + 4].copy_from_slice(if large { &[0xff, 0xff, 0xff, 0x7f] } else { value });
                seal(held);
            }
        });
        use_folder(disk);
    }
}

#[test]
fn every_number_of_the_beginning_may_be_anything() {
    let (disk, name, len) = honest();
    for at in 0..len - 4 {
        for value in [0, 1, 0x7fff_ffff, 0x8000_0000, u32::MAX] {
            let forged = disk.copy();
            forged.edit(&name, |held| {
                held[at..at + 4].copy_from_slice(&value.to_le_bytes());
                seal(held);
            });
            use_folder(forged);
        }
    }
}

#[test]
fn the_seeds_of_the_fuzz_target_are_total() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/file");
    let mut accepted = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        accepted += usize::from(fuzz::check(&std::fs::read(entry.unwrap().path()).unwrap()));
    }
    assert!(accepted >= 3, "the honest files are not accepted any more: make new seeds");
}

/// Writes the honest seeds anew: `cargo test -p ds4-banks --test banks seeds -- --ignored`.
#[test]
#[ignore = "changes the repository; for when the format changes"]
fn honest_files_become_seeds() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/file");
    std::fs::create_dir_all(&folder).unwrap();
    let (disk, name, len) = honest();
    for (file, bytes) in disk.contents().into_iter().filter(|(file, _)| file.ends_with(".kv")) {
        let seed = if file == name { "continues" } else { "first" };
        std::fs::write(folder.join(seed), &bytes).unwrap();
        if file == name {
            std::fs::write(folder.join("cut"), &bytes[..len / 2]).unwrap();
            let mut counts = bytes.clone();
            counts[60..64].fill(0xff);
            std::fs::write(folder.join("many-sections"), counts).unwrap();
            let mut sizes = bytes;
            sizes[248..272].fill(0xff);
            std::fs::write(folder.join("large-sizes"), sizes).unwrap();
        }
    }
    let disk = MemDisk::new();
    save(&open(disk.clone(), 1 << 20), "<1 <2").unwrap();
    let file = disk.contents().into_iter().find(|(file, _)| file.ends_with(".kv")).unwrap();
    std::fs::write(folder.join("shortest"), file.1).unwrap();
    std::fs::write(folder.join("empty"), b"").unwrap();
}
