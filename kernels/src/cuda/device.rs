//! What every operation works with: the GPU, its one compute stream, the kernels and the step's memory.

use super::arena::{Arena, Scratch};
use super::copies::{Copied, Copies};
use super::growing::PIECE_MIN;
use super::kernels::Kernels;
use super::plan::StepPlan;
use super::rows::DeviceRows;
use super::step::{StepMemory, StepView};
use crate::backend::Computed;
use crate::{BackendError, Rows};
use bytemuck::{cast_slice, cast_slice_mut};
use ds4_gpu::DevicePtr;
use ds4_gpu::cuda::{Args, CudaError, Function, Gpu, Launch, PinnedBuffer, Stream, download_async};
use ds4_units::{Bytes, TokenId, Tokens};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Choices that do not change while the process lives.
#[derive(Clone, Copy, Debug)]
pub struct CudaOptions {
    /// The longest conversation a bank may hold.
    pub context: Tokens,
}

/// A GPU and everything that operations share.
pub(crate) struct Device {
    pub(crate) gpu: Gpu,
    pub(crate) stream: Stream,
    pub(crate) kernels: Kernels,
    pub(crate) options: CudaOptions,
    arena: Arc<Arena>,
    step: Mutex<StepMemory>,
    download: Mutex<PinnedBuffer>,
    /// The first failure of the step, which makes the rest of it void.
    failure: Mutex<Option<BackendError>>,
    copies: Copies,
    /// Bytes that recordings took.
    recorded: AtomicU64,
    /// Kernels that were put into the stream, or into a recording.
    launched: AtomicU64,
    /// Of the step that was tried last.
    plan: Mutex<StepPlan>,
}

impl Device {
    /// Loads every kernel for this GPU. Blocks for some ten milliseconds.
    pub(crate) fn open(gpu: &Gpu, options: CudaOptions) -> Result<Device, BackendError> {
        Ok(Device {
            gpu: gpu.clone(),
            stream: Stream::new(gpu)?,
            kernels: Kernels::load(gpu)?,
            options,
            arena: Arena::new(gpu, gpu.memory()?.total)?,
            step: Mutex::new(StepMemory::new(gpu)?),
            download: Mutex::new(PinnedBuffer::new(gpu, Bytes::mib(1))?),
            failure: Mutex::new(None),
            copies: Copies::default(),
            recorded: AtomicU64::new(0),
            launched: AtomicU64::new(0),
            plan: Mutex::default(),
        })
    }

    /// Rows for a step's operation to fill.
    #[track_caller]
    pub(crate) fn rows(&self, len: usize, width: usize) -> DeviceRows {
        let memory = self.scratch(Bytes((len * width * size_of::<f32>()) as u64));
        DeviceRows::new(memory, len, width)
    }

    /// Bytes of the step's memory. After a failure there are none behind it, and no kernel will touch them.
    #[track_caller]
    pub(crate) fn scratch(&self, bytes: Bytes) -> Scratch {
        match self.arena.take(bytes) {
            Ok(scratch) => scratch,
            Err(error) => {
                self.fail(error);
                self.arena.nothing()
            }
        }
    }

    /// Rows that a step has left where it took memory for them.
    pub(super) fn rows_left_at(&self, address: DevicePtr, len: usize, width: usize) -> DeviceRows {
        DeviceRows::new(self.arena.left_at(address), len, width)
    }

    /// Puts a kernel into the stream, unless the step has failed already.
    ///
    /// # Safety
    /// The arguments are what the kernel takes, every address among them has the memory behind it that the kernel
    /// reads or writes for this grid, and that memory is used by this stream only.
    pub(crate) unsafe fn launch(&self, function: &Function, launch: Launch, args: &Args) {
        if launch.grid.contains(&0) {
            return;
        }
        if lock(&self.failure).is_some() {
            return self.arena.note_launch(function.name());
        }
        self.launched.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's word.
        if let Err(error) = unsafe { function.launch(&self.stream, &launch, args) } {
            self.fail(error);
        }
    }

