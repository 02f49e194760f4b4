//! The artifact manifest: what an operator deploys.

use crate::Digest;
use ds4_units::{Bytes, Tokens};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// One accepted model: the exact files, and what is known about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArtifactManifest {
    /// Always [`ArtifactManifest::SCHEMA`].
    pub schema: String,
    /// A short name, the file's own without `.json`.
    pub id: String,
    /// One line for people.
    pub title: String,
    /// The architecture its metadata names.
    pub family: String,
    /// Storage types in use, for people.
    pub quantisation: String,
    /// Its files, shards in order.
    pub files: Vec<ArtifactFile>,
    /// What it can do.
    pub limits: Limits,
    /// Terms of use.
    pub licence: Licence,
}

/// One file of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArtifactFile {
    /// Its name, without a folder.
    pub name: String,
    /// Its size.
    pub size: Bytes,
    /// SHA-256 of the whole file.
    pub sha256: Digest,
}

/// What a model can do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// The longest context it was made for.
    pub context: Tokens,
}

/// Terms of use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Licence {
    /// The licence's short name.
    pub name: String,
    /// Where its text is; absent when it is in this repository.
    pub url: Option<String>,
}

/// An artifact manifest that cannot be used.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ArtifactError {
    /// It is not what the schema says.
    #[error("not a valid {}: {reason}", ArtifactManifest::SCHEMA)]
    Json {
        /// What the parser found.
        reason: String,
    },
    /// It has another schema.
    #[error("schema {found:?}; this program reads {}", ArtifactManifest::SCHEMA)]
    UnknownSchema {
        /// The schema it names.
        found: String,
    },
    /// It lists no file, or one with a folder in its name, without bytes, or twice.
    #[error("file {name:?} is listed twice, is empty, or is not a plain file name")]
    File {
        /// The name; empty when there is none at all.
        name: String,
    },
}

impl ArtifactManifest {
    /// The schema's name and version.
    pub const SCHEMA: &str = "ds4.artifact/1";

    /// Reads a manifest's text.
    pub fn parse(text: &str) -> Result<ArtifactManifest, ArtifactError> {
        let manifest: ArtifactManifest =
            serde_json::from_str(text).map_err(|error| ArtifactError::Json { reason: error.to_string() })?;
        if manifest.schema != ArtifactManifest::SCHEMA {
            return Err(ArtifactError::UnknownSchema { found: manifest.schema });
        }
        if manifest.files.is_empty() {
            return Err(ArtifactError::File { name: String::new() });
        }
        for (index, file) in manifest.files.iter().enumerate() {
            let plain = !file.name.is_empty() && !file.name.contains('/') && file.name != "." && file.name != "..";
            let again = manifest.files[..index].iter().any(|other| other.name == file.name);
            if !plain || again || file.size == Bytes::ZERO {
                return Err(ArtifactError::File { name: file.name.clone() });
            }
        }
        Ok(manifest)
    }
}
