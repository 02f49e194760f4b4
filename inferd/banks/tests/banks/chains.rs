//! Files that continue files.

use crate::support::disk::MemDisk;
use crate::support::{find, open, quarantined, restore, save, snapshot, text, transcript};
use ds4_banks::limits::CHAIN_MAX;
use ds4_banks::{Disk, LoadError, NotSaved};

#[test]
fn a_longer_conversation_writes_only_what_is_new() {
    let store = open(MemDisk::new(), 1 << 20);
    let first = text(1, 400);
    let whole = save(&store, &format!("<1 {first}~")).unwrap();
    assert!(!whole.continued);
    let more = save(&store, &format!("<1 {first}{}~", text(2, 40))).unwrap();
    assert!(more.continued);
    // Blocks of 40 tokens instead of 400; the rest is text and token ids.
    assert!(more.written.0 + 2_000 < whole.written.0, "{} after {}", more.written, whole.written);
    let loaded = restore(&store, &format!("<1 {first}{}end", text(2, 40))).unwrap();
    assert_eq!(loaded.transcript.len(), 441);
    // The first file's recurrent part tells an older state: it is not read.
    assert_eq!(loaded.read.0, whole.written.0 + more.written.0 - crate::support::GEOMETRY.recurrent_bytes as u64);
}

#[test]
fn every_frontier_of_a_chain_can_be_branched_from() {
    let store = open(MemDisk::new(), 1 << 20);
    let words: Vec<String> = (0..8).map(|seed| text(seed, 11)).collect();
    for count in 1..=words.len() {
        save(&store, &format!("<1 {}~", words[..count].concat())).unwrap();
    }
    for count in 1..=words.len() {
        let prompt = format!("<1 {}XYZ", words[..count].concat());
        assert_eq!(restore(&store, &prompt).unwrap().transcript.len(), 1 + 11 * count as u32);
    }
}

#[test]
fn two_conversations_share_their_beginning_on_disk() {
    let store = open(MemDisk::new(), 1 << 20);
    let system = text(9, 200);
    let base = save(&store, &format!("<1 {system}")).unwrap();
    for question in ["one", "two", "three"] {
        let saved = save(&store, &format!("<1 {system} <2 {question}")).unwrap();
        assert!(saved.continued && saved.written.0 * 2 < base.written.0);
        assert!(restore(&store, &format!("<1 {system} <2 {question} <3")).is_some());
    }
}

#[test]
fn a_chain_ends_with_a_file_that_holds_everything() {
    let store = open(MemDisk::new(), 1 << 24);
    let words: Vec<String> = (0..CHAIN_MAX as u64 + 2).map(|seed| text(seed, 4)).collect();
    let saved: Vec<bool> = (1..=words.len())
        .map(|count| save(&store, &format!("<1 {}~", words[..count].concat())).unwrap().continued)
        .collect();
    assert!(!saved[0]);
    assert!(saved[1..=CHAIN_MAX as usize].iter().all(|&continued| continued));
    assert!(!saved[CHAIN_MAX as usize + 1]);
    assert!(restore(&store, &format!("<1 {}end", words.concat())).is_some());
}

#[test]
fn what_is_stored_already_is_not_stored_again() {
    let store = open(MemDisk::new(), 1 << 20);
    save(&store, "<1 abcdef").unwrap();
    assert!(store.plan(transcript("<1 abcdef").tokens()).stored);
    assert!(matches!(save(&store, "<1 abcdef"), Err(NotSaved::Stored)));
    assert_eq!(store.stats().saves_failed.iter().sum::<u64>(), 0);
}

