//! Drawing the next token from a row of logits.
//!
//! Order: temperature, then top-k, then top-p over what top-k left, then min-p against the likeliest token. One random
//! number is drawn per token from the request's own generator, so a request with a seed gives the same tokens
//! whatever else runs.

use ds4_model::TokenSet;
use ds4_units::TokenId;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use std::cmp::Ordering;

/// How a request wants its tokens drawn. Values are in range: the API and the command line check them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// 0 takes the likeliest token; larger values flatten the distribution.
    pub temperature: f32,
    /// Keep the likeliest tokens whose probabilities reach this sum; 1 keeps all.
    pub top_p: f32,
    /// Keep this many of the likeliest tokens; 0 keeps all.
    pub top_k: u32,
    /// Keep tokens at least this likely, relative to the likeliest; 0 keeps all.
    pub min_p: f32,
    /// Makes the draw repeatable. Without one the operating system's generator seeds the request.
    pub seed: Option<u64>,
}

impl Sampling {
    /// Always the likeliest token.
    pub const GREEDY: Sampling = Sampling { temperature: 0.0, top_p: 1.0, top_k: 0, min_p: 0.0, seed: None };

    /// What a request that names nothing gets.
    pub const DEFAULT: Sampling = Sampling { temperature: 1.0, top_p: 1.0, top_k: 0, min_p: 0.05, seed: None };
}

/// A row of logits holds a value that is not a number or infinite, or no value at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the model returned logits that are not finite")]
pub struct NotFinite;

/// The draws of one request.
pub(crate) struct Sampler {
    sampling: Sampling,
    random: ChaCha8Rng,
    kept: Vec<Candidate>,
}

#[derive(Clone, Copy)]
struct Candidate {
    token: u32,
    weight: f64,
}

/// Likeliest first; equal weights by token id, so the order is total and repeatable.
fn likeliest_first(a: &Candidate, b: &Candidate) -> Ordering {
    b.weight.total_cmp(&a.weight).then(a.token.cmp(&b.token))
}

impl Sampler {
    /// Whether it takes the likeliest token, whatever the random numbers are.
    pub(crate) fn is_greedy(&self) -> bool {
        self.sampling.temperature == 0.0
    }

    pub(crate) fn new(sampling: Sampling) -> Sampler {
        let random = match sampling.seed {
            Some(seed) => ChaCha8Rng::seed_from_u64(seed),
            None => ChaCha8Rng::from_os_rng(),
        };
        Sampler { sampling, random, kept: Vec::new() }
    }

    /// Draws one token among the allowed ones. `greedy` takes the likeliest whatever the request says.
    ///
    /// # Errors
    /// When the logits are not finite, or no token is allowed.
    pub(crate) fn sample(
        &mut self,
        logits: &[f32],
        greedy: bool,
        allowed: Option<&TokenSet>,
    ) -> Result<TokenId, NotFinite> {
        let (best, highest) = argmax(logits, allowed)?;
        if greedy || self.sampling.temperature <= 0.0 {
            return Ok(best);
        }
        self.weigh(logits, highest);
        if let Some(allowed) = allowed {
            self.kept.retain(|candidate| allowed.contains(TokenId(candidate.token)));
        }
        self.keep_top_k();
        self.keep_top_p();
        self.keep_min_p();
        Ok(self.draw())
    }

    /// Weights relative to the likeliest token, whose weight is 1.
    fn weigh(&mut self, logits: &[f32], highest: f32) {
        let temperature = f64::from(self.sampling.temperature);
        self.kept.clear();
        self.kept.extend(logits.iter().zip(0..).map(|(&logit, token)| Candidate {
            token,
            weight: ((f64::from(logit) - f64::from(highest)) / temperature).exp(),
        }));
    }

    fn keep_top_k(&mut self) {
        let k = self.sampling.top_k as usize;
        if k == 0 || k >= self.kept.len() {
            return;
        }
        self.kept.select_nth_unstable_by(k - 1, likeliest_first);
        self.kept.truncate(k);
        // Selection leaves an unspecified order, and the draw walks the list.
        self.kept.sort_unstable_by_key(|candidate| candidate.token);
    }

    fn keep_top_p(&mut self) {
        let top_p = f64::from(self.sampling.top_p);
        if top_p >= 1.0 {
            return;
        }
        self.kept.sort_unstable_by(likeliest_first);
        let wanted = top_p * self.total();
        let mut sum = 0.0;
        let mut keep = 0;
        for candidate in &self.kept {
            sum += candidate.weight;
            keep += 1;
            if sum >= wanted {
                break;
            }
        }
        self.kept.truncate(keep);
    }

    fn keep_min_p(&mut self) {
        let floor = f64::from(self.sampling.min_p);
        self.kept.retain(|candidate| candidate.weight >= floor);
    }

    fn total(&self) -> f64 {
        self.kept.iter().map(|candidate| candidate.weight).sum()
    }