    /// Notes a failure; the first one of a step is the one that is told.
    pub(crate) fn fail(&self, error: impl Into<BackendError>) {
        let mut failure = lock(&self.failure);
        if failure.is_none() {
            *failure = Some(error.into());
        }
    }

    /// Memory that lasts, with these bytes. Blocks.
    pub(crate) fn upload(&self, bytes: &[u8]) -> Result<Arc<Copied>, BackendError> {
        Ok(self.copies.copy(&self.gpu, bytes)?)
    }

    /// Memory of everything that was uploaded to last and is still there.
    pub(crate) fn copied_bytes(&self) -> Bytes {
        self.copies.bytes()
    }

    /// Notes memory that a recording of launches took.
    pub(super) fn count_recorded(&self, bytes: u64) {
        self.recorded.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Pinned memory that steps' metadata and results pass through.
    pub(crate) fn staging_bytes(&self) -> Bytes {
        Bytes((lock(&self.download).as_slice().len() + lock(&self.step).pinned_bytes()) as u64)
    }

    /// Memory that recordings took.
    pub(crate) fn recorded_bytes(&self) -> Bytes {
        Bytes(self.recorded.load(Ordering::Relaxed))
    }

    /// What a step's operations would take at most of memory that steps have not yet; with `take` it is taken. None of
    /// them is computed.
    pub(super) fn try_out(&self, take: bool, operations: impl FnOnce()) -> Result<Bytes, BackendError> {
        // After a failure nothing is launched.
        self.fail(BackendError::Device { what: "a step was only tried".into(), fatal: false });
        let plan = self.arena.try_out(operations);
        *lock(&self.failure) = None;
        let needed = plan.bytes();
        *lock(&self.plan) = plan;
        let had = self.arena.bytes();
        if take {
            self.arena.hold(needed)?;
        }
        let pages = needed.0.next_multiple_of(self.gpu.granularity().0.max(PIECE_MIN));
        Ok(Bytes(pages.saturating_sub(had.0)))
    }

    /// What the step asked for that was tried last.
    pub(super) fn plan(&self) -> StepPlan {
        lock(&self.plan).clone()
    }

    /// Kernels that were launched so far, one by one.
    pub(super) fn launched(&self) -> u64 {
        self.launched.load(Ordering::Relaxed)
    }

    /// Whether no activations are held.
    pub(super) fn arena_is_unused(&self) -> bool {
        self.arena.is_unused()
    }

    /// The step's first failure, if there is one.
    pub(super) fn failure(&self) -> Option<BackendError> {
        lock(&self.failure).clone()
    }

    /// The step's metadata.
    pub(crate) fn step(&self) -> StepView {
        lock(&self.step).view()
    }

    /// The metadata's memory, to be filled.
    pub(crate) fn step_memory(&self) -> MutexGuard<'_, StepMemory> {
        lock(&self.step)
    }

    /// Waits for everything in the stream. An error is the step's first; one that is not for good is forgotten with it.
    pub(crate) fn finish(&self) -> Result<(), BackendError> {
        if let Err(error) = self.stream.synchronize() {
            self.fail(error);
        }
        let mut failure = lock(&self.failure);
        match &*failure {
            None => Ok(()),
            Some(lost) if lost.is_fatal() => Err(lost.clone()),
            Some(_) => Err(failure.take().expect("it is there")),
        }
    }

    /// Waits for the rows and copies them to the host.
    pub(crate) fn download(&self, rows: &DeviceRows) -> Result<Rows, BackendError> {
        let bytes = rows.bytes() as usize;
        let mut pinned = self.pinned(bytes)?;
        let failed = lock(&self.failure).is_some();
        if !failed {
            // SAFETY: the rows have that many bytes, and the copy is waited for before anything else happens to either
            // side.
            unsafe { download_async(&self.stream, rows.address(), &mut pinned, 0..bytes)? };
        }
        self.finish()?;
        Ok(Rows::from_values(rows.width().max(1), cast_slice(&pinned.as_slice()[..bytes]).to_vec()))
    }

