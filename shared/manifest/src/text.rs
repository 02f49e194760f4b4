//! The weights manifest as text: canonical JSON on one line whose last field is the SHA-256 of all before it.

use crate::trust::{Trust, TrustError, read_trusted};
use crate::{Digest, InvalidManifest, WeightsManifest};
use serde::Deserialize;
use std::path::Path;
use thiserror::Error;

/// The largest file read: some 200,000 tensors.
const SIZE_MAX: u64 = 64 << 20;

/// First bytes of the older text form, which only programs of its own kind read.
const TEXT_FORM: &[u8] = b"DS4_WEIGHT_SERVER_";

const SEAL_HEAD: &str = ",\"sha256\":\"";
const SEAL_TAIL: &str = "\"}\n";
const SEAL_LEN: usize = SEAL_HEAD.len() + 64 + SEAL_TAIL.len();

/// A weights manifest that cannot be used.
#[derive(Debug, Error)]
pub enum ManifestError {
    /// It cannot be opened, or must not be believed.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// It is the older text form.
    #[error(
        "this is a text-form manifest; ds4-weightd writes JSON ({}): start one and name its manifest",
        WeightsManifest::SCHEMA
    )]
    TextForm,
    /// It has another schema.
    #[error(
        "the manifest's schema is {found:?} and this program reads {}: use owner and worker of one version",
        WeightsManifest::SCHEMA
    )]
    UnknownSchema {
        /// The schema it names.
        found: String,
    },
    /// Its digest does not match.
    #[error("the manifest is truncated or edited: its last field is not the SHA-256 of what precedes it")]
    Truncated,
    /// Its digest matches and it is still not what the schema says.
    #[error("the manifest is not valid {}: {reason}", WeightsManifest::SCHEMA)]
    Json {
        /// What the parser found.
        reason: String,
    },
    /// Its tables contradict each other.
    #[error("the manifest contradicts itself: {0}")]
    Invalid(#[from] InvalidManifest),
}

#[derive(Deserialize)]
struct Head {
    schema: String,
}

impl WeightsManifest {
    /// Reads and checks the file at `path`, which must satisfy `trust`. Reads the disk.
    pub fn read(path: &Path, trust: &Trust) -> Result<WeightsManifest, ManifestError> {
        WeightsManifest::parse(&read_trusted(path, trust, SIZE_MAX)?)
    }

    /// Checks the bytes of a manifest and gives its content.
    pub fn parse(bytes: &[u8]) -> Result<WeightsManifest, ManifestError> {
        if bytes.starts_with(TEXT_FORM) {
            return Err(ManifestError::TextForm);
        }
        let text = std::str::from_utf8(bytes).map_err(|_| ManifestError::Truncated)?;
        match serde_json::from_str::<Head>(text) {
            Ok(head) if head.schema != WeightsManifest::SCHEMA => {
                return Err(ManifestError::UnknownSchema { found: head.schema });
            }
            _ => {}
        }
        let body = unsealed(text).ok_or(ManifestError::Truncated)?;
        let manifest: WeightsManifest = serde_json::from_str(&format!("{body}}}"))
            .map_err(|error| ManifestError::Json { reason: error.to_string() })?;
        manifest.validate()?;
        Ok(manifest)
    }

    /// The manifest's text. It is checked first: what would not be read is not written.
    pub fn to_text(&self) -> Result<String, ManifestError> {
        self.validate()?;
        let text = serde_json::to_string(self).map_err(|error| ManifestError::Json { reason: error.to_string() })?;
        let body = text.strip_suffix('}').unwrap_or(&text);
        Ok(format!("{body}{SEAL_HEAD}{}{SEAL_TAIL}", Digest::of(body.as_bytes())))
    }
}

/// The text before the seal, when the seal is whole and right.
fn unsealed(text: &str) -> Option<&str> {
    let (body, seal) = text.split_at_checked(text.len().checked_sub(SEAL_LEN)?)?;
    let digest = seal.strip_prefix(SEAL_HEAD)?.strip_suffix(SEAL_TAIL)?;
    (digest == Digest::of(body.as_bytes()).to_string()).then_some(body)
}
