//! Every bound of the store, by name.

use ds4_units::Bytes;
use std::time::Duration;

/// Largest rendered text of a conversation.
pub const TEXT_MAX: Bytes = Bytes::mib(256);

/// Most tokens of a conversation, whatever the context.
pub const TOKENS_MAX: u32 = 1 << 24;

/// Most tool calls a file remembers.
pub const TOOL_CALLS_MAX: usize = 100_000;

/// Largest tool map of a file.
pub const TOOLS_BYTES_MAX: Bytes = Bytes::mib(512);

/// Bytes of tool maps that are read when a folder is: of the conversations used last.
pub const REMEMBERED_BYTES_MAX: Bytes = Bytes::mib(256);

/// Longest id of a tool call, in bytes.
pub const TOOL_ID_MAX: usize = 256;

/// Files that one restore may read: a conversation's first file and what was appended to it. The next save writes
/// everything again.
pub const CHAIN_MAX: u32 = 64;

/// Snapshots that wait for the disk. One more is not saved.
pub const SAVES_WAITING_MAX: usize = 4;

/// Bytes that waiting snapshots may hold together; one snapshot alone may be larger.
pub const SAVE_BYTES_WAITING_MAX: Bytes = Bytes::gib(2);

/// Restores that wait for the disk. One more is computed instead.
pub const LOADS_WAITING_MAX: usize = 8;

/// Set-aside files kept for inspection; the oldest goes when there is one more.
pub const QUARANTINED_MAX: usize = 16;

/// How long nothing is written after the disk was found full twice, or with nothing to give up.
pub const FULL_DISK_PAUSE: Duration = Duration::from_secs(60);

/// How long nothing is copied for a save after the disk failed one.
pub const FAILING_DISK_PAUSE: Duration = Duration::from_secs(60);

/// Free space that is left to others on the file system, unless its twentieth part is less.
pub const FREE_SPACE_FLOOR: Bytes = Bytes::gib(2);

/// Files unused for less than so many seconds count as equally recent.
pub const IDLE_SECONDS_LEAST: f64 = 60.0;
