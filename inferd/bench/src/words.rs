//! Texts of random words, the same for the same seed.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

const WORDS: [&str; 64] = [
    "river", "stone", "quiet", "garden", "yellow", "market", "seven", "window", "letter", "winter", "bridge", "copper",
    "follow", "simple", "engine", "paper", "morning", "silver", "village", "carry", "open", "between", "story",
    "north", "candle", "music", "under", "forest", "number", "travel", "second", "glass", "harbour", "answer",
    "little", "cloud", "table", "before", "wheel", "island", "summer", "listen", "orange", "field", "measure",
    "remember", "station", "early", "kitchen", "doctor", "valley", "thunder", "ticket", "pencil", "around", "basket",
    "school", "engineer", "mountain", "coffee", "library", "gentle", "question", "harvest",
];

/// A text of so many random words.
pub(crate) fn words(seed: u64, count: usize) -> String {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut text = String::new();
    for _ in 0..count {
        text.push(' ');
        text.push_str(WORDS[random.next_u32() as usize % WORDS.len()]);
    }
    text
}
