//! Finding the conversation that leaves the least of a prompt to compute, and the one that a save continues.

use super::{EntryId, Index};
use crate::keys::{PieceHash, TokenHash};
use crate::stats::HitKind;
use crate::transcript::{Piece, PieceKind};
use ds4_units::TokenId;
use std::ops::RangeInclusive;

/// A stored conversation that is the beginning of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Match {
    pub(crate) id: EntryId,
    /// Tokens of the conversation.
    pub(crate) tokens: u32,
    /// Tokens of the prompt, as the tokenizer cut it, that it stands for.
    pub(crate) covered: u32,
    /// How it was found.
    pub(crate) kind: HitKind,
}

impl Index {
    /// The conversation of `least` to `most` tokens that stands for the most of the prompt and leaves at least one
    /// token of it. Reads every piece once, however many conversations there are. Where pieces find nothing, or less,
    /// equal tokens do: the state follows from them alone.
    pub(crate) fn find<'a>(&self, prompt: impl Iterator<Item = Piece<'a>>, least: u32, most: u32) -> Option<Match> {
        let mut best: Option<Match> = None;
        let mut hash = PieceHash::new();
        let mut covered = 0;
        let mut all_tokens = Vec::new();
        let mut prompt = prompt.peekable();
        loop {
            let digest = hash.digest();
            let Some(piece) = prompt.next() else { break };
            let more_follows = prompt.peek().is_some();
            let mut tokens = TokenHash::new();
            for (&(_, extra), held) in self.by_prefix.range((digest, 0)..=(digest, u32::MAX)) {
                let inside = extra as usize;
                let is_text = piece.kind != PieceKind::Control;
                let last = piece.tokens.len() - usize::from(!more_follows);
                if inside > last || (inside > 0 && !is_text) {
                    break;
                }
                let wanted = if inside == 0 { [0; 20] } else { tokens.digest_at(piece.tokens, extra) };
                let usable = held.iter().filter(|&&(found, _)| found == wanted).filter_map(|&(_, id)| {
                    let tokens = self.get(id)?.tokens;
                    let kind = if inside == 0 { HitKind::Pieces } else { HitKind::InsideText };
                    ((least..=most).contains(&tokens)).then_some(Match { id, tokens, covered: covered + extra, kind })
                });
                best = best.into_iter().chain(usable).reduce(|best, next| {
                    let rank = |found: &Match| (found.covered, self.get(found.id).map(|entry| entry.used), found.id);
                    if rank(&next) >= rank(&best) { next } else { best }
                });
            }
            hash.push(&piece);
            covered += piece.tokens.len() as u32;
            all_tokens.extend_from_slice(piece.tokens);
        }
        let further = best.map_or(least, |best| least.max(best.covered + 1))..=most.min(covered.saturating_sub(1));
        let id = self.longest_within(&all_tokens, further);
        let by_tokens = id.and_then(|id| {
            let tokens = self.get(id)?.tokens;
            Some(Match { id, tokens, covered: tokens, kind: HitKind::Tokens })
        });
        by_tokens.or(best)
    }

    /// The longest conversation whose tokens are the first of these.
    pub(crate) fn longest_prefix(&self, tokens: &[TokenId]) -> Option<EntryId> {
        self.longest_within(tokens, 0..=tokens.len() as u32)
    }

    /// The same among those that have so many tokens.
    fn longest_within(&self, tokens: &[TokenId], lengths: RangeInclusive<u32>) -> Option<EntryId> {
        if lengths.is_empty() {
            return None;
        }
        let mut hash = TokenHash::new();
        let lengths = self.by_tokens.range(lengths);
        lengths.filter_map(|(&count, held)| held.get(&hash.digest_at(tokens, count)).copied()).last()
    }
}