#[test]
fn a_damaged_file_takes_what_continues_it_along_and_is_never_tried_again() {
    let disk = MemDisk::new();
    let store = open(disk.clone(), 1 << 20);
    save(&store, "<1 abcdefgh~").unwrap();
    save(&store, "<1 abcdefghijkl~").unwrap();
    let first = ds4_banks::Name::of_text(transcript("<1 abcdefgh~").text());
    disk.edit(&format!("{first}.kv"), |bytes| *bytes.last_mut().unwrap() ^= 1);
    let found = find(&store, "<1 abcdefghijklm").unwrap();
    assert!(matches!(store.load(found), Err(LoadError::Damaged(_))));
    assert!(find(&store, "<1 abcdefghijklm").is_none());
    let stats = store.stats();
    assert_eq!((stats.files, stats.quarantined.iter().sum::<u64>(), stats.loads_failed), (0, 1, 1));
    let names: Vec<String> = disk.contents().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, [format!("{first}.kv.bad"), "identity".to_owned()]);
    drop(store);
    let store = open(disk, 1 << 20);
    assert_eq!(store.stats().files, 0);
    save(&store, "<1 abcdefgh~").unwrap();
    assert!(restore(&store, "<1 abcdefghijkl").is_some());
}

#[test]
fn a_conversation_that_the_model_refuses_is_set_aside() {
    let store = open(MemDisk::new(), 1 << 20);
    save(&store, "<1 abcdef").unwrap();
    let loaded = restore(&store, "<1 abcdefg").unwrap();
    store.refuse(&loaded.kept, "not a number in layer 3");
    assert!(find(&store, "<1 abcdefg").is_none());
    assert_eq!(quarantined(&store), 1);
}

#[test]
fn the_same_text_in_other_tokens_replaces_what_nobody_needs() {
    let store = open(MemDisk::new(), 1 << 20);
    save(&store, "<1 abcdefgh").unwrap();
    // The same text and pieces, but two tokens where there were eight letters.
    let other = ds4_banks::Transcript::new(
        b"<1>abcdefgh".to_vec(),
        [1, 500, 501].map(ds4_units::TokenId).to_vec(),
        vec![
            ds4_banks::PieceEnd { kind: ds4_banks::PieceKind::Control, text_end: 3, tokens_end: 1 },
            ds4_banks::PieceEnd { kind: ds4_banks::PieceKind::Text, text_end: 11, tokens_end: 3 },
        ],
    )
    .unwrap();
    let held = find(&store, "<1 abcdefgh <2").unwrap();
    assert!(matches!(store.save(&snapshot(&store, &other, Vec::new())), Err(NotSaved::SameText)));
    drop(held);
    store.save(&snapshot(&store, &other, Vec::new())).unwrap();
    let found = find(&store, "<1 abcdefgh <2").unwrap();
    assert_eq!((found.tokens, found.covered), (3, 9), "the record's own tokens stand for the prompt's");
    assert!(store.load(found).unwrap().transcript == other);
}

#[test]
fn a_file_that_is_gone_takes_what_continues_it_along_and_leaves_the_rest() {
    let disk = MemDisk::new();
    let store = open(disk.clone(), 1 << 20);
    let conversations = ["<1 abcdefgh~", "<1 abcdefghijkl~", "<1 abcdefghijklmnop~"];
    conversations.iter().for_each(|conversation| assert!(save(&store, conversation).is_ok()));
    let file = |notation: &str| format!("{}.kv", ds4_banks::Name::of_text(transcript(notation).text()));
    disk.remove(&crate::support::identity().digest().folder(), &file(conversations[1])).unwrap();
    let found = find(&store, "<1 abcdefghijklmnopq").unwrap();
    assert!(matches!(store.load(found), Err(LoadError::Gone)));
    assert_eq!(restore(&store, "<1 abcdefghijklmnopq").unwrap().transcript, transcript(conversations[0]));
    let stats = store.stats();
    assert_eq!((stats.files, stats.loads_failed, quarantined(&store)), (1, 1, 0));
    let names: Vec<String> = disk.contents().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, [file(conversations[0]), "identity".to_owned()]);
    assert_eq!(store.stored(transcript(conversations[2]).tokens()), 9);
    save(&store, conversations[2]).unwrap();
    assert!(restore(&store, "<1 abcdefghijklmnopq").is_some());
}
