//! The front of one GGUF file: magic, version, metadata, tensor table.

use crate::cursor::Cursor;
use crate::limits::{ALIGNMENT_MAX, ALIGNMENT_MIN, KEYS_MAX, NAME_MAX, TENSORS_MAX};
use crate::metadata::Metadata;
use crate::tensor::{RawTensor, TensorError, TensorInfo, check_apart};
use crate::value::Value;
use ds4_units::{Bytes, FileOffset};
use std::io::{self, Read};
use thiserror::Error;

/// The first four bytes of every GGUF file.
pub(crate) const MAGIC: [u8; 4] = *b"GGUF";
/// The one version that is read and written.
pub(crate) const VERSION: u32 = 3;
/// The metadata key of the data section's alignment.
pub(crate) const ALIGNMENT_KEY: &str = "general.alignment";
/// The alignment of a file that does not say.
pub(crate) const ALIGNMENT_DEFAULT: u64 = 32;

/// The checked front of one file.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    /// The file's key-value pairs.
    pub metadata: Metadata,
    /// Its tensors in table order. `shard` is 0 here.
    pub tensors: Vec<TensorInfo>,
    /// Alignment of the data section and of every tensor in it.
    pub alignment: u64,
    /// Bytes before the padding in front of the data section.
    pub len: Bytes,
    /// Where the data section starts. In a file without tensors it may lie past the end.
    pub data_start: FileOffset,
}

/// Why the front of a file is not one this program can use.
#[derive(Debug, Error)]
pub enum HeaderError {
    /// Another kind of file.
    #[error("not a GGUF file: it starts with {}, not with \"GGUF\"", shown(first))]
    NotGguf {
        /// The first four bytes, or fewer when there are no more.
        first: Vec<u8>,
    },
    /// Written on a big-endian machine.
    #[error("a big-endian GGUF file (starts with \"GGUF\", version {version} with its bytes reversed); convert it")]
    BigEndian {
        /// The version as a big-endian reader sees it.
        version: u32,
    },
    /// An older or newer version.
    #[error("GGUF version {version} (starts with \"GGUF\"); ds4 reads version {VERSION}: convert the model again")]
    Version {
        /// The version the file says.
        version: u32,
    },
    /// The operating system failed to read.
    #[error("cannot read at byte {at}: {source}")]
    Read {
        /// Position in the file.
        at: u64,
        /// The cause.
        source: io::Error,
    },
    /// The file ends inside the header.
    #[error("the file has {} bytes, and {what} at byte {at} needs {len}: incomplete download?", size.0)]
    Truncated {
        /// What was being read.
        what: &'static str,
        /// Where.
        at: u64,
        /// Bytes it needs.
        len: u64,
        /// The file's length.
        size: Bytes,
    },
    /// More header than this program keeps in memory.
    #[error("the header needs {len} more bytes at byte {at}; its limit is {limit}")]
    TooLarge {
        /// Where.
        at: u64,
        /// Bytes wanted there.
        len: u64,
        /// The limit.
        limit: Bytes,
    },
    /// More metadata than any model has.
    #[error("the header says {count} metadata keys; the limit is {KEYS_MAX}")]
    TooManyKeys {
        /// What the file says.
        count: u64,
    },
    /// More tensors than any model has.
    #[error("the header says {count} tensors; the limit is {TENSORS_MAX}")]
    TooManyTensors {
        /// What the file says.
        count: u64,
    },
    /// A string longer than any real one.
    #[error("{what} at byte {at} is {len} bytes long; the limit is {limit}")]
    StringTooLong {
        /// What was being read.
        what: &'static str,
        /// Where.
        at: u64,
        /// The length the file says.
        len: u64,
        /// The limit.
        limit: Bytes,
    },
    /// A string that is no text.
    #[error("{what} at byte {at} is not UTF-8")]
    NotUtf8 {
        /// What was being read.
        what: &'static str,
        /// Where.
        at: u64,
    },
    /// A value type the format does not have.
    #[error("metadata key {key:?} has the value type {id}, which GGUF {VERSION} does not have")]
    UnknownValueType {
        /// The key.
        key: String,
        /// The id the file says.
        id: u32,
    },
    /// An array in an array.
    #[error("metadata key {key:?} is an array of arrays, which ds4 does not read")]
    NestedArray {
        /// The key.
        key: String,
    },
    /// An array longer than what is left of the file.
    #[error("metadata key {key:?} has {count} elements of {element} bytes or more, and {remaining} bytes are left")]
    ArrayPastEnd {
        /// The key.
        key: String,
        /// Elements the file says.
        count: u64,
        /// Bytes of one.
        element: u64,
        /// Bytes left in the file.
        remaining: u64,
    },
    /// A truth value that is neither.
    #[error("metadata key {key:?} is a bool stored as {byte}; it must be 0 or 1")]
    BadBool {
        /// The key.
        key: String,
        /// What is there.
        byte: u8,
    },
    /// A key that is there twice.
    #[error("metadata key {key:?} is there twice")]
    DuplicateKey {
        /// The key.
        key: String,
    },
    /// An alignment nobody can mean.
    #[error(
        "metadata key {ALIGNMENT_KEY:?} is {found}; it must be a u32 that is a power of two from {ALIGNMENT_MIN} to \
         {ALIGNMENT_MAX}"
    )]
    Alignment {
        /// The value, or the type that it has instead.
        found: String,
    },
    /// A tensor table entry is wrong.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

