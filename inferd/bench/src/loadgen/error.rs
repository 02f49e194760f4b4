//! Why there is nothing to report.

use ds4_host::Exit;
use std::path::PathBuf;
use thiserror::Error;

/// Why a measurement could not be made. A request that fails is no such reason: it is counted.
#[derive(Debug, Error)]
pub(crate) enum LoadgenError {
    #[error("{url} does not answer: {cause}; is ds4-server running there?")]
    Unreachable { url: String, cause: String },
    #[error("{url} answers {status}: {body}")]
    Refused { url: String, status: u16, body: String },
    #[error("{url} answers without a list of token ids in `tokens`: {body}")]
    NoTokens { url: String, body: String },
    #[error("cannot write {}: {cause}", path.display())]
    Write { path: PathBuf, cause: String },
}

impl LoadgenError {
    pub(crate) fn exit(&self) -> Exit {
        Exit::Failed
    }
}
