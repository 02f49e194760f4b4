//! Memory of a step: activations and scratch, given out and taken back by the host while the device is still working.
//!
//! One stream runs every operation in order, so memory that the host takes back can be given out again at once: whoever
//! gets it writes to it after its former user has read it. The same requests in the same order get the same addresses,
//! and in a steady state the driver is asked for nothing.
//!
//! In order means: whoever gets it waits for the launch in front (`griddepcontrol.wait`) before it writes. A kernel that may
//! begin beside that launch ([`ds4_gpu::cuda::Launch::overlap`]) may do without, under these rules:
//! - it writes before it waits only to memory that was taken before the launch in front of it: what was given back since may
//!   still be that launch's;
//! - it reads before it waits only what the launch before last, or an earlier one, has written, and what is still held;
//! - the launch in front has waited itself before it let the next one start, or all of this is true of the one before that.
//!
//! Kernels that write so are listed in `plan.rs`, and plans of steps are held to the first and the last rule.

use super::growing::Growing;
use super::plan::StepPlan;
use crate::BackendError;
use crate::places::Places;
use ds4_gpu::DevicePtr;
use ds4_gpu::cuda::{CudaError, Gpu};
use ds4_units::Bytes;
use std::panic::Location;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Every piece starts at a multiple of this, so that copies of up to that length lie in one mapping of the arena. Longer ones
/// may go on in the next, which is mapped right behind it; a memory checker takes that for the arena's end.
const ALIGN: u64 = 2048;

/// All memory of steps.
pub(crate) struct Arena {
    state: Mutex<State>,
}

struct State {
    memory: Growing,
    places: Places,
    /// While operations are only tried: what they ask for. They get addresses then, and no memory.
    tried: Option<StepPlan>,
}

/// Bytes of the arena. Dropping them makes them available to whatever is put into the stream afterwards.
pub(crate) struct Scratch {
    arena: Arc<Arena>,
    address: DevicePtr,
    offset: u64,
    len: u64,
    /// Its place in the plan, where operations are tried.
    planned: Option<usize>,
}

impl Arena {
    /// An arena that may grow to `most`. Takes no memory yet.
    pub(crate) fn new(gpu: &Gpu, most: Bytes) -> Result<Arc<Arena>, CudaError> {
        let memory = Growing::reserve(gpu, "a step's activations", most)?;
        Ok(Arc::new(Arena { state: Mutex::new(State { memory, places: Places::default(), tried: None }) }))
    }

    /// `bytes` bytes, with whatever was in them.
    #[track_caller]
    pub(crate) fn take(self: &Arc<Arena>, bytes: Bytes) -> Result<Scratch, BackendError> {
        let (len, source) = (bytes.0.max(1).next_multiple_of(ALIGN), Location::caller());
        let mut state = self.state();
        let offset = state.places.take(len);
        let end = state.places.end();
        let planned = state.tried.as_mut().map(|plan| plan.take(source, offset, len));
        if planned.is_none()
            && let Err(error) = state.memory.ensure(end)
        {
            state.places.give_back(offset, len);
            return Err(error);
        }
        let address = state.memory.address().offset(offset);
        Ok(Scratch { arena: Arc::clone(self), address, offset, len, planned })
    }

    /// No memory at all, for what comes after a failure.
    pub(crate) fn nothing(self: &Arc<Arena>) -> Scratch {
        self.left_at(DevicePtr(0))
    }

    /// The same bytes as some scratch has, which may have been given back: nobody else writes to them before the next
    /// step is computed.
    pub(crate) fn left_at(self: &Arc<Arena>, address: DevicePtr) -> Scratch {
        Scratch { arena: Arc::clone(self), address, offset: 0, len: 0, planned: None }
    }

    /// Whether nobody holds any of it.
    pub(crate) fn is_unused(&self) -> bool {
        self.state().places.end() == 0
    }

    /// What `operations` ask for. Nothing may be behind the addresses that they get, so no work may come of them.
    pub(crate) fn try_out(&self, operations: impl FnOnce()) -> StepPlan {
        self.state().tried = Some(StepPlan::default());
        operations();
        self.state().tried.take().unwrap_or_default()
    }

    /// Notes a launch that does not come of operations that are only tried.
    pub(crate) fn note_launch(&self, kernel: &str) {
        if let Some(plan) = &mut self.state().tried {
            plan.launches.push(kernel.to_owned());
        }
    }

    /// Takes memory for operations that have so much out at once. What was taken goes back when that fails.
    pub(crate) fn hold(&self, bytes: Bytes) -> Result<(), BackendError> {
        let memory = &mut self.state().memory;
        let before = memory.mapped();
        memory.ensure_just(bytes.0).inspect_err(|_| memory.shrink(before.0))
    }

    /// Memory it holds, used or not.
    pub(crate) fn bytes(&self) -> Bytes {
        self.state().memory.mapped()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Scratch {
    /// Where it starts.
    pub(crate) fn address(&self) -> DevicePtr {
        self.address
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.len > 0 {
            let mut state = self.arena.state();
            state.places.give_back(self.offset, self.len);
            if let (Some(plan), Some(planned)) = (&mut state.tried, self.planned) {
                plan.give_back(planned);
            }
        }
    }
}
