//! Constraints on an answer, as sets of tokens that may come next.

use ds4_units::TokenId;

/// Holds a part of an answer to a grammar. The engine asks for the allowed tokens before it draws one and reports what
/// it drew, on its own thread: a call must take well under a millisecond.
pub trait TokenConstraint: Send {
    /// The part of the answer it applies to. Tokens elsewhere are neither asked for nor reported.
    fn scope(&self) -> ConstraintScope;

    /// Sets `allowed`, which comes full, to the tokens that may come next; stop tokens belong to it where the part may
    /// end.
    ///
    /// # Errors
    /// When the constraint cannot go on: the request fails with the message.
    fn allow(&mut self, allowed: &mut TokenSet) -> Result<(), ConstraintFault>;

    /// This token was drawn (or forced) in the constraint's part. Stop tokens are not reported.
    ///
    /// # Errors
    /// As [`TokenConstraint::allow`].
    fn commit(&mut self, token: TokenId) -> Result<(), ConstraintFault>;

    /// The answer begins once more: everything reported so far is forgotten.
    fn restart(&mut self);
}

/// The part of an answer that a constraint applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConstraintScope {
    /// The text of the answer, from its first token to the stop token.
    Content,
    /// A block of tool calls, from the token after its opening on.
    Calls,
}

/// Why a constraint cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the answer cannot be held to its grammar: {0}")]
pub struct ConstraintFault(pub String);

/// A set of tokens: one bit for each of a vocabulary, lowest bit first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenSet {
    words: Vec<u32>,
    vocabulary: usize,
}

impl TokenSet {
    /// The set of all tokens of a vocabulary.
    pub fn full(vocabulary: usize) -> TokenSet {
        let mut set = TokenSet { words: vec![0; vocabulary.div_ceil(32)], vocabulary };
        set.fill();
        set
    }

    /// Tokens of the vocabulary.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// Makes it the set of all tokens again.
    pub fn fill(&mut self) {
        self.words.fill(u32::MAX);
        let rest = self.vocabulary % 32;
        if let Some(last) = self.words.last_mut().filter(|_| rest > 0) {
            *last = (1 << rest) - 1;
        }
    }

    /// Empties the set.
    pub fn clear(&mut self) {
        self.words.fill(0);
    }

    /// Adds a token; one outside the vocabulary is ignored.
    pub fn insert(&mut self, token: TokenId) {
        if token.index() < self.vocabulary {
            self.words[token.index() / 32] |= 1 << (token.index() % 32);
        }
    }

    /// Whether the token belongs to the set.
    pub fn contains(&self, token: TokenId) -> bool {
        token.index() < self.vocabulary && self.words[token.index() / 32] & (1 << (token.index() % 32)) != 0
    }

    /// Keeps the tokens whose bits are set in `words`, which are laid out alike; missing words keep nothing.
    pub fn intersect_words(&mut self, words: &[u32]) {
        let given = words.iter().copied().chain(std::iter::repeat(0));
        self.words.iter_mut().zip(given).for_each(|(mine, given)| *mine &= given);
    }

    /// Tokens in the set.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether no token is left.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_set_has_exactly_the_vocabulary() {
        for vocabulary in [0, 1, 31, 32, 33, 129] {
            let set = TokenSet::full(vocabulary);
            assert_eq!(set.len(), vocabulary);
            assert!(!set.contains(TokenId(vocabulary as u32)));
            assert_eq!(set.is_empty(), vocabulary == 0);
        }
    }

    #[test]
    fn sets_take_what_both_sides_have() {
        let mut set = TokenSet::full(70);
        set.intersect_words(&[1 << 5, u32::MAX]);
        assert!(set.contains(TokenId(5)) && set.contains(TokenId(63)) && !set.contains(TokenId(64)));
        assert_eq!(set.len(), 33);
        set.clear();
        set.insert(TokenId(69));
        set.insert(TokenId(70));
        assert_eq!(set.len(), 1);
    }
}
