//! Under what a conversation is found: digests of its pieces and of its tokens.
//!
//! A prompt finds a conversation by *pieces*, so that a control token never equals its spelling and the record's own
//! token ids win over the tokenizer's. Inside a text that goes on differently, or was cut, tokens are compared. A
//! conversation that is saved finds what it continues by *tokens*, because its state follows from them alone.

use crate::transcript::{Piece, PieceKind, Transcript};
use ds4_units::TokenId;
use sha1::{Digest as _, Sha1};

/// A SHA-1 digest. It finds; what was found is compared byte by byte before it is used.
pub(crate) type Digest = [u8; 20];

/// Whole pieces, and so many tokens of the piece after them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PrefixKey {
    /// Digest of the whole pieces.
    pub(crate) pieces: Digest,
    /// Tokens of the next piece; none for whole pieces only.
    pub(crate) extra: u32,
    /// Digest of these tokens; zeros when there are none.
    pub(crate) tokens: Digest,
}

/// The keys of a stored conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    /// All pieces whole. `None` when the last one is cut.
    pub(crate) whole: Option<Digest>,
    /// The last piece as the beginning of a longer text. `None` when it is a control token.
    pub(crate) open: Option<PrefixKey>,
    /// Digest of all tokens.
    pub(crate) all_tokens: Digest,
}

impl Keys {
    pub(crate) fn of(transcript: &Transcript) -> Keys {
        let mut pieces = PieceHash::new();
        let (mut whole, mut open) = (None, None);
        let last = transcript.ends().len() - 1;
        for (index, piece) in transcript.pieces().enumerate() {
            if index == last && piece.kind != PieceKind::Control {
                let extra = piece.tokens.len() as u32;
                open = Some(PrefixKey { pieces: pieces.digest(), extra, tokens: digest_of(piece.tokens) });
            }
            if piece.kind != PieceKind::Cut {
                pieces.push(&piece);
                whole = (index == last).then(|| pieces.digest());
            }
        }
        Keys { whole, open, all_tokens: digest_of(transcript.tokens()) }
    }

    /// Every key to enter into an index.
    pub(crate) fn entries(&self) -> impl Iterator<Item = PrefixKey> {
        let whole = self.whole.map(|pieces| PrefixKey { pieces, extra: 0, tokens: [0; 20] });
        whole.into_iter().chain(self.open)
    }
}

/// A running digest of pieces.
#[derive(Clone)]
pub(crate) struct PieceHash(Sha1);

impl PieceHash {
    pub(crate) fn new() -> PieceHash {
        PieceHash(Sha1::new())
    }

    /// Kinds and lengths are hashed too, so that no two lists of pieces give the same bytes to hash.
    pub(crate) fn push(&mut self, piece: &Piece<'_>) {
        match piece.kind {
            PieceKind::Control => {
                self.0.update([1]);
                piece.tokens.iter().for_each(|token| self.0.update(token.0.to_le_bytes()));
            }
            PieceKind::Text | PieceKind::Cut => {
                self.0.update([0]);
                self.0.update((piece.text.len() as u64).to_le_bytes());
                self.0.update(piece.text);
            }
        }
    }

    pub(crate) fn digest(&self) -> Digest {
        self.0.clone().finalize().into()
    }
}

/// A running digest of tokens.
#[derive(Clone)]
pub(crate) struct TokenHash {
    hash: Sha1,
    count: u32,
}

impl TokenHash {
    pub(crate) fn new() -> TokenHash {
        TokenHash { hash: Sha1::new(), count: 0 }
    }

    /// The digest of the first `count` tokens; counts must not fall from call to call.
    pub(crate) fn digest_at(&mut self, tokens: &[TokenId], count: u32) -> Digest {
        for token in &tokens[self.count as usize..count as usize] {
            self.hash.update(token.0.to_le_bytes());
        }
        self.count = count;
        self.hash.clone().finalize().into()
    }
}

fn digest_of(tokens: &[TokenId]) -> Digest {
    TokenHash::new().digest_at(tokens, tokens.len() as u32)
}
