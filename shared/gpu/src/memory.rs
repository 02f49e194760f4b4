//! Memory that holds weights, wherever it is.

use ds4_units::Bytes;
use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use thiserror::Error;

/// An address in the memory of a CUDA device. The host cannot read through it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct DevicePtr(pub u64);

impl DevicePtr {
    /// The address `bytes` further on.
    pub fn offset(self, bytes: u64) -> DevicePtr {
        DevicePtr(self.0 + bytes)
    }
}

// SAFETY: one `u64` and nothing else, by `repr(transparent)`: no padding, every bit pattern is an address.
#[cfg(feature = "cuda")]
#[allow(unsafe_code)]
unsafe impl bytemuck::NoUninit for DevicePtr {}

/// Memory of a CUDA device that stays valid while the value lives.
pub trait DeviceMemory: Send + Sync {
    /// Where it starts.
    fn address(&self) -> DevicePtr;

    /// Its length.
    fn len(&self) -> Bytes;

    /// Whether it has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == Bytes::ZERO
    }

    /// Copies bytes to the host. Blocks until they are there.
    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), MemoryError>;
}

/// Bytes that cannot be brought to the host.
#[derive(Debug, Error)]
pub enum MemoryError {
    /// The range reaches beyond the end.
    #[error("bytes {start} to {end} of a memory of {} bytes", len.0)]
    PastEnd {
        /// First byte.
        start: usize,
        /// Byte after the last.
        end: usize,
        /// Bytes there are.
        len: Bytes,
    },
    /// The device did not give them.
    #[error("cannot read device memory: {0}")]
    Device(#[source] Box<dyn Error + Send + Sync>),
}

/// Bytes that are shared by everyone who holds them, and stay valid as long as anyone does. Cloning is cheap.
#[derive(Clone)]
pub enum Memory {
    /// Memory of this process, such as a mapping of a resident range.
    Host(Arc<dyn AsRef<[u8]> + Send + Sync>),
    /// Memory of a CUDA device.
    Device(Arc<dyn DeviceMemory>),
}

impl Memory {
    /// Host memory.
    pub fn host(bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> Memory {
        Memory::Host(Arc::new(bytes))
    }

    /// Its length.
    pub fn len(&self) -> Bytes {
        match self {
            Memory::Host(bytes) => Bytes((**bytes).as_ref().len() as u64),
            Memory::Device(device) => device.len(),
        }
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == Bytes::ZERO
    }

    /// All bytes, if this process can read them where they are.
    pub fn host_bytes(&self) -> Option<&[u8]> {
        match self {
            Memory::Host(bytes) => Some((**bytes).as_ref()),
            Memory::Device(_) => None,
        }
    }

    /// Where it starts on its device, if it is on one.
    pub fn device_address(&self) -> Option<DevicePtr> {
        match self {
            Memory::Host(_) => None,
            Memory::Device(device) => Some(device.address()),
        }
    }

    /// Bytes `place` for the host: borrowed if they are there, else copied from the device, which blocks.
    pub fn read(&self, place: Range<usize>) -> Result<Cow<'_, [u8]>, MemoryError> {
        let past_end = || MemoryError::PastEnd { start: place.start, end: place.end, len: self.len() };
        match self {
            Memory::Host(bytes) => (**bytes).as_ref().get(place.clone()).map(Cow::Borrowed).ok_or_else(past_end),
            Memory::Device(device) => {
                if place.start > place.end || place.end > device.len().index() {
                    return Err(past_end());
                }
                let mut out = vec![0; place.len()];
                device.read(place.start as u64, &mut out)?;
                Ok(Cow::Owned(out))
            }
        }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Memory::Host(_) => write!(f, "Memory({} on the host)", self.len()),
            Memory::Device(device) => write!(f, "Memory({} at device {:#x})", self.len(), device.address().0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fake(Vec<u8>);

    impl DeviceMemory for Fake {
        fn address(&self) -> DevicePtr {
            DevicePtr(1 << 40)
        }

        fn len(&self) -> Bytes {
            Bytes(self.0.len() as u64)
        }

        fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), MemoryError> {
            out.copy_from_slice(&self.0[offset as usize..][..out.len()]);
            Ok(())
        }
    }

    #[test]
    fn both_kinds_give_the_same_bytes_and_neither_gives_what_it_has_not() {
        for memory in [Memory::host(vec![1, 2, 3]), Memory::Device(Arc::new(Fake(vec![1, 2, 3])))] {
            assert_eq!(&*memory.read(1..3).unwrap(), [2, 3], "{memory:?}");
            assert!(memory.read(2..4).unwrap_err().to_string().starts_with("bytes 2 to 4 of a memory of 3"));
            #[allow(clippy::reversed_empty_ranges)]
            let backwards = memory.read(2..1);
            assert!(backwards.is_err());
        }
    }

    #[test]
    fn memory_of_a_device_is_not_readable_in_place() {
        let device = Memory::Device(Arc::new(Fake(vec![0; 4])));
        assert_eq!((device.host_bytes(), device.device_address()), (None, Some(DevicePtr(1 << 40))));
        let host = Memory::host([7u8; 2]);
        assert_eq!((host.host_bytes(), host.device_address()), (Some(&[7u8; 2][..]), None));
    }
}
