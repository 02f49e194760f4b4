//! Steps that repeat: what a step of few rows put into the stream is recorded once and then started as a whole.
//!
//! A launch costs the host some microseconds, and a step of one row is a thousand short kernels. So the second step of a
//! shape is recorded while its operations run as always; later ones start the recording. What differs from step to step
//! (tokens, positions, banks) is read from device memory, and the arena gives every step the same addresses.

use super::backend::Cuda;
use super::best::{self, BestTokens};
use super::device::Device;
use super::rows::DeviceRows;
use super::step::StepView;
use crate::BackendError;
use crate::backend::{Computed, Produced};
use crate::kv_rows::KvFormat;
use crate::step::Step;
use ds4_gpu::DevicePtr;
use ds4_gpu::cuda::GraphExec;
use ds4_units::Bytes;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Steps of more rows keep the device busy for longer than the host takes to start them.
const ROWS_MAX: usize = 64;
/// Recordings that a model keeps; the one that was used least recently makes room.
const KEPT_MAX: usize = 48;
/// What a recording takes on the device at most: planned for each, and as long as none was made.
const RECORDING: Bytes = Bytes::mib(8);

/// The recordings of one model.
#[derive(Default)]
pub struct Repeats {
    kept: Mutex<Vec<Repeat>>,
    /// What the largest recording took on the device.
    largest: AtomicU64,
}

/// All that the launches of a step depend on.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Shape {
    view: StepView,
    wanted: usize,
    reach: usize,
    longest: usize,
}

/// A shape that was seen before; recorded when it was seen twice.
struct Repeat {
    shape: Shape,
    recorded: Option<(GraphExec, Results)>,
}

/// Where a step leaves what it computed.
#[derive(Clone)]
pub(super) struct Results {
    logits: Option<Logits>,
    kept: Vec<LeftRows>,
}

#[derive(Clone, Copy)]
struct Logits {
    logits: DevicePtr,
    width: usize,
    best: DevicePtr,
    count: usize,
}

/// Rows of a step that has ended.
#[derive(Clone, Copy)]
struct LeftRows {
    address: DevicePtr,
    len: usize,
    width: usize,
}

impl Repeats {
    /// Runs the operations of a prepared step, or their recording.
    fn run(
        &self,
        device: &Device,
        shape: Shape,
        operations: impl FnOnce() -> Results,
    ) -> Result<Results, BackendError> {
        if shape.view.rows as usize > ROWS_MAX || !device.arena_is_unused() {
            return Ok(operations());
        }
        let mut kept = self.kept();
        let seen = kept.iter().position(|repeat| repeat.shape == shape);
        let mut repeat = match seen {
            // The first of a shape only makes sure of its memory.
            None => {
                let results = operations();
                keep(&mut kept, Repeat { shape, recorded: None });
                return Ok(results);
            }
            Some(place) => kept.remove(place),
        };
        let free = repeat.recorded.is_none().then(|| device.gpu.memory()).transpose()?.map(|memory| memory.free);
        if repeat.recorded.is_none() {
            repeat.recorded = Some(record(device, operations).map_err(|error| refused(device, error))?);
        }
        let (graph, results) = repeat.recorded.as_ref().expect("it was just recorded");
        let results = results.clone();
        // SAFETY: the recorded kernels touch weights and recordings of the same model, the metadata that `prepare` has put
        // into the same stream before, the banks it names, and the arena, which nobody else uses.
        unsafe { graph.launch(&device.stream) }.map_err(|error| refused(device, error.into()))?;
        if let Some(free) = free {
            // The first start brings a recording to the device.
            device.count_recorded(self.measured(free, device.gpu.memory()?.free).0);
        }
        keep(&mut kept, repeat);
        Ok(results)
    }

    /// Takes note of what a recording took, by what was free before and after it came to the device. Others take memory of
    /// the same device meanwhile: what is more than was planned is theirs.
    fn measured(&self, before: Bytes, after: Bytes) -> Bytes {
        let bytes = Bytes(before.0.saturating_sub(after.0)).min(RECORDING);
        self.largest.fetch_max(bytes.0, Ordering::Relaxed);
        bytes
    }

