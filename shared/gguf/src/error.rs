//! What can go wrong with the files of a model.

use crate::header::HeaderError;
use crate::metadata::ValueError;
use crate::shard::FileStamp;
use crate::split::SplitError;
use std::fmt;
use std::io;
use std::path::Path;
use thiserror::Error;

/// A path as messages show it: with the target when it is a symbolic link, and without control characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileName(Box<str>);

impl FileName {
    /// How to show this path. Reads the link if it is one.
    pub fn of(path: &Path) -> FileName {
        let text = match std::fs::read_link(path) {
            Ok(target) => format!("{} (a link to {})", path.display(), target.display()),
            Err(_) => path.display().to_string(),
        };
        FileName(text.replace(char::is_control, "\u{fffd}").into())
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a model cannot be opened or read.
#[derive(Debug, Error)]
pub enum GgufError {
    /// No such file, or no permission.
    #[error("{file}: {source}")]
    Open {
        /// The file.
        file: FileName,
        /// The cause.
        source: io::Error,
    },
    /// A folder, a pipe or a device.
    #[error("{file}: not a regular file")]
    NotAFile {
        /// The file.
        file: FileName,
    },
    /// The front of a file is wrong.
    #[error("{file}: {source}")]
    Header {
        /// The file.
        file: FileName,
        /// What is wrong.
        source: HeaderError,
    },
    /// Several files were joined into one.
    #[error(
        "{file}: a second GGUF file starts at byte {at}, where this one ends: shards cannot be joined with `cat`. \
         Open the first of the separate shards (…-00001-of-…), or merge them with `llama-gguf-split --merge`"
    )]
    Joined {
        /// The file.
        file: FileName,
        /// Where the second one starts.
        at: u64,
    },
    /// The shards do not make a model.
    #[error(transparent)]
    Split(#[from] SplitError),
    /// A key that every model has is of a wrong type.
    #[error("{file}: {source}")]
    Value {
        /// The file.
        file: FileName,
        /// What is wrong.
        source: ValueError,
    },
    /// The file does not say what model it is.
    #[error("{file}: the metadata key \"general.architecture\" is missing, so this is not a model")]
    NoArchitecture {
        /// The file.
        file: FileName,
    },
    /// Shards so long that the logical model has no 64-bit length.
    #[error("{file}: with this shard the model is larger than 2^64 bytes")]
    TooLarge {
        /// The shard that is too much.
        file: FileName,
    },
    /// The operating system failed to read.
    #[error("{file}: cannot read at byte {offset}: {source}")]
    Read {
        /// The file.
        file: FileName,
        /// Position in it.
        offset: u64,
        /// The cause.
        source: io::Error,
    },
    /// The file ended early, though it was long enough when it was opened.
    #[error("{file}: ends at byte {end}, {missing} bytes before the end of what is to be read: was it truncated?")]
    ShortRead {
        /// The file.
        file: FileName,
        /// Where it ended.
        end: u64,
        /// Bytes that could not be read.
        missing: u64,
    },
    /// The file is not what it was when it was opened.
    #[error("{file}: model file changed while loading: was {before}, is {after}")]
    Changed {
        /// The file.
        file: FileName,
        /// When it was opened.
        before: FileStamp,
        /// Now.
        after: FileStamp,
    },
}
