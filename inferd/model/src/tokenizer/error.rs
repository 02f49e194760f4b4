//! Why a vocabulary cannot be used.

/// Why a file's tokenizer cannot be built, or lacks what a family needs.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum TokenizerError {
    #[error("metadata key {key} is missing")]
    MissingKey { key: &'static str },
    #[error(transparent)]
    Value(#[from] ds4_gguf::ValueError),
    #[error("tokenizer.ggml.model is {found:?}; only byte-level BPE (\"gpt2\") is supported")]
    UnsupportedModel { found: String },
    #[error("tokenizer.ggml.pre is {found:?}; this build knows {known}")]
    UnsupportedSplit { found: String, known: &'static str },
    #[error("{tokens} tokens but {types} token types")]
    TypesDiffer { tokens: usize, types: usize },
    #[error("token {token} has type {found}; types are 1 to 6")]
    UnknownType { token: usize, found: u64 },
    #[error("the vocabulary has {found} tokens; at most {limit} are supported")]
    TooManyTokens { found: usize, limit: usize },
    #[error("token {token} is empty")]
    EmptyToken { token: usize },
    #[error("tokens {first} and {second} are both spelled {spelling:?}")]
    DuplicateToken { first: usize, second: usize, spelling: String },
    #[error("no text token spells byte 0x{byte:02x}")]
    MissingByte { byte: u8 },
    #[error("merge {merge} is {found:?}; a merge is two tokens with one space between them")]
    MalformedMerge { merge: usize, found: String },
    #[error("merge {merge} names or makes {spelling:?}, which is not in the vocabulary")]
    MergeOutsideVocabulary { merge: usize, spelling: String },
    #[error("merge {merge} makes {spelling:?}, a control token: text could become it")]
    MergeMakesControl { merge: usize, spelling: String },
    #[error("the vocabulary has no control token {spelling}")]
    NoSuchControl { spelling: &'static str },
    #[error("token {token}, {spelling}, is not of type control or user-defined")]
    NotControl { spelling: &'static str, token: u32 },
    #[error("the tokenizer cannot be built: {reason}")]
    Build { reason: String },
}
