//! This process's limit of open file descriptors.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::io;

/// Raises the limit as far as the system lets this process, and returns it.
///
/// Ranges are one descriptor each, and the limit that processes usually start with is within their reach.
pub fn raise_fd_limit() -> io::Result<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    }
    Ok(hard)
}