    /// Waits for a step's results: `width` logits of each of the rows `full`, and `count` best tokens.
    pub(super) fn bring(
        &self,
        logits: DevicePtr,
        width: usize,
        full: &[usize],
        best: DevicePtr,
        count: usize,
    ) -> Result<Computed<DeviceRows>, BackendError> {
        let (row, tokens) = (width * size_of::<f32>(), full.len() * width * size_of::<f32>());
        let bytes = tokens + count * size_of::<u32>();
        let mut pinned = self.pinned(bytes)?;
        if self.failure().is_none() {
            // SAFETY: the step left `count` rows of logits, of which `full` names some, and a token for each; the copies
            // are waited for before anything else happens to either side.
            unsafe {
                for (place, &index) in full.iter().enumerate() {
                    let from = logits.offset((index * row) as u64);
                    download_async(&self.stream, from, &mut pinned, place * row..(place + 1) * row)?;
                }
                download_async(&self.stream, best, &mut pinned, tokens..bytes)?;
            }
        }
        self.finish()?;
        let (logits, best) = pinned.as_slice()[..bytes].split_at(tokens);
        let best = cast_slice::<u8, u32>(best).iter().map(|&token| (token != u32::MAX).then_some(TokenId(token)));
        Ok(Computed { logits: cast_slice(logits).to_vec(), best: best.collect(), kept: Vec::new() })
    }

    /// Memory of the host for downloads.
    fn pinned(&self, bytes: usize) -> Result<MutexGuard<'_, PinnedBuffer>, BackendError> {
        let mut pinned = lock(&self.download);
        if pinned.as_slice().len() < bytes {
            *pinned = PinnedBuffer::new(&self.gpu, Bytes(bytes.next_power_of_two() as u64))?;
        }
        Ok(pinned)
    }

    /// The first `count` values of some scratch. Waits for what writes them.
    pub(crate) fn read<T: bytemuck::AnyBitPattern>(
        &self,
        from: &Scratch,
        count: usize,
    ) -> Result<Vec<T>, BackendError> {
        let bytes = count * size_of::<T>();
        let mut pinned = PinnedBuffer::new(&self.gpu, Bytes(bytes as u64))?;
        // SAFETY: the caller asks for what the scratch was taken for; the copy is waited for before it is read.
        unsafe { download_async(&self.stream, from.address(), &mut pinned, 0..bytes)? };
        self.finish()?;
        Ok(cast_slice(&pinned.as_slice()[..bytes]).to_vec())
    }

    /// Rows from the host, for tests. Blocks.
    pub(crate) fn upload_rows(&self, rows: &Rows) -> Result<DeviceRows, BackendError> {
        let memory = self.rows(rows.len(), rows.width());
        let mut pinned = PinnedBuffer::new(&self.gpu, Bytes(memory.bytes().max(4)))?;
        cast_slice_mut(&mut pinned.as_mut_slice()[..memory.bytes() as usize]).copy_from_slice(rows.values());
        // SAFETY: the rows have that many bytes, and the copy is waited for before the pinned memory goes.
        unsafe {
            ds4_gpu::cuda::upload_async(&self.stream, memory.address(), &pinned, 0..memory.bytes() as usize)?;
        }
        self.stream.synchronize()?;
        Ok(memory)
    }

    /// Memory that steps hold.
    pub(crate) fn arena_bytes(&self) -> Bytes {
        self.arena.bytes()
    }
}

impl From<CudaError> for BackendError {
    fn from(error: CudaError) -> BackendError {
        // The driver's 7xx are faults that a kernel committed or met: its context does nothing more after them.
        let fatal = matches!(error, CudaError::Call { code: 214 | 700..=720, .. });
        BackendError::Device { what: error.to_string(), fatal }
    }
}

/// A lock that a panicking thread held guards nothing that could be half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
