//! Five hundred conversations, room for fifty: what is found again, and what it costs to write.

use crate::support::disk::MemDisk;
use crate::support::{FakeBank, PROPORTIONED, evictions, find, identity, options, snapshot, text, transcript};
use ds4_banks::{Disk, Store};
use std::collections::BTreeMap;

const CONVERSATIONS: u64 = 500;
const VISITS: usize = 4_000;
const TURN_TOKENS: usize = 60;
/// Between two visits.
const PAUSE_SECONDS: u64 = 45;
/// Bytes of a token in a file: its share of a block, its id, its text; and of a file: recurrent part, front, table.
const TOKEN_BYTES: u64 = 256 / 4 + 16 / 4 + 4 + 1;
const FILE_BYTES: u64 = 52 + 224 + 32 + 8 + 3_800;
const TURNS_TYPICAL: u64 = 8;

fn budget() -> u64 {
    50 * (FILE_BYTES + TOKEN_BYTES * TURN_TOKENS as u64 * TURNS_TYPICAL)
}

/// Which conversation is visited: mostly one of the twenty that were visited last, now and then any.
struct Visits {
    state: u64,
    recent: Vec<u64>,
}

impl Visits {
    fn random(&mut self, below: u64) -> u64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % below
    }

    fn next(&mut self) -> u64 {
        let again = self.random(100) < 70 && !self.recent.is_empty();
        let chosen = if again {
            let place = self.random(self.recent.len() as u64);
            self.recent[place as usize]
        } else {
            self.random(CONVERSATIONS)
        };
        self.recent.retain(|&held| held != chosen);
        self.recent.insert(0, chosen);
        self.recent.truncate(40);
        chosen
    }
}

#[derive(Default)]
struct Outcome {
    asked: u64,
    cached: u64,
    written: u64,
    lost_at_once: u64,
}

impl Outcome {
    fn hit_rate(&self) -> f64 {
        self.cached as f64 / self.asked as f64
    }
}

/// The published policy: one file a conversation, written anew every time; given up by (hits + 1) x tokens / bytes,
/// hits halving every six hours.
#[derive(Default)]
struct Simple {
    files: BTreeMap<u64, SimpleFile>,
}

#[derive(Clone, Copy)]
struct SimpleFile {
    tokens: u64,
    bytes: u64,
    hits: u64,
    used: u64,
}

impl Simple {
    fn visit(&mut self, conversation: u64, tokens: u64, now: u64, outcome: &mut Outcome) {
        let mut hits = 0;
        if let Some(file) = self.files.remove(&conversation) {
            outcome.cached += file.tokens;
            hits = file.hits + 1;
        }
        let bytes = FILE_BYTES + TOKEN_BYTES * tokens;
        outcome.written += bytes;
        self.files.insert(conversation, SimpleFile { tokens, bytes, hits, used: now });
        while self.files.values().map(|file| file.bytes).sum::<u64>() > budget() {
            let score = |file: &SimpleFile| {
                let age = (now - file.used) as f64 / 3600.0 / 6.0;
                let hits = file.hits as f64 * (-age).exp2();
                (if hits < 0.01 { 1.0 } else { hits + 1.0 }) * file.tokens as f64 / file.bytes as f64
            };
            let least =
                self.files.iter().min_by(|a, b| score(a.1).total_cmp(&score(b.1)).then(a.1.used.cmp(&b.1.used)));
            let least = *least.unwrap().0;
            outcome.lost_at_once += u64::from(least == conversation);
            self.files.remove(&least);
        }
    }
}

#[test]
fn five_hundred_conversations_with_room_for_fifty() {
    let disk = MemDisk::new();
    let store = Store::open(Box::new(disk.clone()), &identity(), PROPORTIONED, options(budget())).unwrap();
    let mut visits = Visits { state: 1, recent: Vec::new() };
    let mut turns: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    let (mut ours, mut simple, mut policy) = (Outcome::default(), Outcome::default(), Simple::default());
    for _ in 0..VISITS {
        disk.later(PAUSE_SECONDS);
        let conversation = visits.next();
        let said = turns.entry(conversation).or_default();
        // A conversation ends and another begins in its place.
        if said.len() as u64 == 2 * TURNS_TYPICAL {
            said.clear();
        }
        said.push(format!("{} <2", text(visits.random(1 << 40), TURN_TOKENS - 1)));
        let notation = format!("<{} {}", conversation + 3, said.join(" "));
        let tokens = 1 + (said.len() * TURN_TOKENS) as u64;
        ours.asked += tokens;
        simple.asked += tokens;
        if let Some(found) = find(&store, &notation) {
            ours.cached += u64::from(found.tokens);
            store.load(found).unwrap();
        }
        let before = evictions(&store);
        let saved = transcript(&notation);
        let mut saved = snapshot(&store, &saved, Vec::new());
        saved.bank = Box::new(FakeBank::sized(saved.transcript.tokens(), PROPORTIONED));
        store.save(&saved).unwrap();
        drop(saved);
        let lost = find(&store, &format!("{notation} x")).is_none_or(|found| u64::from(found.tokens) != tokens);
        ours.lost_at_once += u64::from(lost && evictions(&store) > before);
        // The published rule would take an ended conversation's file for the new one's beginning: spare it that.
        if said.len() == 1 {
            policy.files.remove(&conversation);
        }
        policy.visit(conversation, tokens, disk.now(), &mut simple);
    }
    ours.written = store.stats().written.0;
    for (name, outcome) in [("ours", &ours), ("simple", &simple)] {
        println!(
            "{name:<7} hit rate {:.3}  written {:>9} bytes  saved and given up at once {}",
            outcome.hit_rate(),
            outcome.written,
            outcome.lost_at_once
        );
    }
    assert_eq!(ours.lost_at_once, 0);
    assert!(ours.hit_rate() >= simple.hit_rate());
    assert!(ours.written * 2 < simple.written);
}
