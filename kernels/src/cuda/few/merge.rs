//! Merging a block's output into the streams inside the kernel that computes it.

use ds4_gpu::DevicePtr;

/// `Merge` of `cu/few_merge.cuh`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct MergeArgument {
    pub(super) streams: DevicePtr,
    pub(super) merge: DevicePtr,
    pub(super) next: DevicePtr,
    pub(super) partials: DevicePtr,
    pub(super) width: u32,
    pub(super) mixes: u32,
}

// SAFETY: four addresses and two words: every byte belongs to a field.
unsafe impl bytemuck::NoUninit for MergeArgument {}
