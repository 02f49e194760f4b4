//! Every bound of the HTTP side, by name.

use std::time::Duration;

/// Bytes of one request body.
pub(crate) const BODY_MAX: usize = 64 << 20;

/// Bytes of all request bodies that are being read, parsed and rendered, when the operator names no number.
pub(crate) const BODIES_MAX: u64 = 256 << 20;

/// A body without a declared length is paid for in steps of this size.
pub(crate) const BODY_STEP: usize = 64 << 10;

/// How long a client may pause inside a request head or body.
pub(crate) const READ_STALL_MAX: Duration = Duration::from_secs(10);

/// How long a client may take no bytes while a reply is due.
pub(crate) const WRITE_STALL_MAX: Duration = Duration::from_secs(30);

/// Bytes of a request head.
pub(crate) const HEAD_MAX: usize = 64 << 10;

/// Requests that generate or wait to, at the same time, when the operator names no number.
pub(crate) const CLIENTS_MAX: u32 = 256;

/// Open connections; more wait in the listen queue.
pub(crate) const CONNECTIONS_MAX: u32 = 1024;

/// Stop strings of one request.
pub(crate) const STOPS_MAX: usize = 16;

/// Bytes of one stop string.
pub(crate) const STOP_LEN_MAX: usize = 256;

/// Silence on a stream that a comment line breaks.
pub(crate) const KEEPALIVE: Duration = Duration::from_secs(5);

/// JSON arrays and objects inside each other, what `serde_json` stops at.
pub(crate) const JSON_DEPTH_MAX: usize = 128;

/// Finished turns that are kept for follow-ups.
pub(crate) const KEPT_TURNS_MAX: usize = 64;

/// Bytes of text in all of them.
pub(crate) const KEPT_BYTES_MAX: usize = 256 << 20;

/// Seconds for which a turn with calls is not given up for another.
pub(crate) const KEPT_GRACE_S: u64 = 60;

/// Seconds after which a turn is given up.
pub(crate) const KEPT_LIFETIME_S: u64 = 300;

/// Calls of turns that are not kept any more, remembered to tell "moved on" from "never heard of".
pub(crate) const FORGOTTEN_CALLS_MAX: usize = 4096;
