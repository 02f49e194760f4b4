//! Models in several files: their names, and the checks that they belong together.

use crate::error::FileName;
use crate::limits::SHARDS_MAX;
use crate::metadata::{Metadata, ValueError};
use std::path::{Path, PathBuf};
use thiserror::Error;

const COUNT_KEY: &str = "split.count";
const NUMBER_KEY: &str = "split.no";
const TENSORS_KEY: &str = "split.tensors.count";
/// Keys that every shard which has them must have with the same value.
const SHARED_KEYS: [&str; 3] = ["general.architecture", "general.quantization_version", "general.file_type"];

/// Why several files do not make one model.
#[derive(Debug, Error)]
pub enum SplitError {
    /// A `split.*` key of a wrong type.
    #[error("{file}: {source}")]
    Value {
        /// The file.
        file: FileName,
        /// What is wrong.
        source: ValueError,
    },
    /// A shard under a name from which its siblings' names cannot be derived.
    #[error("{file}: one of {count} shards; its name must end in -00001-of-{count:05}.gguf")]
    Name {
        /// The file.
        file: FileName,
        /// `split.count` in the file.
        count: u64,
    },
    /// More shards than any model has.
    #[error("{file}: says that it is one of {count} shards; the limit is {SHARDS_MAX}")]
    TooMany {
        /// The file.
        file: FileName,
        /// `split.count` in the file.
        count: u64,
    },
    /// Name and metadata say different numbers of shards.
    #[error("{file}: the name says {named} shards, the metadata key \"split.count\" says {count}")]
    Count {
        /// The file.
        file: FileName,
        /// In the name.
        named: u64,
        /// In the file.
        count: u64,
    },
    /// Opened through another shard than the first.
    #[error("{file}: this is shard {number}; open the first one, {first}")]
    NotFirst {
        /// The file.
        file: FileName,
        /// Its number in the name, from 1.
        number: u64,
        /// The path of the first one.
        first: FileName,
    },
    /// A sibling cannot be opened.
    #[error("shard {number} of {count} is missing: {file}: {source}")]
    Missing {
        /// Its number, from 1.
        number: u64,
        /// Shards of the model.
        count: u64,
        /// The path that was tried.
        file: FileName,
        /// The cause.
        source: std::io::Error,
    },
    /// The content is of another shard than the name says.
    #[error("{file}: named shard {number}, but its metadata key \"split.no\" is {found}, not {}", number - 1)]
    Position {
        /// The file.
        file: FileName,
        /// Its number in the name, from 1.
        number: u64,
        /// `split.no` in the file, counted from 0.
        found: String,
    },
    /// The shards have fewer or more tensors than the model.
    #[error("{file}: the shards have {found} tensors in all, its metadata key \"split.tensors.count\" says {said}")]
    TensorCount {
        /// The first file.
        file: FileName,
        /// In all shards.
        found: u64,
        /// In the metadata.
        said: u64,
    },
    /// A tensor that two shards have.
    #[error("tensor {tensor:?} is both in {first} and in {second}: shards of different models?")]
    DuplicateTensor {
        /// The tensor.
        tensor: String,
        /// One file.
        first: FileName,
        /// The other.
        second: FileName,
    },
    /// Shards of different models or conversions.
    #[error("{file}: the metadata key {key:?} is {found}, but {said} in {first}: shards of different models?")]
    Differs {
        /// The file.
        file: FileName,
        /// The key.
        key: &'static str,
        /// Its value there.
        found: String,
        /// The first file.
        first: FileName,
        /// Its value there.
        said: String,
    },
}

/// A path that ends in `-NNNNN-of-MMMMM.gguf`.
struct ShardName<'a> {
    path: &'a Path,
    stem: &'a str,
    number: u64,
    count: u64,
}

