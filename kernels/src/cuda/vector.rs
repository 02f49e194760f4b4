//! Vectors of weights on the device.

use super::copies::Copied;
use ds4_gpu::{DeviceMemory, DevicePtr};
use std::fmt;
use std::sync::Arc;

/// `f32` values that stay. Cloning shares them.
#[derive(Clone)]
pub struct DeviceVector {
    memory: Arc<Copied>,
    len: usize,
}

impl DeviceVector {
    pub(crate) fn new(memory: Arc<Copied>, len: usize) -> DeviceVector {
        DeviceVector { memory, len }
    }

    pub(crate) fn address(&self) -> DevicePtr {
        self.memory.address()
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl fmt::Debug for DeviceVector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceVector({})", self.len)
    }
}
