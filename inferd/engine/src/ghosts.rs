//! Conversations that were given up lately, known by what their tokens were. When one of them is asked for again it is
//! computed twice: a worker that does much of that has more conversations than its memory carries.
//!
//! Caches call these ghosts (Megiddo and Modha, "ARC", FAST 2003), and what they count refaults.

use ds4_units::{TokenId, Tokens};
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hasher};
use std::time::{Duration, Instant};

/// Tokens are told apart in blocks of so many.
const BLOCK: usize = 64;
/// Who comes back later than this has not been driven out in vain.
const LATELY: Duration = Duration::from_secs(600);
/// How many are known at most: some times more than there are banks.
const KNOWN_MOST: usize = 128;

/// One of them.
struct Ghost {
    /// Of every whole block, a hash of all tokens up to its end.
    blocks: Vec<u64>,
    went: Instant,
}

/// The last of them, the oldest first.
#[derive(Default)]
pub(crate) struct Ghosts {
    known: VecDeque<Ghost>,
}

impl Ghosts {
    /// A conversation is given up.
    pub(crate) fn add(&mut self, tokens: &[TokenId], now: Instant) {
        if self.known.len() == KNOWN_MOST {
            self.known.pop_front();
        }
        self.known.push_back(Ghost { blocks: blocks(tokens).collect(), went: now });
    }

    /// How many of a prompt's first tokens one of them held, in whole blocks.
    pub(crate) fn held(&mut self, prompt: &[TokenId], now: Instant) -> Tokens {
        let is_old = |ghost: &Ghost| now.saturating_duration_since(ghost.went) > LATELY;
        while self.known.front().is_some_and(is_old) {
            self.known.pop_front();
        }
        let longest = self.known.iter().map(|ghost| ghost.blocks.len()).max().unwrap_or(0);
        let wanted: Vec<u64> = blocks(prompt).take(longest).collect();
        let shared =
            |ghost: &Ghost| ghost.blocks.iter().zip(&wanted).take_while(|(held, wanted)| held == wanted).count();
        let most = self.known.iter().map(shared).max().unwrap_or(0);
        Tokens((most * BLOCK) as u32)
    }
}

fn blocks(tokens: &[TokenId]) -> impl Iterator<Item = u64> + '_ {
    tokens.chunks_exact(BLOCK).scan(DefaultHasher::new(), |hasher, block| {
        block.iter().for_each(|token| hasher.write_u32(token.0));
        Some(hasher.finish())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(ids: impl IntoIterator<Item = u32>) -> Vec<TokenId> {
        ids.into_iter().map(TokenId).collect()
    }

    #[test]
    fn a_prompt_is_known_as_far_as_it_is_what_a_conversation_was() {
        let (mut ghosts, now) = (Ghosts::default(), Instant::now());
        assert_eq!(ghosts.held(&tokens(0..200), now), Tokens(0));
        ghosts.add(&tokens(0..200), now);
        ghosts.add(&tokens(1000..1100), now);
        for (prompt, held) in [
            (tokens(0..1000), 192),
            (tokens(0..191), 128),
            (tokens((0..100).chain(200..400)), 64),
            (tokens(1..200), 0),
            // The second block alone is nothing: what it means depends on what is in front of it.
            (tokens((500..564).chain(64..128)), 0),
            (tokens(1000..1064), 64),
            (tokens([]), 0),
        ] {
            assert_eq!(ghosts.held(&prompt, now), Tokens(held), "{} tokens", prompt.len());
        }
    }

    #[test]
    fn those_that_went_long_ago_are_forgotten_and_so_are_the_oldest_of_many() {
        let (mut ghosts, start) = (Ghosts::default(), Instant::now());
        let prompt = tokens(0..64);
        ghosts.add(&prompt, start);
        assert_eq!(ghosts.held(&prompt, start + LATELY), Tokens(64));
        assert_eq!(ghosts.held(&prompt, start + LATELY + Duration::from_secs(1)), Tokens(0));
        ghosts.add(&prompt, start);
        for other in 1..KNOWN_MOST as u32 {
            ghosts.add(&tokens(other * 1000..other * 1000 + 64), start);
        }
        assert_eq!(ghosts.held(&prompt, start), Tokens(64));
        ghosts.add(&tokens([]), start);
        assert_eq!(ghosts.held(&prompt, start), Tokens(0));
    }
}
