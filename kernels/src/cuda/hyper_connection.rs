//! Mixing streams into a block's input, and merging its output back.

use super::device::Device;
use super::loader::Loader;
use super::rows::DeviceRows;
use super::vector::DeviceVector;
use crate::hyper_connection::{HyperConstants, MIX_WIDTH, Mixed, STREAMS};
use bytemuck::NoUninit;
use ds4_gpu::cuda::{Args, CudaError, Function, Launch};

const THREADS: u32 = 512;
const MERGE_THREADS: u32 = 256;

pub(crate) struct Kernels {
    mix: Function,
    merge: Function,
    pick: Function,
    collapse: Function,
}

impl Kernels {
    pub(crate) fn load(loader: &Loader<'_>) -> Result<Kernels, CudaError> {
        let function = |name| loader.function("hyper_connection", name);
        Ok(Kernels {
            mix: function("mix")?,
            merge: function("merge")?,
            pick: function("pick")?,
            collapse: function("collapse")?,
        })
    }
}

/// A site's vectors.
pub(crate) struct Site<'a> {
    pub(crate) base: &'a DeviceVector,
    pub(crate) scale: &'a DeviceVector,
    pub(crate) norm: &'a DeviceVector,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct ConstantsArgument {
    norm_epsilon: f32,
    mix_epsilon: f32,
    iterations: u32,
}

// SAFETY: `repr(C)`, three 4-byte fields: no padding.
unsafe impl NoUninit for ConstantsArgument {}

impl ConstantsArgument {
    fn new(constants: &HyperConstants) -> ConstantsArgument {
        let HyperConstants { norm_epsilon, mix_epsilon, iterations } = *constants;
        ConstantsArgument { norm_epsilon, mix_epsilon, iterations: iterations as u32 }
    }
}

/// Input and merge values of every row. `mixes` is the mixing matrix applied to the streams as they are.
pub(crate) fn mix(
    device: &Device,
    site: &Site<'_>,
    constants: &HyperConstants,
    streams: &DeviceRows,
    mixes: &DeviceRows,
) -> Mixed<DeviceRows> {
    let (len, width) = (streams.len(), streams.width() / STREAMS);
    let input = device.rows(len, width);
    let merge = device.rows(len, MIX_WIDTH - STREAMS);
    assert_eq!((mixes.len(), mixes.width(), site.norm.len()), (len, MIX_WIDTH, width), "a site's shapes");
    let args = Args::new()
        .with(streams.address())
        .with(mixes.address())
        .with(site.base.address())
        .with(site.scale.address())
        .with(site.norm.address())
        .with(input.address())
        .with(merge.address())
        .with(width as u32)
        .with(ConstantsArgument::new(constants));
    // SAFETY: a block per row; streams have four times `width` values a row, a multiple of four, and the others what
    // the assertion says.
    unsafe { device.launch(&device.kernels.hyper_connection.mix, Launch::new(len as u32, THREADS), &args) };
    Mixed { input, merge }
}

/// Merges a block's output into the streams.
pub(crate) fn merge(device: &Device, streams: &mut DeviceRows, merge: &DeviceRows, output: &DeviceRows) {
    let (len, width) = (output.len() as u32, output.width());
    assert_eq!((streams.len(), streams.width()), (output.len(), width * STREAMS), "four streams of the output's width");
    let args = Args::new().with(streams.changed()).with(merge.address()).with(output.address()).with(width as u32);
    let blocks = (width as u32).div_ceil(MERGE_THREADS);
    let launch = Launch::new(blocks, MERGE_THREADS).grid([blocks, len, 1]);
    // SAFETY: the grid covers `width` channels of every row; threads beyond them do nothing.
    unsafe { device.launch(&device.kernels.hyper_connection.merge, launch, &args) };
}

/// The streams of the step's wanted rows, side by side.
pub(crate) fn pick(device: &Device, streams: &DeviceRows, wanted: usize) -> DeviceRows {
    let picked = device.rows(wanted, streams.width());
    let args =
        Args::new().with(streams.address()).with(device.step()).with(picked.address()).with(streams.width() as u32);
    // SAFETY: a block per wanted row; the step names rows that the streams have.
    unsafe { device.launch(&device.kernels.hyper_connection.pick, Launch::new(wanted as u32, THREADS), &args) };
    picked
}

/// The head's input. `mixes` is the head's mixing matrix applied to the streams as they are.
pub(crate) fn collapse(
    device: &Device,
    site: &Site<'_>,
    constants: &HyperConstants,
    streams: &DeviceRows,
    mixes: &DeviceRows,
) -> DeviceRows {
    let (len, width) = (streams.len(), streams.width() / STREAMS);
    assert_eq!((mixes.len(), mixes.width(), site.norm.len()), (len, STREAMS, width), "the head's shapes");
    let out = device.rows(len, width);
    let args = Args::new()
        .with(streams.address())
        .with(mixes.address())
        .with(site.base.address())
        .with(site.scale.address())
        .with(site.norm.address())
        .with(out.address())
        .with(width as u32)
        .with(ConstantsArgument::new(constants));
    // SAFETY: a block per row; the shapes are what the assertion says.
    unsafe { device.launch(&device.kernels.hyper_connection.collapse, Launch::new(len as u32, THREADS), &args) };
    out
}
