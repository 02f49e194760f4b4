//! Our tokenizer as the grammar engine wants to see one.

use ds4_model::Tokenizer;
use ds4_units::TokenId;
use llguidance::toktrie::{TokRxInfo, TokTrie, TokenizerEnv};
use std::sync::Arc;

/// The vocabulary as a tree of bytes, with the tokenizer that spells forced text the way the model has learned it.
pub(crate) struct Vocabulary {
    tokenizer: Arc<Tokenizer>,
    tree: TokTrie,
}

impl Vocabulary {
    /// `rows` is the length of a logits row, at least that of the vocabulary; `stop_tokens` end an answer.
    pub(crate) fn new(tokenizer: Arc<Tokenizer>, stop_tokens: &[TokenId], rows: usize) -> Vocabulary {
        let spellings: Vec<Vec<u8>> = (0..rows as u32).map(|id| spelling(&tokenizer, TokenId(id))).collect();
        let ends: Vec<u32> = stop_tokens.iter().map(|id| id.0).collect();
        let info = TokRxInfo::new(rows as u32, ends.first().copied().unwrap_or(u32::MAX));
        let tree = TokTrie::from(&info, &spellings);
        let tree = if ends.is_empty() { tree } else { tree.with_eos_tokens(&ends) };
        Vocabulary { tokenizer, tree }
    }
}

/// A token's bytes. The engine marks control tokens with a byte that no UTF-8 text contains, so a text token that
/// begins with that byte, and can be part of no valid answer, is left out, as are ids without a token.
fn spelling(tokenizer: &Tokenizer, id: TokenId) -> Vec<u8> {
    let bytes = tokenizer.token_bytes(id).unwrap_or_default();
    if tokenizer.is_control(id) {
        return [&[TokTrie::SPECIAL_TOKEN_MARKER], bytes].concat();
    }
    if bytes.first() == Some(&TokTrie::SPECIAL_TOKEN_MARKER) { Vec::new() } else { bytes.to_vec() }
}

impl TokenizerEnv for Vocabulary {
    fn tok_trie(&self) -> &TokTrie {
        &self.tree
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<u32> {
        self.tree.tokenize_with_greedy_fallback(bytes, |text| {
            let mut tokens = Vec::new();
            self.tokenizer.encode_text(text, &mut tokens);
            tokens.into_iter().map(|token| token.0).collect()
        })
    }
}
