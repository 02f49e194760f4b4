//! GGUF files as checked types: metadata, tensor table, and several shards as one logical model.
//!
//! [`Model::open`] reads the headers of a file and, when it is the first of a set, of all its siblings. It reads
//! version 3, little-endian files. The parser is total: any bytes give a value or a typed error, in memory bounded by
//! [`limits`]; every sum and product is checked. Nothing is memory-mapped, so a file that shrinks is an error and
//! never a signal.
//!
//! Tensor bytes are not part of a [`Model`]; it knows where they lie and keeps the files open, so that a loader can
//! read them ([`Model::read_at`]) and prove afterwards that they are still the same files
//! ([`Model::check_unchanged`]).
//!
//! [`writer`] makes small valid files, for tools and tests.

mod cursor;
mod error;
mod header;
pub mod limits;
mod metadata;
mod model;
mod shard;
mod split;
mod tensor;
mod value;
pub mod writer;

pub use error::{FileName, GgufError};
pub use header::{Header, HeaderError};
pub use metadata::{Metadata, ValueError};
pub use model::{Model, SHARD_ALIGN};
pub use shard::{FileStamp, Shard};
pub use split::SplitError;
pub use tensor::{TensorError, TensorInfo};
pub use value::{Array, Value};
