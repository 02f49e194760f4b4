//! What tests of the store share: a bank made of its tokens, transcripts from a short notation, a disk that crashes.
#![allow(dead_code, unreachable_pub)]

pub mod disk;
pub mod seal;

use ds4_banks::{
    BankBytes, Found, Geometry, Identity, Loaded, NotSaved, Piece, PieceEnd, PieceKind, Remembered, SaveReason, Saved,
    Snapshot, Store, StoreOptions, SyncMode, Transcript,
};
use ds4_units::{Bytes, TokenId};
use std::sync::Arc;

pub const GEOMETRY: Geometry =
    Geometry { block_tokens: 4, block_bytes: 24, recurrent_bytes: 20, context: 4096, vocabulary: 1000 };

pub fn identity() -> Identity {
    Identity { weights: [7; 32], renderer: "test/1".into(), layout: "24+20".into() }
}

pub fn options(budget: u64) -> StoreOptions {
    StoreOptions { budget: Bytes(budget), min_tokens: 1, sync: SyncMode::Data }
}

/// Sizes in the proportions of a real model: a recurrent part weighs as much as a turn.
pub const PROPORTIONED: Geometry = Geometry { block_bytes: 256, recurrent_bytes: 3_800, ..GEOMETRY };

pub fn open(disk: disk::MemDisk, budget: u64) -> Arc<Store> {
    Store::open(Box::new(disk), &identity(), GEOMETRY, options(budget)).expect("the store opens")
}

/// The state after these tokens: every block and the recurrent part tell the tokens before their end.
pub struct FakeBank {
    blocks: Vec<Vec<u8>>,
    recurrent: Vec<u8>,
}

impl FakeBank {
    pub fn of(tokens: &[TokenId]) -> FakeBank {
        FakeBank::sized(tokens, GEOMETRY)
    }

    pub fn sized(tokens: &[TokenId], geometry: Geometry) -> FakeBank {
        let state = |tokens: &[TokenId], len: usize| {
            let mut hash = 0xcbf2_9ce4_8422_2325_u64;
            tokens.iter().for_each(|token| hash = (hash ^ u64::from(token.0)).wrapping_mul(0x0100_0000_01b3));
            (0..len).map(|at| (hash.rotate_left(at as u32) >> 8) as u8).collect::<Vec<u8>>()
        };
        let block = |end: usize| state(&tokens[..end.min(tokens.len())], geometry.block_bytes);
        let count = tokens.len().div_ceil(geometry.block_tokens as usize);
        FakeBank {
            blocks: (1..=count).map(|index| block(index * geometry.block_tokens as usize)).collect(),
            recurrent: state(tokens, geometry.recurrent_bytes),
        }
    }
}

impl BankBytes for FakeBank {
    fn block(&self, index: u32) -> &[u8] {
        &self.blocks[index as usize]
    }

    fn recurrent(&self) -> &[u8] {
        &self.recurrent
    }

    fn held(&self) -> Bytes {
        Bytes(100)
    }
}

/// Pieces split by spaces: `<5` is control token 5, `abc` a text of one token per letter, `abc~` a text cut off.
pub fn transcript(notation: &str) -> Transcript {
    let (mut text, mut tokens, mut pieces) = (Vec::new(), Vec::new(), Vec::new());
    for piece in notation.split(' ').filter(|piece| !piece.is_empty()) {
        let kind = match piece.strip_prefix('<') {
            Some(id) => {
                tokens.push(TokenId(id.parse().expect("an id")));
                text.extend(format!("<{id}>").bytes());
                PieceKind::Control
            }
            None => {
                let letters = piece.trim_end_matches('~');
                tokens.extend(letters.bytes().map(|letter| TokenId(letter.into())));
                text.extend(letters.bytes());
                if piece.ends_with('~') { PieceKind::Cut } else { PieceKind::Text }
            }
        };
        pieces.push(PieceEnd { kind, text_end: text.len() as u32, tokens_end: tokens.len() as u32 });
    }
    Transcript::new(text, tokens, pieces).expect("a transcript")
}

pub fn tool_calls() -> Vec<Remembered> {
    vec![Remembered { id: "call_1".into(), written: b"abc".to_vec() }]
}

pub fn snapshot(store: &Arc<Store>, transcript: &Transcript, remembered: Vec<Remembered>) -> Snapshot {
    let plan = store.plan(transcript.tokens());
    let bank = Box::new(FakeBank::of(transcript.tokens()));
    let remembered = Box::new(move || remembered.clone());
    Snapshot { transcript: transcript.clone(), reason: SaveReason::Continued, plan, bank, remembered }
}

pub fn save(store: &Arc<Store>, notation: &str) -> Result<Saved, NotSaved> {
    store.save(&snapshot(store, &transcript(notation), Vec::new()))
}

pub fn find(store: &Arc<Store>, prompt: &str) -> Option<Found> {
    store.find(transcript(prompt).pieces())
}

/// What the store gives for a prompt; every byte of it is what the bank of its tokens has.
pub fn restore(store: &Arc<Store>, prompt: &str) -> Option<Loaded> {
    let prompt = transcript(prompt);
    let found = store.find(prompt.pieces().map(|piece: Piece<'_>| piece))?;
    let tokens = found.tokens;
    let loaded = store.load(found).ok()?;
    assert_eq!(loaded.transcript.len(), tokens);
    assert!(prompt.tokens().starts_with(loaded.transcript.tokens()), "restored tokens that are not the prompt's");
    assert_is_bank(&loaded);
    Some(loaded)
}

pub fn assert_is_bank(loaded: &Loaded) {
    let bank = FakeBank::of(loaded.transcript.tokens());
    assert!(loaded.blocks == bank.blocks, "blocks of {:?}", loaded.transcript);
    assert!(loaded.recurrent == bank.recurrent, "recurrent part of {:?}", loaded.transcript);
}

/// A text of `tokens` tokens that differs for every seed.
pub fn text(seed: u64, tokens: usize) -> String {
    (0..tokens as u64)
        .map(|at| char::from(b'a' + ((seed.wrapping_mul(2_654_435_761) >> (at % 13)) % 26) as u8))
        .collect()
}

pub fn evictions(store: &Store) -> u64 {
    store.stats().evictions.iter().sum()
}

pub fn quarantined(store: &Store) -> u64 {
    store.stats().quarantined.iter().sum()
}
