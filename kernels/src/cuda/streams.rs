//! Streams of the token before, for a draft block.

use super::device::Device;
use super::loader::Loader;
use super::rows::DeviceRows;
use crate::bank::StreamsPlace;
use ds4_gpu::DevicePtr;
use ds4_gpu::cuda::{Args, CudaError, Function, Launch};

const THREADS: u32 = 256;
/// Values that a thread copies.
const FOUR: usize = 4;

pub(crate) struct Kernels {
    take: Function,
    leave: Function,
    add: Function,
}

impl Kernels {
    pub(crate) fn load(loader: &Loader<'_>) -> Result<Kernels, CudaError> {
        let function = |name| loader.function("streams", name);
        Ok(Kernels { take: function("take_streams")?, leave: function("leave_streams")?, add: function("add")? })
    }
}

/// See [`crate::Backend::take_streams`].
pub(super) fn take(device: &Device, place: StreamsPlace, streams: Option<&DeviceRows>) -> DeviceRows {
    let step = device.step();
    assert!(streams.is_none_or(|streams| streams.width() == place.floats), "rows are whole streams");
    let out = device.rows(step.rows as usize, place.floats);
    let fours = fours(place);
    let from = streams.map_or(DevicePtr(0), DeviceRows::address);
    let args = Args::new().with(step).with(from).with(out.address()).with(place.offset as u32).with(fours);
    // SAFETY: the rows have `floats` values each, as have the places in the step's banks, which have their recurrent parts.
    unsafe { device.launch(&device.kernels.streams.take, launch(fours, step.rows), &args) };
    out
}

/// See [`crate::Backend::leave_streams`].
pub(super) fn leave(device: &Device, place: StreamsPlace, streams: &DeviceRows) {
    let step = device.step();
    assert_eq!(streams.width(), place.floats, "rows are whole streams");
    let fours = fours(place);
    let args = Args::new().with(step).with(streams.address()).with(place.offset as u32).with(fours);
    // SAFETY: the rows have `floats` values each, as have the places in the step's banks, which have their recurrent parts.
    unsafe { device.launch(&device.kernels.streams.leave, launch(fours, step.segment_count), &args) };
}

/// See [`crate::Backend::add`].
pub(super) fn add(device: &Device, rows: &mut DeviceRows, others: &DeviceRows) {
    let count = rows.len() * rows.width();
    assert_eq!(count, others.len() * others.width(), "as many values on both sides");
    let args = Args::new().with(rows.changed()).with(others.address()).with(count as u64);
    let blocks = count.div_ceil(THREADS as usize) as u32;
    // SAFETY: both have `count` values; threads beyond them do nothing.
    unsafe { device.launch(&device.kernels.streams.add, Launch::new(blocks, THREADS), &args) };
}

fn fours(place: StreamsPlace) -> u32 {
    assert!(place.floats.is_multiple_of(FOUR), "{} values are copied by fours", place.floats);
    (place.floats / FOUR) as u32
}

fn launch(fours: u32, rows: u32) -> Launch {
    let blocks = fours.div_ceil(THREADS);
    Launch::new(blocks, THREADS).grid([blocks, rows, 1])
}
