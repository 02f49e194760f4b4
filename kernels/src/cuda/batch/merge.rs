//! A site's output merged into the streams, and what the next site's mixes begin with.

use super::{PANEL, panels};
use crate::backend::{Backend, HyperSite};
use crate::cuda::device::Device;
use crate::cuda::experts::RoutedSlots;
use crate::cuda::few;
use crate::cuda::loader::Loader;
use crate::cuda::matrix::DeviceMatrix;
use crate::cuda::rows::{Begun, DeviceRows};
use crate::hyper_connection::{MIX_WIDTH, STREAMS};
use ds4_gpu::DevicePtr;
use ds4_gpu::cuda::{Args, CudaError, Function, Launch};
use ds4_units::{Bytes, TensorType};

const THREADS: u32 = 512;
/// Mixes of a site and the sum of squares.
const PARTIALS: usize = MIX_WIDTH + 1;

pub(crate) struct Kernels {
    merge: Function,
}

impl Kernels {
    pub(super) fn load(loader: &Loader<'_>) -> Result<Kernels, CudaError> {
        Ok(Kernels { merge: loader.function("batch_merge", "batch_merge")? })
    }
}

/// `BatchMerge` of `cu/batch_merge.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Merge {
    streams: DevicePtr,
    merge: DevicePtr,
    next: DevicePtr,
    partials: DevicePtr,
    output: DevicePtr,
    routed: DevicePtr,
    slots: DevicePtr,
    width: u32,
    mixes: u32,
    rows: u32,
    reserved: u32,
}

// SAFETY: seven addresses and four words: every byte belongs to a field.
unsafe impl bytemuck::NoUninit for Merge {}

/// Whether streams of this width can be merged so.
pub(super) fn takes(streams: &DeviceRows, width: usize) -> bool {
    width.is_multiple_of(PANEL) && streams.width() == STREAMS * width
}

/// Merges `output`, with every row's six of `routed` added if there are any, into `streams`, which afterwards come with the
/// next site's mixes.
pub(super) fn merge<B: Backend<Matrix = DeviceMatrix>>(
    device: &Device,
    output: &DeviceRows,
    routed: Option<(&DeviceRows, &RoutedSlots)>,
    [streams, merge]: [&mut DeviceRows; 2],
    next: Option<&HyperSite<B>>,
) {
    few::make_due(device, merge);
    let (rows, width) = (streams.len(), output.width());
    let next = next.filter(|next| next.mix.kind() == TensorType::F16 && next.mix.rows() == MIX_WIDTH);
    let begun = next.map(|next| Begun {
        matrix: next.mix.address(),
        partials: device.scratch(Bytes((rows * PARTIALS * panels(width) * size_of::<f32>()) as u64)),
        panels: panels(width),
    });
    let argument = Merge {
        streams: streams.changed(),
        merge: merge.address(),
        next: begun.as_ref().map_or(DevicePtr(0), |begun| begun.matrix),
        partials: begun.as_ref().map_or(DevicePtr(0), |begun| begun.partials.address()),
        output: output.address(),
        routed: routed.map_or(DevicePtr(0), |(routed, _)| routed.address()),
        slots: routed.map_or(DevicePtr(0), |(_, slots)| slots.of_routes()),
        width: width as u32,
        mixes: MIX_WIDTH as u32,
        rows: rows as u32,
        reserved: 0,
    };
    let launch = Launch::new(panels(width) as u32, THREADS).overlap();
    // SAFETY: a block a panel; streams have four times `width` values, `output` that many, `routed` a row for every slot
    // and `slots` six of them a row; the partial sums have a place for every panel.
    unsafe { device.launch(&device.kernels.batch.merge.merge, launch, &Args::new().with(argument)) };
    streams.begun = begun;
}
