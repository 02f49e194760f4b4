//! What a prompt finds.

use crate::support::disk::MemDisk;
use crate::support::{find, open, options, restore, save, snapshot, tool_calls, transcript};
use ds4_banks::limits::TOOL_ID_MAX;
use ds4_banks::{Geometry, HitKind, Identity, Remembered, Store, StoreOptions};

#[test]
fn the_longest_beginning_of_a_prompt_is_found_and_restored_byte_by_byte() {
    let store = open(MemDisk::new(), 1 << 20);
    for saved in ["<1 abcdef", "<1 abcdef <2", "<1 abcdef <2 ghijkl <3", "<1 other <2"] {
        save(&store, saved).unwrap();
    }
    let loaded = restore(&store, "<1 abcdef <2 ghijkl <3 mno").unwrap();
    assert_eq!(loaded.transcript, transcript("<1 abcdef <2 ghijkl <3"));
    assert_eq!(restore(&store, "<1 abcdef <2 gh <3").unwrap().transcript.len(), 8);
    assert!(find(&store, "<1 xyz").is_none());
    assert!(find(&store, "<2 abcdef").is_none());
}

#[test]
fn a_prompt_that_is_stored_whole_takes_the_one_before_because_its_last_token_is_computed() {
    let store = open(MemDisk::new(), 1 << 20);
    save(&store, "<1 abcdef").unwrap();
    save(&store, "<1 abcdef <2").unwrap();
    assert_eq!(find(&store, "<1 abcdef <2").unwrap().tokens, 7);
    assert!(find(&store, "<1 abcdef").is_none());
}

#[test]
fn inside_a_text_tokens_decide() {
    let store = open(MemDisk::new(), 1 << 20);
    save(&store, "<1 abc~").unwrap();
    save(&store, "<1 abcde").unwrap();
    assert_eq!(find(&store, "<1 abcdefg").unwrap().tokens, 6);
    assert_eq!(find(&store, "<1 abcd").unwrap().tokens, 4);
    assert_eq!(find(&store, "<1 abcx").unwrap().tokens, 4);
    assert_eq!(find(&store, "<1 abc <2").unwrap().tokens, 4);
    assert!(find(&store, "<1 abc").is_none(), "the last token is computed");
    assert!(find(&store, "<1 abx").is_none());
}

#[test]
fn a_control_token_never_equals_its_spelling() {
    let store = open(MemDisk::new(), 1 << 20);
    save(&store, "<1 <5 abc").unwrap();
    let typed = transcript("<1 x abcdef");
    let typed = typed.pieces().map(|mut piece| {
        if piece.text == b"x" {
            piece.text = b"<5>";
        }
        piece
    });
    assert!(store.find(typed).is_none());
}

#[test]
fn equal_tokens_are_found_whatever_pieces_the_prompt_is_cut_into() {
    let store = open(MemDisk::new(), 1 << 20);
    save(&store, "<1 abcdef").unwrap();
    save(&store, "<1 ab").unwrap();
    // One piece of text where there were two: no piece is equal, every token is.
    let found = find(&store, "<1 abc def <2").unwrap();
    assert_eq!((found.tokens, found.covered, found.kind), (7, 7, HitKind::Tokens));
    assert!(store.load(found).unwrap().transcript == transcript("<1 abcdef"));
    assert_eq!(find(&store, "<1 abcdef <2").unwrap().kind, HitKind::Pieces);
    assert_eq!(find(&store, "<1 abcdefg").unwrap().kind, HitKind::InsideText);
    assert!(find(&store, "<1 ax bcdef").is_none());
    assert_eq!(find(&store, "<1 abc def").unwrap().tokens, 3, "the last token is computed");
}

