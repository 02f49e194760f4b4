//! Building a tokenizer from a vocabulary that nobody has checked yet.

use super::Tokenizer;
use super::alphabet::Alphabet;
use super::error::TokenizerError;
use super::split::{self, Splitter};
use aho_corasick::{AhoCorasick, MatchKind};
use ds4_gguf::Metadata;
use ds4_units::TokenId;
use std::collections::HashSet;
use tokenizers::models::bpe::{BPE, Merges, Vocab};

/// Far above any vocabulary in use, and few enough that ids and sizes never wrap.
const TOKENS_MAX: usize = 1 << 24;

/// GGUF's token types that are recognised in trusted text only: control and user-defined.
const CONTROL_TYPES: [u64; 2] = [3, 4];

/// A vocabulary as a file states it.
#[derive(Clone, Copy)]
pub struct VocabularyParts<'a> {
    /// Spellings by token id. Text tokens are in the byte alphabet.
    pub tokens: &'a [String],
    /// GGUF token types by token id: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte.
    pub types: &'a [u64],
    /// Merges, best first: two spellings with one space between them.
    pub merges: &'a [String],
    /// The name of the rules that cut text into pieces.
    pub split: &'a str,
}

impl Tokenizer {
    /// Builds the tokenizer a GGUF file describes.
    pub fn from_gguf(metadata: &Metadata) -> Result<Tokenizer, TokenizerError> {
        let model = metadata.str(MODEL)?.ok_or(TokenizerError::MissingKey { key: MODEL })?;
        if model != "gpt2" {
            return Err(TokenizerError::UnsupportedModel { found: model.to_owned() });
        }
        Tokenizer::from_parts(VocabularyParts {
            tokens: metadata.strings(TOKENS)?.ok_or(TokenizerError::MissingKey { key: TOKENS })?,
            types: &metadata.u64s(TYPES)?.ok_or(TokenizerError::MissingKey { key: TYPES })?,
            merges: metadata.strings(MERGES)?.ok_or(TokenizerError::MissingKey { key: MERGES })?,
            split: metadata.str(SPLIT)?.ok_or(TokenizerError::MissingKey { key: SPLIT })?,
        })
    }

    /// Builds a tokenizer from a vocabulary, checking all of it.
    pub fn from_parts(parts: VocabularyParts<'_>) -> Result<Tokenizer, TokenizerError> {
        let splitter = Splitter::named(parts.split)
            .ok_or_else(|| TokenizerError::UnsupportedSplit { found: parts.split.to_owned(), known: split::KNOWN })?;
        let alphabet = Alphabet::new();
        let is_control = control_flags(&parts)?;
        let vocabulary = vocabulary(parts.tokens)?;
        check_bytes(&alphabet, &vocabulary, &is_control)?;
        let merges = merges(&parts, &is_control)?;
        let (bytes, bytes_end) = token_bytes(&alphabet, parts.tokens, &is_control);
        let control_ids: Vec<TokenId> =
            (0u32..).zip(&is_control).filter(|(_, control)| **control).map(|(id, _)| TokenId(id)).collect();
        let control_spellings = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(control_ids.iter().map(|id| &parts.tokens[id.index()]))
            .map_err(|error| TokenizerError::Build { reason: error.to_string() })?;
        let lengths = bytes_end.iter().scan(0, |start, &end| Some(end - std::mem::replace(start, end)));
        let longest = lengths.zip(&is_control).filter(|(_, control)| !**control).map(|(len, _)| len).max().unwrap_or(1);
        let bpe = BPE::builder()
            .vocab_and_merges(vocabulary, merges)
            .build()
            .map_err(|error| merge_outside(&parts).unwrap_or(TokenizerError::Build { reason: error.to_string() }))?;
        Ok(Tokenizer { alphabet, splitter, bpe, control_spellings, control_ids, is_control, bytes, bytes_end, longest })
    }
}

const MODEL: &str = "tokenizer.ggml.model";
const TOKENS: &str = "tokenizer.ggml.tokens";
const TYPES: &str = "tokenizer.ggml.token_type";
const MERGES: &str = "tokenizer.ggml.merges";
const SPLIT: &str = "tokenizer.ggml.pre";

