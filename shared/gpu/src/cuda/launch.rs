//! How a kernel is started, and with what.

use bytemuck::NoUninit;
use cudarc::driver::sys::{
    CUlaunchAttribute, CUlaunchAttributeID, CUlaunchAttributeValue, CUlaunchAttributeValue_union__bindgen_ty_1,
};
use std::ffi::c_void;

/// Grid, blocks and what else shapes a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Blocks in x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y and z.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block, in bytes.
    pub shared: u32,
    /// Blocks of a cluster, if the kernel wants clusters.
    pub cluster: Option<[u32; 3]>,
    /// Whether it may begin before the kernel in front of it has ended; it waits itself, with `griddepcontrol.wait`.
    pub overlap: bool,
}

impl Launch {
    /// `blocks` blocks of `threads` threads in one dimension, nothing else.
    pub fn new(blocks: u32, threads: u32) -> Launch {
        Launch { grid: [blocks, 1, 1], block: [threads, 1, 1], shared: 0, cluster: None, overlap: false }
    }

    /// A grid of more dimensions.
    pub fn grid(self, grid: [u32; 3]) -> Launch {
        Launch { grid, ..self }
    }

    /// Dynamic shared memory of a block, in bytes.
    pub fn shared(self, shared: u32) -> Launch {
        Launch { shared, ..self }
    }

    /// Blocks of a cluster.
    pub fn cluster(self, cluster: [u32; 3]) -> Launch {
        Launch { cluster: Some(cluster), ..self }
    }

    /// It may begin before the kernel in front of it has ended.
    pub fn overlap(self) -> Launch {
        Launch { overlap: true, ..self }
    }

    pub(super) fn attributes(&self) -> Vec<CUlaunchAttribute> {
        let attribute = |id, value| CUlaunchAttribute { id, pad: [0; 4], value };
        let cluster = self.cluster.map(|[x, y, z]| {
            let value = CUlaunchAttributeValue { clusterDim: CUlaunchAttributeValue_union__bindgen_ty_1 { x, y, z } };
            attribute(CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, value)
        });
        let overlap = self.overlap.then(|| {
            let value = CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 };
            attribute(CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, value)
        });
        cluster.into_iter().chain(overlap).collect()
    }
}

/// The arguments of a launch, in order.
#[derive(Clone, Debug, Default)]
pub struct Args {
    /// Each argument from its own aligned word on.
    words: Vec<u128>,
    starts: Vec<usize>,
    sizes: Vec<usize>,
}

impl Args {
    /// No arguments yet.
    pub fn new() -> Args {
        Args::default()
    }

    /// Adds one more: a number, a [`crate::DevicePtr`], or a plain structure laid out as the kernel's parameter is.
    pub fn push<T: NoUninit>(&mut self, value: T) -> &mut Args {
        let bytes = bytemuck::bytes_of(&value);
        self.starts.push(self.words.len());
        self.sizes.push(bytes.len());
        for word in bytes.chunks(size_of::<u128>()) {
            let mut padded = [0; size_of::<u128>()];
            padded[..word.len()].copy_from_slice(word);
            self.words.push(u128::from_ne_bytes(padded));
        }
        self
    }

    /// [`Args::push`] for chains.
    pub fn with<T: NoUninit>(mut self, value: T) -> Args {
        self.push(value);
        self
    }

    pub(super) fn sizes(&self) -> &[usize] {
        &self.sizes
    }

    /// A pointer to each. The driver reads through them and does not write.
    pub(super) fn pointers(&self) -> Vec<*mut c_void> {
        self.starts.iter().map(|&start| self.words[start..].as_ptr().cast_mut().cast()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DevicePtr;

    #[test]
    fn arguments_lie_apart_with_their_own_sizes() {
        let args = Args::new().with(7u32).with([1u64, 2, 3]).with(DevicePtr(0x1000)).with(2.5f32);
        assert_eq!(args.sizes(), [4, 24, 8, 4]);
        assert_eq!(args.starts, [0, 1, 3, 4]);
        assert_eq!(args.words[3], 0x1000);
        assert_eq!(args.words[2], 3);
        assert_eq!(args.pointers().len(), 4);
    }

    #[test]
    fn only_what_was_asked_for_becomes_an_attribute() {
        assert_eq!(Launch::new(1, 32).attributes().len(), 0);
        assert_eq!(Launch::new(1, 32).overlap().cluster([2, 1, 1]).attributes().len(), 2);
    }
}