    fn draw(&mut self) -> TokenId {
        // 53 random bits: every value of [0, 1) that an f64 can hold evenly spaced.
        let unit = (self.random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let mut left = unit * self.total();
        for candidate in &self.kept {
            left -= candidate.weight;
            if left < 0.0 {
                return TokenId(candidate.token);
            }
        }
        // Rounding may leave a rest: the last candidate takes it. The likeliest token is always kept.
        TokenId(self.kept[self.kept.len() - 1].token)
    }
}

/// The likeliest allowed token and its logit; the lowest id wins a tie.
fn argmax(logits: &[f32], allowed: Option<&TokenSet>) -> Result<(TokenId, f32), NotFinite> {
    let mut best: Option<(u32, f32)> = None;
    for (&logit, token) in logits.iter().zip(0..) {
        if !logit.is_finite() {
            return Err(NotFinite);
        }
        let is_allowed = || allowed.is_none_or(|allowed| allowed.contains(TokenId(token)));
        if best.is_none_or(|(_, highest)| logit > highest) && is_allowed() {
            best = Some((token, logit));
        }
    }
    best.map(|(token, highest)| (TokenId(token), highest)).ok_or(NotFinite)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw_many(sampling: Sampling, logits: &[f32], count: usize) -> Vec<u32> {
        let mut sampler = Sampler::new(sampling);
        (0..count).map(|_| sampler.sample(logits, false, None).unwrap().0).collect()
    }

    fn seeded(seed: u64) -> Sampling {
        Sampling { min_p: 0.0, seed: Some(seed), ..Sampling::DEFAULT }
    }

    #[test]
    fn greedy_takes_the_likeliest_and_the_lowest_id_of_equals() {
        assert_eq!(draw_many(Sampling::GREEDY, &[0.0, 3.0, 3.0, -1.0], 3), [1, 1, 1]);
    }

    #[test]
    fn one_seed_gives_one_sequence_and_another_seed_another() {
        let logits: Vec<f32> = (0..100).map(|i| (i as f32 * 0.37).sin()).collect();
        assert_eq!(draw_many(seeded(7), &logits, 50), draw_many(seeded(7), &logits, 50));
        assert_ne!(draw_many(seeded(7), &logits, 50), draw_many(seeded(8), &logits, 50));
    }

    #[test]
    fn draws_follow_the_probabilities() {
        let logits = [0.75f32.ln(), 0.25f32.ln()];
        let zeros = draw_many(seeded(1), &logits, 10_000).iter().filter(|&&token| token == 0).count();
        assert!((7_300..7_700).contains(&zeros), "{zeros}");
    }

    #[test]
    fn top_k_one_is_greedy_and_filters_never_leave_nothing() {
        let logits = [1.0, 2.0, 1.5];
        assert_eq!(draw_many(Sampling { top_k: 1, ..seeded(3) }, &logits, 5), [1; 5]);
        assert_eq!(draw_many(Sampling { top_p: f32::MIN_POSITIVE, ..seeded(3) }, &logits, 5), [1; 5]);
        assert_eq!(draw_many(Sampling { min_p: 1.0, ..seeded(3) }, &logits, 5), [1; 5]);
    }

    #[test]
    fn top_p_keeps_the_smallest_set_that_reaches_the_sum() {
        let logits = [0.5f32.ln(), 0.3f32.ln(), 0.2f32.ln()];
        let drawn = draw_many(Sampling { top_p: 0.79, ..seeded(5) }, &logits, 2_000);
        assert!(drawn.contains(&1) && !drawn.contains(&2));
    }

    #[test]
    fn min_p_is_relative_to_the_likeliest() {
        let logits = [0.6f32.ln(), 0.3f32.ln(), 0.1f32.ln()];
        let drawn = draw_many(Sampling { min_p: 0.4, ..seeded(5) }, &logits, 2_000);
        assert!(drawn.contains(&1) && !drawn.contains(&2));
    }

    #[test]
    fn logits_that_are_not_finite_are_an_error() {
        for logits in [&[0.0, f32::NAN][..], &[f32::INFINITY], &[]] {
            assert_eq!(Sampler::new(Sampling::GREEDY).sample(logits, false, None), Err(NotFinite));
        }
    }

    #[test]
    fn syntax_is_greedy_and_leaves_the_draws_of_the_rest_alone() {
        let logits: Vec<f32> = (0..100).map(|i| (i as f32 * 0.37).sin()).collect();
        let mut plain = Sampler::new(seeded(7));
        let mut mixed = Sampler::new(seeded(7));
        for _ in 0..20 {
            let likeliest = mixed.sample(&logits, true, None).unwrap();
            assert_eq!(likeliest.0, 89);
            assert_eq!(mixed.sample(&logits, false, None), plain.sample(&logits, false, None));
        }
    }

    #[test]
    fn only_allowed_tokens_are_drawn() {
        let mut allowed = TokenSet::full(4);
        allowed.clear();
        allowed.insert(TokenId(0));
        allowed.insert(TokenId(3));
        let logits = [1.0, 9.0, 9.0, 1.5];
        let mut sampler = Sampler::new(seeded(4));
        assert_eq!(sampler.sample(&logits, true, Some(&allowed)), Ok(TokenId(3)));
        let drawn: Vec<u32> = (0..200).map(|_| sampler.sample(&logits, false, Some(&allowed)).unwrap().0).collect();
        assert!(drawn.contains(&0) && drawn.contains(&3) && drawn.iter().all(|token| [0, 3].contains(token)));
    }

    #[test]
    fn a_low_temperature_sharpens() {
        let drawn = draw_many(Sampling { temperature: 0.01, ..seeded(2) }, &[1.0, 2.0, 1.9], 500);
        assert_eq!(drawn, [1; 500]);
    }
}