fn shown(first: &[u8]) -> String {
    let hex: Vec<String> = first.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("\"{}\" (bytes {})", first.escape_ascii(), hex.join(" "))
}

impl Header {
    /// Reads a header from its first byte on. `size` is the whole file's length; `budget` is how many bytes the
    /// header may have. Reads nothing of the data section. Wrap a file in a buffered reader.
    pub fn read(reader: impl Read, size: Bytes, budget: Bytes) -> Result<Header, HeaderError> {
        let mut cursor = Cursor::new(reader, size, budget);
        check_magic(&mut cursor)?;
        let tensor_count = cursor.u64("the tensor count")?;
        if tensor_count > TENSORS_MAX {
            return Err(HeaderError::TooManyTensors { count: tensor_count });
        }
        let metadata = read_metadata(&mut cursor)?;
        let alignment = alignment(&metadata)?;
        let mut raw = Vec::new();
        for _ in 0..tensor_count {
            raw.push(RawTensor::read(&mut cursor)?);
        }
        // At most `budget` plus the largest alignment.
        let data_start = cursor.pos().next_multiple_of(alignment);
        let place = |tensor: RawTensor| tensor.place(data_start, alignment, size.0);
        let tensors = raw.into_iter().map(place).collect::<Result<Vec<_>, _>>()?;
        check_apart(&tensors)?;
        Ok(Header { metadata, tensors, alignment, len: Bytes(cursor.pos()), data_start: FileOffset(data_start) })
    }

    /// One past the last byte that the header or a tensor takes.
    pub fn end(&self) -> FileOffset {
        let tensors_end = self.tensors.iter().map(TensorInfo::end).max();
        FileOffset(self.len.0.max(tensors_end.unwrap_or_default().0))
    }
}

fn check_magic<R: Read>(cursor: &mut Cursor<R>) -> Result<(), HeaderError> {
    let mut first = vec![0; cursor.remaining().min(MAGIC.len() as u64) as usize];
    cursor.fill(&mut first, "the magic")?;
    if first != MAGIC {
        return Err(HeaderError::NotGguf { first });
    }
    let version = cursor.u32("the version")?;
    if version == VERSION {
        return Ok(());
    }
    // A small number with its bytes reversed is a multiple of 2^16.
    if version != 0 && version.is_multiple_of(1 << 16) {
        return Err(HeaderError::BigEndian { version: version.swap_bytes() });
    }
    Err(HeaderError::Version { version })
}

fn read_metadata<R: Read>(cursor: &mut Cursor<R>) -> Result<Metadata, HeaderError> {
    let count = cursor.u64("the metadata count")?;
    if count > KEYS_MAX {
        return Err(HeaderError::TooManyKeys { count });
    }
    let mut metadata = Metadata::default();
    for _ in 0..count {
        let key = cursor.string("a metadata key", NAME_MAX)?;
        let id = cursor.u32("a metadata value's type")?;
        let value = Value::read(cursor, &key, id)?;
        if !metadata.insert(key.clone(), value) {
            return Err(HeaderError::DuplicateKey { key });
        }
    }
    Ok(metadata)
}

fn alignment(metadata: &Metadata) -> Result<u64, HeaderError> {
    match metadata.get(ALIGNMENT_KEY) {
        None => Ok(ALIGNMENT_DEFAULT),
        Some(Value::U32(value)) => {
            let alignment = u64::from(*value);
            let legal = alignment.is_power_of_two() && (ALIGNMENT_MIN..=ALIGNMENT_MAX).contains(&alignment);
            if legal { Ok(alignment) } else { Err(HeaderError::Alignment { found: value.to_string() }) }
        }
        Some(other) => Err(HeaderError::Alignment { found: other.type_name().to_owned() }),
    }
}
