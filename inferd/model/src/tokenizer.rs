//! The tokenizer: byte-level BPE built from a GGUF file's own vocabulary.
//!
//! Control tokens are the vocabulary's entries of type "control" and "user defined". Text is encoded with them
//! disabled, and construction refuses a vocabulary whose merges could produce one, so that no text, however it is
//! spelled, ever yields a control token.

mod alphabet;
mod build;
mod error;
mod split;

pub use build::VocabularyParts;
pub use error::TokenizerError;

use crate::{Piece, Prompt};
use aho_corasick::AhoCorasick;
use alphabet::Alphabet;
use ds4_units::{TokenId, Tokens};
use split::Splitter;
use tokenizers::Model;
use tokenizers::models::bpe::BPE;

/// A vocabulary with its encoder. Shared by request handlers; no call blocks on anything but the CPU, and the time it
/// takes grows with the length of the text (times its logarithm, for text without a word boundary).
pub struct Tokenizer {
    alphabet: Alphabet,
    splitter: Splitter,
    bpe: BPE,
    /// Finds the spellings of control tokens; pattern `i` is `control_ids[i]`.
    control_spellings: AhoCorasick,
    control_ids: Vec<TokenId>,
    is_control: Vec<bool>,
    /// The bytes of all tokens, one after the other, and where each ends.
    bytes: Vec<u8>,
    bytes_end: Vec<usize>,
    /// Bytes of the longest text token.
    longest: usize,
}

/// The longest text without a break that is tokenised: the memory that takes is some fifty times the text, and no text
/// that means anything comes near.
const UNBROKEN_MAX: usize = 1 << 20;

/// Why a text was not tokenised to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum TextTooLarge {
    #[error("the text has at least {} tokens", .at_least.0)]
    Tokens { at_least: Tokens },
    #[error("the text goes on for {bytes} bytes without a break; the limit is {limit}")]
    Unbroken { bytes: usize, limit: usize },
}

impl Tokenizer {
    /// Number of tokens in the vocabulary.
    pub fn vocabulary_len(&self) -> usize {
        self.bytes_end.len()
    }

    /// The token spelled exactly so in the vocabulary, of whatever kind. Text tokens are spelled in the byte alphabet.
    pub fn token(&self, spelling: &str) -> Option<TokenId> {
        self.bpe.token_to_id(spelling).map(TokenId)
    }

    /// The control token spelled so. Families find their special tokens by it, never by id.
    pub fn control(&self, spelling: &'static str) -> Result<TokenId, TokenizerError> {
        let token = self.token(spelling).ok_or(TokenizerError::NoSuchControl { spelling })?;
        if self.is_control(token) { Ok(token) } else { Err(TokenizerError::NotControl { spelling, token: token.0 }) }
    }

    /// Whether the token is a control token. Ids outside the vocabulary are not.
    pub fn is_control(&self, token: TokenId) -> bool {
        self.is_control.get(token.index()).copied().unwrap_or(false)
    }

    /// The bytes a token stands for: its text (any bytes, not always whole characters), or the spelling of a control
    /// token. `None` outside the vocabulary.
    pub fn token_bytes(&self, token: TokenId) -> Option<&[u8]> {
        let end = *self.bytes_end.get(token.index())?;
        let start = token.index().checked_sub(1).map_or(0, |before| self.bytes_end[before]);
        Some(&self.bytes[start..end])
    }

    /// The tokens of a prompt.
    pub fn encode(&self, prompt: &Prompt) -> Vec<TokenId> {
        let mut tokens = Vec::new();
        self.encode_pieces(prompt.pieces(), &mut tokens);
        tokens
    }

    /// As [`Tokenizer::encode`], for prompts of any size: bounded as [`Tokenizer::encode_text_within`] is.
    pub fn encode_within(&self, prompt: &Prompt, most: usize) -> Result<Vec<TokenId>, TextTooLarge> {
        let mut tokens = Vec::new();
        for piece in prompt.pieces() {
            match piece {
                Piece::Control(token) => tokens.push(*token),
                Piece::Text(text) => self.encode_text_within(text.as_str(), &mut tokens, most)?,
            }
        }
        Ok(tokens)
    }

    /// Appends the tokens of some of a prompt's pieces.
    pub fn encode_pieces(&self, pieces: &[Piece], tokens: &mut Vec<TokenId>) {
        for piece in pieces {
            match piece {
                Piece::Control(token) => tokens.push(*token),
                Piece::Text(text) => self.encode_text(text.as_str(), tokens),
            }
        }
    }

    /// Appends the tokens of a text. None of them is a control token.
    pub fn encode_text(&self, text: &str, tokens: &mut Vec<TokenId>) {
        let mut spelled = String::new();
        self.splitter.for_each_piece(text, &mut |piece| self.encode_piece(piece, &mut spelled, tokens));
    }

    /// As [`Tokenizer::encode_text`], with a bound on time and memory whatever the text is: it gives up once there are
    /// more than `most` tokens in all, or are sure to be.
    pub fn encode_text_within(&self, text: &str, tokens: &mut Vec<TokenId>, most: usize) -> Result<(), TextTooLarge> {
        let sure = tokens.len() + text.len().div_ceil(self.longest.max(1));
        let too_many = |count: usize| Err(TextTooLarge::Tokens { at_least: Tokens(count as u32) });
        if sure > most {
            return too_many(sure);
        }
        let mut spelled = String::new();
        let mut end = Ok(());
        self.splitter.for_each_piece(text, &mut |piece| {
            if end.is_ok() && piece.len() > UNBROKEN_MAX {
                end = Err(TextTooLarge::Unbroken { bytes: piece.len(), limit: UNBROKEN_MAX });
            } else if end.is_ok() {
                self.encode_piece(piece, &mut spelled, tokens);
                end = if tokens.len() > most { too_many(tokens.len()) } else { Ok(()) };
            }
        });
        end
    }

    fn encode_piece(&self, piece: &str, spelled: &mut String, tokens: &mut Vec<TokenId>) {
        spelled.clear();
        self.alphabet.spell(piece.as_bytes(), spelled);
        // The model fails only on an unknown-token setting that is not used here.
        for token in self.bpe.tokenize(spelled).unwrap_or_default() {
            tokens.push(TokenId(token.id));
        }
    }

    /// Reads text in which control tokens are spelled out, leftmost first and longest first. Only for text that is
    /// trusted as a whole, such as a protocol's own wording or a recorded prompt; what users wrote is
    /// [`Prompt::push_text`].
    pub fn parse_trusted(&self, text: &str) -> Prompt {
        let mut prompt = Prompt::new();
        let mut start = 0;
        for found in self.control_spellings.find_iter(text) {
            prompt.push_text(&text[start..found.start()]);
            prompt.push_control(self.control_ids[found.pattern().as_usize()]);
            start = found.end();
        }
        prompt.push_text(&text[start..]);
        prompt
    }
}