impl<'a> ShardName<'a> {
    fn parse(path: &'a Path) -> Option<ShardName<'a>> {
        let name = path.file_name()?.to_str()?.strip_suffix(".gguf")?;
        let (rest, count) = name.rsplit_once("-of-")?;
        let (stem, number) = rest.rsplit_once('-')?;
        Some(ShardName { path, stem, number: five_digits(number)?, count: five_digits(count)? })
    }

    /// The path of shard `number`, in the same folder: relative to the given path, not through its link.
    fn sibling(&self, number: u64) -> PathBuf {
        self.path.with_file_name(shard_file_name(self.stem, number, self.count))
    }
}

fn five_digits(text: &str) -> Option<u64> {
    let plain = text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    if plain { text.parse().ok() } else { None }
}

/// The file name of shard `number` (from 1) of `count`.
pub(crate) fn shard_file_name(stem: &str, number: u64, count: u64) -> String {
    format!("{stem}-{number:05}-of-{count:05}.gguf")
}

/// The paths of all shards of the model whose first file is `path`, that file included.
pub(crate) fn shard_paths(path: &Path, metadata: &Metadata) -> Result<Vec<PathBuf>, SplitError> {
    let file = || FileName::of(path);
    let said = count_of(path, metadata)?;
    let count = said.unwrap_or(1);
    let name = match ShardName::parse(path) {
        Some(name) if name.count > 1 || count > 1 => name,
        None if count > 1 => return Err(SplitError::Name { file: file(), count }),
        _ => return Ok(vec![path.to_owned()]),
    };
    if name.count != count {
        return Err(SplitError::Count { file: file(), named: name.count, count });
    }
    if count > SHARDS_MAX {
        return Err(SplitError::TooMany { file: file(), count });
    }
    if name.number != 1 {
        return Err(SplitError::NotFirst { file: file(), number: name.number, first: FileName::of(&name.sibling(1)) });
    }
    Ok((1..=count).map(|number| name.sibling(number)).collect())
}

/// Checks that the shard with this `number` (from 1) is of the same model as the first.
pub(crate) fn check_member(
    number: u64,
    (path, metadata): (&Path, &Metadata),
    (first_path, first): (&Path, &Metadata),
) -> Result<(), SplitError> {
    let differs = |key| SplitError::Differs {
        file: FileName::of(path),
        key,
        found: shown(metadata, key),
        first: FileName::of(first_path),
        said: shown(first, key),
    };
    if count_of(path, metadata)? != count_of(first_path, first)? {
        return Err(differs(COUNT_KEY));
    }
    let position = value(path, metadata.u64(NUMBER_KEY))?;
    if position != Some(number - 1) {
        return Err(SplitError::Position { file: FileName::of(path), number, found: shown(metadata, NUMBER_KEY) });
    }
    // The usual splitter writes these keys into the first shard only.
    let other = |key: &&&str| metadata.get(key).is_some_and(|value| first.get(key) != Some(value));
    match SHARED_KEYS.iter().find(other) {
        Some(key) => Err(differs(key)),
        None => Ok(()),
    }
}

/// Checks the number of tensors of all shards together.
pub(crate) fn check_tensor_count(path: &Path, metadata: &Metadata, found: usize) -> Result<(), SplitError> {
    match value(path, metadata.u64(TENSORS_KEY))? {
        Some(said) if said != found as u64 => {
            Err(SplitError::TensorCount { file: FileName::of(path), found: found as u64, said })
        }
        _ => Ok(()),
    }
}

fn count_of(path: &Path, metadata: &Metadata) -> Result<Option<u64>, SplitError> {
    value(path, metadata.u64(COUNT_KEY))
}

fn value<T>(path: &Path, result: Result<T, ValueError>) -> Result<T, SplitError> {
    result.map_err(|source| SplitError::Value { file: FileName::of(path), source })
}

fn shown(metadata: &Metadata, key: &str) -> String {
    metadata.get(key).map_or("missing".to_owned(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_name_has_five_digits_twice() {
        let name = ShardName::parse(Path::new("/m/flash-q2-00002-of-00003.gguf")).unwrap();
        assert_eq!((name.stem, name.number, name.count), ("flash-q2", 2, 3));
        assert_eq!(name.sibling(1), Path::new("/m/flash-q2-00001-of-00003.gguf"));
        for other in ["a.gguf", "a-1-of-3.gguf", "a-00001-of-00003.bin", "a-0000x-of-00003.gguf", "-of-.gguf"] {
            assert!(ShardName::parse(Path::new(other)).is_none(), "{other}");
        }
    }
}
