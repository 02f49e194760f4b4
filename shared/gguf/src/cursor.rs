//! A reader that knows how long its file is and how much of it a header may be.

use crate::header::HeaderError;
use ds4_units::Bytes;
use std::io::{self, Read};

/// Reads a header forwards. Every length is checked against what is left before anything is allocated for it.
pub(crate) struct Cursor<R> {
    reader: R,
    pos: u64,
    size: u64,
    budget: u64,
}

impl<R> Cursor<R> {
    /// A cursor at the start of a file of `size` bytes, of which the header may be `budget`.
    pub(crate) fn new(reader: R, size: Bytes, budget: Bytes) -> Cursor<R> {
        Cursor { reader, pos: 0, size: size.0, budget: budget.0 }
    }

    /// Bytes read so far.
    pub(crate) fn pos(&self) -> u64 {
        self.pos
    }

    /// Bytes between here and the end of the file.
    pub(crate) fn remaining(&self) -> u64 {
        self.size - self.pos
    }

    /// Refuses to go on when another `len` bytes would take the header over its budget.
    pub(crate) fn claim(&self, len: u64) -> Result<(), HeaderError> {
        match self.pos.checked_add(len) {
            Some(end) if end <= self.budget => Ok(()),
            _ => Err(HeaderError::TooLarge { at: self.pos, len, limit: Bytes(self.budget) }),
        }
    }
}

impl<R: Read> Cursor<R> {
    /// The next `N` bytes; `what` names them in an error.
    pub(crate) fn bytes<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], HeaderError> {
        let mut bytes = [0; N];
        self.fill(&mut bytes, what)?;
        Ok(bytes)
    }

    /// The next little-endian `u32`.
    pub(crate) fn u32(&mut self, what: &'static str) -> Result<u32, HeaderError> {
        self.bytes(what).map(u32::from_le_bytes)
    }

    /// The next little-endian `u64`.
    pub(crate) fn u64(&mut self, what: &'static str) -> Result<u64, HeaderError> {
        self.bytes(what).map(u64::from_le_bytes)
    }

    /// The next string: a length, then that many bytes of UTF-8.
    pub(crate) fn string(&mut self, what: &'static str, limit: Bytes) -> Result<String, HeaderError> {
        let at = self.pos;
        let len = self.u64(what)?;
        if len > limit.0 {
            return Err(HeaderError::StringTooLong { what, at, len, limit });
        }
        self.check_inside(len, what)?;
        self.claim(len)?;
        let mut bytes = vec![0; len as usize];
        self.fill(&mut bytes, what)?;
        String::from_utf8(bytes).map_err(|_| HeaderError::NotUtf8 { what, at })
    }

    /// Fills `out` with the next bytes.
    pub(crate) fn fill(&mut self, out: &mut [u8], what: &'static str) -> Result<(), HeaderError> {
        let len = out.len() as u64;
        self.check_inside(len, what)?;
        self.claim(len)?;
        self.reader.read_exact(out).map_err(|source| match source.kind() {
            // The file has become shorter since its size was taken.
            io::ErrorKind::UnexpectedEof => self.truncated(len, what),
            _ => HeaderError::Read { at: self.pos, source },
        })?;
        self.pos += len;
        Ok(())
    }

    fn check_inside(&self, len: u64, what: &'static str) -> Result<(), HeaderError> {
        if len <= self.remaining() { Ok(()) } else { Err(self.truncated(len, what)) }
    }

    fn truncated(&self, len: u64, what: &'static str) -> HeaderError {
        HeaderError::Truncated { what, at: self.pos, len, size: Bytes(self.size) }
    }
}
