//! Reading numbers from bytes that nobody vouches for.

use super::FileFault;

/// A reader that never runs past its bytes.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    what: &'static str,
}

impl<'a> Cursor<'a> {
    /// Reads `bytes`, called `what` in errors.
    pub(super) fn new(what: &'static str, bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { bytes, what }
    }

    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8], FileFault> {
        let (taken, rest) = self.bytes.split_at_checked(len).ok_or(FileFault::Cut { what: self.what })?;
        self.bytes = rest;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], FileFault> {
        let (taken, rest) = self.bytes.split_first_chunk().ok_or(FileFault::Cut { what: self.what })?;
        self.bytes = rest;
        Ok(*taken)
    }

    pub(super) fn u8(&mut self) -> Result<u8, FileFault> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub(super) fn u32(&mut self) -> Result<u32, FileFault> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, FileFault> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A count of items of `size` bytes each, of which there are enough bytes left.
    pub(super) fn count(&mut self, size: usize) -> Result<usize, FileFault> {
        let count = self.u32()? as usize;
        if count > self.bytes.len() / size { Err(FileFault::Cut { what: self.what }) } else { Ok(count) }
    }

    /// All bytes were read.
    pub(super) fn end(self) -> Result<(), FileFault> {
        super::expect(self.what, self.bytes.len() as u64, 0)
    }
}
