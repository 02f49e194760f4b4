//! Merging a block's output into the streams inside the kernel that computes it.

use super::{PANEL, PARTIALS, ROWS_MAX, panels};
use crate::backend::{Backend, HyperSite};
use crate::cuda::device::Device;
use crate::cuda::matrix::DeviceMatrix;
use crate::cuda::rows::{Begun, DeviceRows};
use crate::hyper_connection::{MIX_WIDTH, STREAMS};
use ds4_gpu::DevicePtr;
use ds4_units::{Bytes, TensorType};

/// `Merge` of `cu/few_merge.cuh`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct MergeArgument {
    streams: DevicePtr,
    merge: DevicePtr,
    next: DevicePtr,
    partials: DevicePtr,
    width: u32,
    mixes: u32,
}

// SAFETY: four addresses and two words: every byte belongs to a field.
unsafe impl bytemuck::NoUninit for MergeArgument {}

/// Whether streams of this width can be merged so.
pub(super) fn takes(streams: &DeviceRows, width: usize) -> bool {
    streams.len() <= ROWS_MAX && width.is_multiple_of(PANEL) && streams.width() == STREAMS * width
}

/// What a kernel needs to merge into `streams`, which afterwards come with the next site's mixes.
pub(super) fn merging<B: Backend<Matrix = DeviceMatrix>>(
    device: &Device,
    [streams, merge]: [&mut DeviceRows; 2],
    next: Option<&HyperSite<B>>,
) -> MergeArgument {
    let width = streams.width() / STREAMS;
    let next = next.filter(|next| next.mix.kind() == TensorType::F16 && next.mix.rows() == MIX_WIDTH);
    let begun = next.map(|next| Begun {
        matrix: next.mix.address(),
        partials: device.scratch(Bytes((streams.len() * PARTIALS * panels(width) * 4) as u64)),
        panels: panels(width),
    });
    let argument = MergeArgument {
        streams: streams.changed(),
        merge: merge.address(),
        next: begun.as_ref().map_or(DevicePtr(0), |begun| begun.matrix),
        partials: begun.as_ref().map_or(DevicePtr(0), |begun| begun.partials.address()),
        width: width as u32,
        mixes: MIX_WIDTH as u32,
    };
    streams.begun = begun;
    argument
}
