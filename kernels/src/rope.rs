//! Rotary position embedding over the last 64 channels of a head, in interleaved pairs.

use crate::kv_rows::ROTARY;
use ds4_units::TokenPos;

/// Pairs that are rotated.
const PAIRS: usize = ROTARY / 2;

/// The angle per position of every pair.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    frequencies: [f64; PAIRS],
}

/// How long contexts stretch the slow pairs (YaRN, without its change of magnitude).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stretch {
    /// How many times the original context.
    pub factor: f64,
    /// The context the unstretched angles were trained for.
    pub original_context: f64,
    /// Pairs that turn at least this often in the original context keep their frequency.
    pub beta_fast: f64,
    /// Pairs that turn at most this often are stretched in full.
    pub beta_slow: f64,
}

/// Cosines and sines of one position.
#[derive(Clone, Debug, PartialEq)]
pub struct Rotation {
    cosines: [f32; PAIRS],
    sines: [f32; PAIRS],
}

impl Rope {
    /// Frequencies `base^(-2j/64)`, stretched where asked. Formula: the public reference implementation's.
    pub fn new(base: f64, stretch: Option<Stretch>) -> Rope {
        let width = ROTARY as f64;
        let frequencies = std::array::from_fn(|pair| {
            let frequency = base.powf(-2.0 * pair as f64 / width);
            match stretch {
                None => frequency,
                Some(stretch) => {
                    let share = stretch.share(pair as f64, base, width);
                    frequency * ((1.0 - share) + share / stretch.factor)
                }
            }
        });
        Rope { frequencies }
    }

    /// Angle per position of every pair, in radians.
    #[cfg(feature = "cuda")]
    pub(crate) fn frequencies(&self) -> &[f64; PAIRS] {
        &self.frequencies
    }

    /// The rotation at a position. Angles are computed in `f64`: in `f32` they would be off by 0.03 near a million.
    pub fn at(&self, position: TokenPos) -> Rotation {
        let angles = self.frequencies.map(|frequency| f64::from(position.0) * frequency);
        Rotation { cosines: angles.map(|angle| angle.cos() as f32), sines: angles.map(|angle| angle.sin() as f32) }
    }
}

impl Stretch {
    /// How much of the stretch a pair takes: 0 for fast pairs, 1 for slow ones, linear between.
    fn share(&self, pair: f64, base: f64, width: f64) -> f64 {
        let pair_turning = |turns: f64| {
            width * (self.original_context / (turns * 2.0 * std::f64::consts::PI)).ln() / (2.0 * base.ln())
        };
        let low = pair_turning(self.beta_fast).floor().max(0.0);
        let high = pair_turning(self.beta_slow).ceil().min(width - 1.0);
        ((pair - low) / (high - low).max(0.001)).clamp(0.0, 1.0)
    }
}

impl Rotation {
    /// Rotates the last 64 channels of a head.
    pub fn apply(&self, head: &mut [f32]) {
        self.turn(head, 1.0);
    }

    /// Undoes [`Rotation::apply`].
    pub fn undo(&self, head: &mut [f32]) {
        self.turn(head, -1.0);
    }

    fn turn(&self, head: &mut [f32], direction: f32) {
        let start = head.len() - ROTARY;
        let pairs = head[start..].as_chunks_mut::<2>().0;
        for ((pair, cosine), sine) in pairs.iter_mut().zip(self.cosines).zip(self.sines) {
            let sine = sine * direction;
            *pair = [pair[0] * cosine - pair[1] * sine, pair[0] * sine + pair[1] * cosine];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undoing_a_rotation_gives_the_head_back() {
        let rotation = Rope::new(10_000.0, None).at(TokenPos(12_345));
        let head: Vec<f32> = (0..128).map(|i| i as f32 / 10.0).collect();
        let mut turned = head.clone();
        rotation.apply(&mut turned);
        assert_eq!(turned[..64], head[..64]);
        assert_ne!(turned[64..], head[64..]);
        rotation.undo(&mut turned);
        for (turned, head) in turned.iter().zip(&head) {
            assert!((turned - head).abs() < 1e-4);
        }
    }

    #[test]
    fn the_published_stretch_begins_at_pair_15_and_is_complete_at_25() {
        let stretch = Stretch { factor: 16.0, original_context: 65_536.0, beta_fast: 32.0, beta_slow: 1.0 };
        assert_eq!(stretch.share(15.0, 160_000.0, 64.0), 0.0);
        assert!(stretch.share(16.0, 160_000.0, 64.0) > 0.0);
        assert!(stretch.share(24.0, 160_000.0, 64.0) < 1.0);
        assert_eq!(stretch.share(25.0, 160_000.0, 64.0), 1.0);
    }
}
