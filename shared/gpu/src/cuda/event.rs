//! Events: points in a stream that others can wait for.

use super::device::Gpu;
use super::driver::check;
use super::error::CudaError;
use super::leaks;
use cudarc::driver::sys::{self, CUevent, CUevent_flags_enum as Flags, CUresult};
use std::ptr;

/// A point in a stream. Until it is recorded the first time it counts as past.
#[derive(Debug)]
pub struct Event {
    event: CUevent,
    gpu: Gpu,
}

// SAFETY: an event handle may be used from any thread; the driver locks inside. `Gpu` is Send and Sync.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// An event without a time, for ordering. Waiting for it on the host spins, which is fastest.
    pub fn new(gpu: &Gpu) -> Result<Event, CudaError> {
        Event::with(gpu, Flags::CU_EVENT_DISABLE_TIMING as u32)
    }

    /// An event without a time whose waiters on the host sleep.
    pub fn sleeping(gpu: &Gpu) -> Result<Event, CudaError> {
        Event::with(gpu, Flags::CU_EVENT_DISABLE_TIMING as u32 | Flags::CU_EVENT_BLOCKING_SYNC as u32)
    }

    /// An event that notes when it happened.
    pub fn timed(gpu: &Gpu) -> Result<Event, CudaError> {
        Event::with(gpu, Flags::CU_EVENT_DEFAULT as u32)
    }

    fn with(gpu: &Gpu, flags: u32) -> Result<Event, CudaError> {
        gpu.bind()?;
        let mut event = ptr::null_mut();
        // SAFETY: `event` is writable for the call; a context is current. Dropping destroys it once.
        check("cuEventCreate", unsafe { sys::cuEventCreate(&mut event, flags) })?;
        Ok(Event { event, gpu: gpu.clone() })
    }

    /// Blocks until it has happened.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        self.gpu.bind()?;
        // SAFETY: `self` keeps the event alive.
        check("cuEventSynchronize", unsafe { sys::cuEventSynchronize(self.event) })
    }

    /// Whether it has happened. Does not block.
    pub fn is_done(&self) -> Result<bool, CudaError> {
        self.gpu.bind()?;
        // SAFETY: `self` keeps the event alive.
        match unsafe { sys::cuEventQuery(self.event) } {
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            code => check("cuEventQuery", code).map(|()| true),
        }
    }

    /// Milliseconds from `earlier` to this event; both must be timed and have happened.
    pub fn millis_since(&self, earlier: &Event) -> Result<f32, CudaError> {
        self.gpu.bind()?;
        let mut millis = 0.0;
        // SAFETY: `millis` is writable for the call, both events are alive.
        check("cuEventElapsedTime", unsafe { sys::cuEventElapsedTime_v2(&mut millis, earlier.event, self.event) })?;
        Ok(millis)
    }

    /// The driver's handle, valid while `self` lives.
    pub(super) fn raw(&self) -> CUevent {
        self.event
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: made in `with`, destroyed once here. The driver lets recorded work end first.
        let result =
            self.gpu.bind().and_then(|()| check("cuEventDestroy", unsafe { sys::cuEventDestroy_v2(self.event) }));
        leaks::count(result);
    }
}
