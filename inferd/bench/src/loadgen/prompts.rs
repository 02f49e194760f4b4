//! Prompts of an exact number of tokens.
//!
//! The server tokenises one long text of random words; a prompt is a stretch of the ids it answers with. So the length
//! is exact with any vocabulary, and the tokens are ones that ordinary text has.

use crate::client::Server;
use crate::config::Args;
use crate::error::LoadgenError;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

#[path = "../words.rs"]
mod words;

/// Every prompt of a run.
#[derive(Debug)]
pub(crate) struct Prompts {
    shared: Vec<u64>,
    pool: Vec<u64>,
    own_tokens: usize,
    seed: u64,
}

impl Prompts {
    /// Asks the server for tokens. Blocks on it.
    pub(crate) fn prepare(server: &Server, args: &Args) -> Result<Prompts, LoadgenError> {
        let tokens = args.prompt_tokens as usize;
        let text = words::words(args.seed, tokens * 2);
        Ok(Prompts::from_pool(server.tokenize(&text)?, tokens, args.shared_tokens(), args.seed))
    }

    fn from_pool(pool: Vec<u64>, tokens: usize, shared: usize, seed: u64) -> Prompts {
        let shared: Vec<u64> = pool.iter().copied().cycle().take(shared).collect();
        Prompts { own_tokens: tokens - shared.len(), shared, pool, seed }
    }

    /// Token ids of request number `index`: the shared beginning, then ids drawn for it alone.
    pub(crate) fn prompt(&self, index: usize) -> Vec<u64> {
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        random.set_stream(index as u64 + 1);
        let own = (0..self.own_tokens).map(|_| self.pool[(random.next_u64() % self.pool.len() as u64) as usize]);
        self.shared.iter().copied().chain(own).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_share_their_beginning_and_nothing_else_and_come_again_with_the_seed() {
        let prompts = Prompts::from_pool((100..400).collect(), 50, 20, 7);
        let (first, second) = (prompts.prompt(0), prompts.prompt(1));
        assert_eq!((first.len(), second.len()), (50, 50));
        assert_eq!(first[..20], second[..20]);
        assert_ne!(first[20..], second[20..]);
        assert_eq!(first, Prompts::from_pool((100..400).collect(), 50, 20, 7).prompt(0));
        assert_ne!(first, Prompts::from_pool((100..400).collect(), 50, 20, 8).prompt(0));
    }
}