#[test]
fn what_answers_said_is_written_once_and_known_after_a_restart() {
    let disk = MemDisk::new();
    let store = open(disk.clone(), 1 << 20);
    let part = |id: &str| Remembered { id: id.into(), written: vec![7; 1000] };
    let written = |notation: &str, parts: Vec<Remembered>| {
        let saved = store.save(&snapshot(&store, &transcript(notation), parts)).unwrap();
        saved.written.0
    };
    let first = written("<1 abcdefgh~", vec![part("a")]);
    let second = written("<1 abcdefghijkl~", vec![part("a"), part("b"), part("b")]);
    assert!(first > 1000 && (1000..2000).contains(&second), "{first}, {second}");
    let third = written("<1 abcdefghijklmnop~", vec![part("a"), part("b")]);
    assert!(third < 1000, "{third}");
    let ids = |parts: &[Remembered]| parts.iter().map(|part| part.id.clone()).collect::<Vec<_>>();
    assert_eq!(ids(&restore(&store, "<1 abcdefghijklmnopq").unwrap().remembered), ["a", "b"]);
    disk.later(60);
    written("<2 xyz", vec![part("c")]);

    let again = open(disk.clone(), 1 << 20);
    assert_eq!(ids(&again.take_remembered()).last().unwrap(), "c", "the last used come last");
    assert!(again.take_remembered().is_empty(), "given out once");
    // What the files have is known to the new process too.
    let longer = transcript("<1 abcdefghijklmnopqrst~");
    let saved = again.save(&snapshot(&again, &longer, vec![part("a"), part("b")])).unwrap();
    assert!(saved.continued && saved.written.0 < 1000);
}

#[test]
fn what_would_make_a_file_unreadable_is_not_remembered() {
    let store = open(MemDisk::new(), 1 << 20);
    let parts = vec![
        Remembered { id: "x".repeat(TOOL_ID_MAX + 1), written: b"long".to_vec() },
        Remembered { id: "x".repeat(TOOL_ID_MAX), written: b"as long as may be".to_vec() },
    ];
    store.save(&snapshot(&store, &transcript("<1 abc"), parts)).unwrap();
    assert_eq!(restore(&store, "<1 abcd").unwrap().remembered.len(), 1);
}

#[test]
fn tool_calls_come_back_with_their_conversation() {
    let store = open(MemDisk::new(), 1 << 20);
    let saved = transcript("<1 abc <2");
    store.save(&snapshot(&store, &saved, tool_calls())).unwrap();
    assert!(restore(&store, "<1 abc <2 d").unwrap().remembered == tool_calls());
}

#[test]
fn conversations_are_found_again_after_a_restart() {
    let disk = MemDisk::new();
    let store = open(disk.clone(), 1 << 20);
    save(&store, "<1 abcdef <2").unwrap();
    save(&store, "<1 abcdef <2 ghijkl <3").unwrap();
    drop(store);
    let store = open(disk, 1 << 20);
    assert_eq!(store.stats().files, 2);
    assert_eq!(restore(&store, "<1 abcdef <2 ghijkl <3 m").unwrap().transcript.len(), 15);
    // The second conversation of one process, and what it finds later.
    save(&store, "<1 qrs <2").unwrap();
    assert_eq!(restore(&store, "<1 qrs <2 t").unwrap().transcript.len(), 5);
}

#[test]
fn another_identity_finds_nothing_and_loses_nothing() {
    let disk = MemDisk::new();
    save(&open(disk.clone(), 1 << 20), "<1 abcdef <2").unwrap();
    let other = Identity { renderer: "test/2".into(), ..crate::support::identity() };
    let others = Store::open(Box::new(disk.clone()), &other, crate::support::GEOMETRY, options(1 << 20)).unwrap();
    assert!(find(&others, "<1 abcdef <2 g").is_none());
    assert!(others.stats().bytes.0 > 0, "files of other identities count");
    drop(others);
    assert!(restore(&open(disk, 1 << 20), "<1 abcdef <2 g").is_some());
}

#[test]
fn conversations_outside_the_worker_s_limits_are_not_offered() {
    let disk = MemDisk::new();
    save(&open(disk.clone(), 1 << 20), "<1 abcdefgh").unwrap();
    let smaller = Geometry { context: 9, ..crate::support::GEOMETRY };
    let store = Store::open(Box::new(disk.clone()), &crate::support::identity(), smaller, options(1 << 20)).unwrap();
    assert!(find(&store, "<1 abcdefghi").is_none(), "no place for another token");
    let least = StoreOptions { min_tokens: 10, ..options(1 << 20) };
    let store = Store::open(Box::new(disk), &crate::support::identity(), crate::support::GEOMETRY, least).unwrap();
    assert!(find(&store, "<1 abcdefghi").is_none(), "too short to be worth it");
}
