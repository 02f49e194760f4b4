//! What the parser accepts at most. Real files stay far below; a hostile one stops here instead of in the allocator.

use ds4_units::Bytes;

/// Metadata entries in one file.
pub const KEYS_MAX: u64 = 1_000_000;

/// Tensors in one file.
pub const TENSORS_MAX: u64 = 1_000_000;

/// Length of a metadata key or tensor name; the format's own limit.
pub const NAME_MAX: Bytes = Bytes(65_535);

/// Length of a string value.
pub const STRING_MAX: Bytes = Bytes::mib(64);

/// Bytes of magic, metadata and tensor table, over all shards of a model together. It bounds the parser's memory.
pub const HEADER_MAX: Bytes = Bytes::mib(256);

/// Dimensions of a tensor.
pub const DIMS_MAX: u32 = 4;

/// Smallest accepted `general.alignment`.
pub const ALIGNMENT_MIN: u64 = 8;

/// Largest accepted `general.alignment`.
pub const ALIGNMENT_MAX: u64 = 1 << 20;

/// Shards of one model.
pub const SHARDS_MAX: u64 = 1024;
