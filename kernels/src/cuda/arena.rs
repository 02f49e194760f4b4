//! Memory of a step: activations and scratch, given out and taken back by the host while the device is still working.
//!
//! One stream runs every operation in order, so memory that the host takes back can be given out again at once: whoever
//! gets it writes to it after its former user has read it. The same requests in the same order get the same addresses,
//! and in a steady state the driver is asked for nothing.

use super::growing::Growing;
use crate::BackendError;
use ds4_gpu::DevicePtr;
use ds4_gpu::cuda::{CudaError, Gpu};
use ds4_units::Bytes;
use std::collections::BTreeMap;
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
    /// Lengths of the gaps before `end`, by where they start. No two touch.
    gaps: BTreeMap<u64, u64>,
    /// Behind it nothing is given out.
    end: u64,
    /// While operations are only tried: the furthest end there was. Addresses are given out then, and no memory.
    tried: Option<u64>,
}

/// Bytes of the arena. Dropping them makes them available to whatever is put into the stream afterwards.
pub(crate) struct Scratch {
    arena: Arc<Arena>,
    address: DevicePtr,
    offset: u64,
    len: u64,
}

impl Arena {
    /// An arena that may grow to `most`. Takes no memory yet.
    pub(crate) fn new(gpu: &Gpu, most: Bytes) -> Result<Arc<Arena>, CudaError> {
        let memory = Growing::reserve(gpu, "a step's activations", most)?;
        Ok(Arc::new(Arena { state: Mutex::new(State { memory, gaps: BTreeMap::new(), end: 0, tried: None }) }))
    }

    /// `bytes` bytes, with whatever was in them.
    pub(crate) fn take(self: &Arc<Arena>, bytes: Bytes) -> Result<Scratch, BackendError> {
        let len = bytes.0.max(1).next_multiple_of(ALIGN);
        let mut state = self.state();
        let offset = match state.first_gap(len) {
            Some(offset) => offset,
            None => state.extend(len)?,
        };
        let address = state.memory.address().offset(offset);
        Ok(Scratch { arena: Arc::clone(self), address, offset, len })
    }

    /// No memory at all, for what comes after a failure.
    pub(crate) fn nothing(self: &Arc<Arena>) -> Scratch {
        Scratch { arena: Arc::clone(self), address: DevicePtr(0), offset: 0, len: 0 }
    }

    /// The same bytes as some scratch has, which may have been given back: nobody else writes to them before the next
    /// step is computed.
    pub(crate) fn left_at(self: &Arc<Arena>, address: DevicePtr) -> Scratch {
        Scratch { arena: Arc::clone(self), address, offset: 0, len: 0 }
    }

    /// Whether nobody holds any of it.
    pub(crate) fn is_unused(&self) -> bool {
        self.state().end == 0
    }

    /// What `operations` have out at once at most. Nothing may be behind the addresses that they get, so no work may come
    /// of them.
    pub(crate) fn try_out(&self, operations: impl FnOnce()) -> Bytes {
        self.state().tried = Some(0);
        operations();
        Bytes(self.state().tried.take().unwrap_or_default())
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

impl State {
    fn first_gap(&mut self, len: u64) -> Option<u64> {
        let (&offset, &gap) = self.gaps.iter().find(|&(_, &gap)| gap >= len)?;
        self.gaps.remove(&offset);
        if gap > len {
            self.gaps.insert(offset + len, gap - len);
        }
        Some(offset)
    }

    fn extend(&mut self, len: u64) -> Result<u64, BackendError> {
        let offset = self.end;
        match &mut self.tried {
            Some(furthest) => *furthest = (*furthest).max(offset + len),
            None => self.memory.ensure(offset + len)?,
        }
        self.end = offset + len;
        Ok(offset)
    }

    fn give_back(&mut self, mut offset: u64, mut len: u64) {
        if let Some((&before, &gap)) = self.gaps.range(..offset).next_back()
            && before + gap == offset
        {
            self.gaps.remove(&before);
            (offset, len) = (before, gap + len);
        }
        if let Some(gap) = self.gaps.remove(&(offset + len)) {
            len += gap;
        }
        if offset + len == self.end {
            self.end = offset;
        } else {
            self.gaps.insert(offset, len);
        }
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
            self.arena.state().give_back(self.offset, self.len);
        }
    }
}