fn control_flags(parts: &VocabularyParts<'_>) -> Result<Vec<bool>, TokenizerError> {
    let (tokens, types) = (parts.tokens.len(), parts.types.len());
    if tokens > TOKENS_MAX {
        return Err(TokenizerError::TooManyTokens { found: tokens, limit: TOKENS_MAX });
    }
    if tokens != types {
        return Err(TokenizerError::TypesDiffer { tokens, types });
    }
    let flag = |(token, &found)| match found {
        1..=6 => Ok(CONTROL_TYPES.contains(&found)),
        _ => Err(TokenizerError::UnknownType { token, found }),
    };
    parts.types.iter().enumerate().map(flag).collect()
}

fn vocabulary(tokens: &[String]) -> Result<Vocab, TokenizerError> {
    let mut vocabulary = Vocab::with_capacity(tokens.len());
    for (id, spelling) in (0u32..).zip(tokens) {
        let second = id as usize;
        if spelling.is_empty() {
            return Err(TokenizerError::EmptyToken { token: second });
        }
        if let Some(first) = vocabulary.insert(spelling.clone(), id) {
            return Err(TokenizerError::DuplicateToken { first: first as usize, second, spelling: spelling.clone() });
        }
    }
    Ok(vocabulary)
}

/// Every byte must have its text token: BPE would silently leave out what it cannot spell.
fn check_bytes(alphabet: &Alphabet, vocabulary: &Vocab, is_control: &[bool]) -> Result<(), TokenizerError> {
    for byte in 0..=u8::MAX {
        let token = vocabulary.get(alphabet.char_of(byte).encode_utf8(&mut [0; 4]));
        if token.is_none_or(|&id| is_control[id as usize]) {
            return Err(TokenizerError::MissingByte { byte });
        }
    }
    Ok(())
}

/// The merges as pairs, none of which makes a control token. Whether they name tokens, the model's builder checks.
fn merges(parts: &VocabularyParts<'_>, is_control: &[bool]) -> Result<Merges, TokenizerError> {
    let controls: HashSet<&str> =
        parts.tokens.iter().zip(is_control).filter(|(_, control)| **control).map(|(text, _)| text.as_str()).collect();
    let mut made = String::new();
    let mut merges = Merges::with_capacity(parts.merges.len());
    for (merge, found) in parts.merges.iter().enumerate() {
        let (left, right) =
            pair(found).ok_or_else(|| TokenizerError::MalformedMerge { merge, found: found.clone() })?;
        made.clear();
        made.push_str(left);
        made.push_str(right);
        if controls.contains(made.as_str()) {
            return Err(TokenizerError::MergeMakesControl { merge, spelling: made });
        }
        merges.push((left.to_owned(), right.to_owned()));
    }
    Ok(merges)
}

fn pair(merge: &str) -> Option<(&str, &str)> {
    let (left, right) = merge.split_once(' ')?;
    (!left.is_empty() && !right.is_empty() && !right.contains(' ')).then_some((left, right))
}

/// The first merge that names or makes what is no token. Looked for only after the model's builder has refused: it
/// names the spelling but not the merge.
fn merge_outside(parts: &VocabularyParts<'_>) -> Option<TokenizerError> {
    let tokens: HashSet<&str> = parts.tokens.iter().map(String::as_str).collect();
    parts.merges.iter().enumerate().find_map(|(merge, found)| {
        let (left, right) = pair(found)?;
        let all = [left.to_owned(), right.to_owned(), format!("{left}{right}")];
        let outside = all.into_iter().find(|spelling| !tokens.contains(spelling.as_str()))?;
        Some(TokenizerError::MergeOutsideVocabulary { merge, spelling: outside })
    })
}

fn token_bytes(alphabet: &Alphabet, tokens: &[String], is_control: &[bool]) -> (Vec<u8>, Vec<usize>) {
    let mut bytes = Vec::with_capacity(tokens.iter().map(String::len).sum());
    let mut ends = Vec::with_capacity(tokens.len());
    for (spelling, control) in tokens.iter().zip(is_control) {
        if *control {
            bytes.extend_from_slice(spelling.as_bytes());
        } else {
            alphabet.read(spelling, &mut bytes);
        }
        ends.push(bytes.len());
    }
    (bytes, ends)
}