    /// What recordings may still take on the device. Those that made room for others have left their memory to them.
    pub(super) fn to_come(&self) -> Bytes {
        let recorded = self.kept().iter().filter(|repeat| repeat.recorded.is_some()).count();
        let largest = self.largest.load(Ordering::Relaxed);
        let each = if largest == 0 { RECORDING.0 } else { largest };
        Bytes((KEPT_MAX - recorded) as u64 * each)
    }

    fn kept(&self) -> MutexGuard<'_, Vec<Repeat>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A step's operations and the search for its best tokens.
pub(super) fn operate<'a, F: KvFormat>(
    cuda: &Cuda<F>,
    step: &mut Step<'a, super::DeviceBank>,
    operations: impl FnOnce(&Cuda<F>, &mut Step<'a, super::DeviceBank>) -> Produced<DeviceRows>,
) -> Results {
    let Produced { logits, kept } = operations(cuda, step);
    let logits = logits.map(|logits| {
        let BestTokens { tokens } = best::best(&cuda.device, &logits);
        Logits { logits: logits.address(), width: logits.width(), best: tokens.address(), count: logits.len() }
    });
    let left = |rows: &DeviceRows| LeftRows { address: rows.address(), len: rows.len(), width: rows.width() };
    Results { logits, kept: kept.iter().map(left).collect() }
}

/// The last one is the one that was used last.
fn keep(kept: &mut Vec<Repeat>, repeat: Repeat) {
    if kept.len() == KEPT_MAX {
        kept.remove(0);
    }
    kept.push(repeat);
}

fn record(device: &Device, operations: impl FnOnce() -> Results) -> Result<(GraphExec, Results), BackendError> {
    let mut results = None;
    let graph = device.stream.capture(|| {
        results = Some(operations());
        // What could not be launched is missing in the recording.
        device.failure().map_or(Ok(()), Err)
    })?;
    Ok((graph.instantiate()?, results.expect("the operations ran")))
}

/// Why a recording cannot be had, or started.
fn refused(device: &Device, error: BackendError) -> BackendError {
    match device.gpu.memory() {
        Ok(memory) if memory.free < RECORDING => {
            BackendError::OutOfMemory { what: "a recording of a step", asked: RECORDING, free: memory.free }
        }
        _ => error,
    }
}

/// See [`crate::Backend::compute`].
pub(super) fn compute<'a, F: KvFormat>(
    cuda: &Cuda<F>,
    repeats: &Repeats,
    step: &mut Step<'a, super::DeviceBank>,
    full: &[usize],
    operations: impl FnOnce(&Cuda<F>, &mut Step<'a, super::DeviceBank>) -> Produced<DeviceRows>,
) -> Result<Computed<DeviceRows>, BackendError> {
    let device = &*cuda.device;
    let shape = Shape { view: device.step(), wanted: step.wanted.len(), reach: step.reach(), longest: step.longest() };
    let Results { logits, kept } = repeats.run(device, shape, || operate(cuda, step, operations))?;
    let computed = match logits {
        Some(Logits { logits, width, best, count }) => device.bring(logits, width, full, best, count)?,
        None => {
            device.finish()?;
            Computed { logits: Vec::new(), best: Vec::new(), kept: Vec::new() }
        }
    };
    let kept = kept.iter().map(|rows| device.rows_left_at(rows.address, rows.len, rows.width)).collect();
    Ok(Computed { kept, ..computed })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_take_of_the_device_meanwhile_is_no_recording_s() {
        let free = Bytes::gib(100);
        let less = |bytes: Bytes| Bytes(free.0 - bytes.0);
        let repeats = Repeats::default();
        let planned = repeats.to_come();
        assert_eq!(planned, Bytes(48 * RECORDING.0));
        assert_eq!(repeats.measured(free, less(Bytes::mib(6))), Bytes::mib(6));
        assert_eq!(repeats.to_come(), Bytes::mib(48 * 6));
        // Another process loads a model, and one gives its memory back.
        assert_eq!(repeats.measured(free, less(Bytes::gib(15))), RECORDING);
        assert_eq!(repeats.measured(less(Bytes::gib(15)), free), Bytes::ZERO);
        assert_eq!(repeats.to_come(), planned);
    }
}
