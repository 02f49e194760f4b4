//! The beginning of a hyper-connection site: from mixes that were begun where the streams were merged, or, for the first site of a
//! step, are begun here.

use super::{PANEL, PARTIALS, ROWS_MAX, SITE_ROWS_MAX, panels};
use crate::cuda::device::Device;
use crate::cuda::hyper_connection::Site;
use crate::cuda::loader::Loader;
use crate::cuda::matrix::DeviceMatrix;
use crate::cuda::rows::{Begun, DeviceRows};
use crate::hyper_connection::{HyperConstants, MIX_WIDTH, Mixed, STREAMS};
use ds4_gpu::DevicePtr;
use ds4_gpu::cuda::{Args, CudaError, Function, Launch};
use ds4_units::{Bytes, TensorType};

const THREADS: u32 = 1024;
const MERGE_THREADS: u32 = 256;
const BEGIN_THREADS: u32 = 256;
/// Channels that a block of threads holds at most.
const WIDTH_MAX: usize = 2 * 1024 * 4;

pub(crate) struct Kernels {
    begin: Function,
    enter: Function,
    merge_values: Function,
}

impl Kernels {
    pub(super) fn load(loader: &Loader<'_>) -> Result<Kernels, CudaError> {
        let function = |name| loader.function("few_enter", name);
        Ok(Kernels {
            begin: loader.function("few_begin", "few_begin")?,
            enter: function("few_enter")?,
            merge_values: function("few_merge_values")?,
        })
    }
}

/// What merge values are made of: `Mixes` of `cu/merge_values.cuh`. Without an address nothing is asked for.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(in crate::cuda) struct DueMixes {
    partials: DevicePtr,
    base: DevicePtr,
    scale: DevicePtr,
    merge: DevicePtr,
    width: u32,
    panels: u32,
    iterations: u32,
    rows: u32,
    norm_epsilon: f32,
    mix_epsilon: f32,
}

/// `Enter` of `cu/few_enter.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Enter {
    mixes: DueMixes,
    streams: DevicePtr,
    norm: DevicePtr,
    input: DevicePtr,
}

/// `Begin` of `cu/few_begin.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Begin {
    streams: DevicePtr,
    mixing: DevicePtr,
    partials: DevicePtr,
    width: u32,
    mixes: u32,
}

// SAFETY: three addresses and two words: every byte belongs to a field.
unsafe impl bytemuck::NoUninit for Begin {}
// SAFETY: four addresses and six words: every byte belongs to a field.
unsafe impl bytemuck::NoUninit for DueMixes {}
// SAFETY: a structure without gaps whose size is a multiple of 8, and three addresses.
unsafe impl bytemuck::NoUninit for Enter {}

impl DueMixes {
    /// Blocks of threads that a launch needs more to make the merge values.
    pub(super) fn blocks(&self) -> usize {
        self.rows as usize
    }
}

/// The input of every row, if the streams come with this site's mixes, or rows are few enough to begin them. Merge values
/// are left to a later launch: see [`due`].
pub(in crate::cuda) fn mix(
    device: &Device,
    matrix: &DeviceMatrix,
    site: &Site<'_>,
    constants: &HyperConstants,
    streams: &DeviceRows,
) -> Option<Mixed<DeviceRows>> {
    let (len, width) = (streams.len(), streams.width() / STREAMS);
    if len > SITE_ROWS_MAX || width > WIDTH_MAX || !width.is_multiple_of(STREAMS) {
        return None;
    }
    let left = streams.begun.as_ref().filter(|begun| begun.matrix == matrix.address());
    let own = if left.is_none() { begin(device, matrix, streams) } else { None };
    let begun = left.or(own.as_ref())?;
    let input = device.rows(len, width);
    let mut merge = device.rows(len, MIX_WIDTH - STREAMS);
    let mixes = DueMixes {
        partials: begun.partials.address(),
        base: site.base.address(),
        scale: site.scale.address(),
        merge: merge.address(),
        width: width as u32,
        panels: begun.panels as u32,
        iterations: constants.iterations as u32,
        rows: len as u32,
        norm_epsilon: constants.norm_epsilon,
        mix_epsilon: constants.mix_epsilon,
    };
    let enter = Enter { mixes, streams: streams.address(), norm: site.norm.address(), input: input.address() };
    let launch = Launch::new(len as u32, THREADS).overlap();
    // SAFETY: a block a row; streams have four times `width` values, the partial sums 25 times as many as there are
    // panels, and the site's vectors what its matrix gives.
    unsafe { device.launch(&device.kernels.few.enter.enter, launch, &Args::new().with(enter)) };
    merge.due.set(Some(mixes));
    merge.due_of = Some([site.base.clone(), site.scale.clone()]);
    // Partial sums of its own are needed until merge values are made.
    merge.begun = own;
    Some(Mixed { input, merge })
}

/// The mixes of a site, for streams that were left without, if this kernel takes them.
fn begin(device: &Device, matrix: &DeviceMatrix, streams: &DeviceRows) -> Option<Begun> {
    let (len, width) = (streams.len(), streams.width() / STREAMS);
    let fits = matrix.kind() == TensorType::F16 && matrix.rows() == MIX_WIDTH && matrix.columns() == streams.width();
    if len > ROWS_MAX || !fits || !width.is_multiple_of(PANEL) {
        return None;
    }
    let panels = panels(width);
    let partials = device.scratch(Bytes((len * PARTIALS * panels * 4) as u64));
    let argument = Begin {
        streams: streams.address(),
        mixing: matrix.address(),
        partials: partials.address(),
        width: width as u32,
        mixes: MIX_WIDTH as u32,
    };
    let launch = Launch::new(panels as u32, BEGIN_THREADS).grid([panels as u32, len as u32, 1]).overlap();
    // SAFETY: a block for every whole panel of every row, whose four streams have `width` values; the matrix has four times as
    // many columns of halves, and there is room for the sums that each block leaves.
    unsafe { device.launch(&device.kernels.few.enter.begin, launch, &Args::new().with(argument)) };
    Some(Begun { matrix: matrix.address(), partials, panels })
}

/// What is still to be made of these merge values, for a launch that takes it along: one that comes before the streams
/// change, and that none of the launches since [`mix`] are waited for by.
pub(super) fn due(merge: &DeviceRows) -> DueMixes {
    merge.due.take().unwrap_or_default()
}

/// Makes merge values that no other launch has taken along.
pub(in crate::cuda) fn make_due(device: &Device, merge: &DeviceRows) {
    let Some(mixes) = merge.due.take() else { return };
    let launch = Launch::new(mixes.rows, MERGE_THREADS).overlap();
    // SAFETY: a block a row; the streams have not changed since `mix`, so that their partial sums are there, and the rows keep
    // the site's vectors.
    unsafe { device.launch(&device.kernels.few.enter.merge_values, launch, &Args::new().with(mixes)) };
}
