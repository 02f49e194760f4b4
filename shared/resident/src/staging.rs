//! The buffer between disk and range: small, reused, and aligned for reads that bypass the page cache.

use crate::identity::LEAF;
use ds4_units::Bytes;

/// Alignment of memory, position and length that direct reads need at most on common file systems.
pub(crate) const DIRECT_ALIGN: usize = 4096;

/// Room for one leaf that starts and ends in the middle of an aligned block.
pub(crate) const WINDOW: usize = LEAF.0 as usize + 2 * DIRECT_ALIGN;

/// Host memory for one read.
pub(crate) struct Staging {
    memory: Vec<u8>,
    start: usize,
}

impl Staging {
    pub(crate) fn new() -> Staging {
        let memory = vec![0; WINDOW + DIRECT_ALIGN];
        let start = memory.as_ptr().align_offset(DIRECT_ALIGN);
        Staging { memory, start }
    }

    /// The aligned part.
    pub(crate) fn window(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..][..WINDOW]
    }
}

/// Host memory that the buffers of this many threads take.
pub fn staging_bytes(threads: usize) -> Bytes {
    Bytes((WINDOW + DIRECT_ALIGN) as u64 * threads as u64)
}

/// Pinned host memory, and device memory too, that the buffers of this many threads take while a device is loaded.
#[cfg(feature = "cuda")]
pub(crate) fn device_staging_bytes(threads: usize) -> Bytes {
    Bytes(ds4_gpu::cuda::weights::Lane::bytes(Bytes(WINDOW as u64)).0 * threads as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_starts_at_a_block_and_holds_a_leaf_between_blocks() {
        let mut staging = Staging::new();
        let window = staging.window();
        assert_eq!(window.as_ptr().align_offset(DIRECT_ALIGN), 0);
        assert_eq!(window.len(), LEAF.index() + 2 * DIRECT_ALIGN);
    }
}
