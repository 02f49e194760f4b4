//! When kernels ran, as the profiling library of NVIDIA's toolkit (CUPTI) notes it: for measurements, not for serving.

use super::driver;
use super::error::CudaError;
use cudarc::cupti::sys::{
    self, CUpti_Activity, CUpti_ActivityKernel10 as Record, CUpti_ActivityKind as Kind, CUptiResult,
};
use cudarc::driver::sys::CUcontext;
use std::alloc::{self, Layout};
use std::ffi::CStr;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of a buffer that the library fills.
const BUFFER: Layout = match Layout::from_size_align(4 << 20, 8) {
    Ok(layout) => layout,
    Err(_) => panic!("eight is a power of two"),
};

/// What was noted and not taken yet. The library has one place for its callbacks, so there is one list.
static NOTED: Mutex<Vec<KernelRun>> = Mutex::new(Vec::new());

/// A kernel that has run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelRun {
    /// The kernel's symbol.
    pub name: String,
    /// Blocks of threads.
    pub grid: [u32; 3],
    /// Nanoseconds on the device's clock.
    pub start: u64,
    /// The same. Of kernels that overlap it may be after the next one's start.
    pub end: u64,
}

/// Notes every kernel of this process, those of graphs one by one, until it is dropped.
///
/// Launching takes the host longer meanwhile; what kernels themselves take is as always.
#[derive(Debug)]
pub struct KernelTrace(());

impl KernelTrace {
    /// Starts. Graphs that exist already may be noted as a whole, so this comes first.
    ///
    /// There is an error without a driver or without the library, which is part of the toolkit: `libcupti.so.13` has to
    /// be where the loader looks (`LD_LIBRARY_PATH`).
    pub fn start() -> Result<KernelTrace, CudaError> {
        driver::start()?;
        // SAFETY: loading a library runs its initialisers; this one is made to be loaded like this.
        if !unsafe { sys::is_culib_present() } {
            return Err(CudaError::NoProfiler);
        }
        // SAFETY: both functions have the types that the library calls them by, and never go away.
        check("cuptiActivityRegisterCallbacks", unsafe {
            sys::cuptiActivityRegisterCallbacks(Some(give_buffer), Some(take_buffer))
        })?;
        // SAFETY: takes a number.
        check("cuptiActivityEnable", unsafe { sys::cuptiActivityEnable(Kind::CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) })?;
        Ok(KernelTrace(()))
    }

    /// The kernels that have ended since the last call, in the order in which they began. The caller has waited for them.
    /// Blocks until the library has given back its buffers.
    pub fn take(&self) -> Result<Vec<KernelRun>, CudaError> {
        // SAFETY: takes a number: 1 asks for buffers that are not full, too.
        check("cuptiActivityFlushAll", unsafe { sys::cuptiActivityFlushAll(1) })?;
        let mut runs = std::mem::take(&mut *noted());
        runs.sort_by_key(|run| run.start);
        Ok(runs)
    }
}

impl Drop for KernelTrace {
    fn drop(&mut self) {
        // SAFETY: takes a number. What it may refuse leaves notes that nobody takes.
        let _ = unsafe { sys::cuptiActivityDisable(Kind::CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) };
    }
}

/// A lock that a panicking thread held guards a list that is whole all the same.
fn noted() -> MutexGuard<'static, Vec<KernelRun>> {
    NOTED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives the library a buffer to fill; one of no bytes where there is no memory, which makes it drop its notes.
unsafe extern "C" fn give_buffer(buffer: *mut *mut u8, size: *mut usize, records: *mut usize) {
    // SAFETY: the layout has a size. The library has given three places to write to.
    unsafe {
        *buffer = alloc::alloc(BUFFER);
        *size = if (*buffer).is_null() { 0 } else { BUFFER.size() };
        // As many as fit.
        *records = 0;
    }
}

/// Takes a buffer back.
unsafe extern "C" fn take_buffer(_context: CUcontext, _stream: u32, buffer: *mut u8, _size: usize, valid: usize) {
    let mut noted = noted();
    let mut record: *mut CUpti_Activity = ptr::null_mut();
    // SAFETY: the library gives a buffer of ours whose first `valid` bytes it has filled; it steps from record to record
    // and says when there is none left.
    while unsafe { sys::cuptiActivityGetNextRecord(buffer, valid, &mut record) } == CUptiResult::CUPTI_SUCCESS {
        // SAFETY: every record begins with its kind, a number of 32 bits.
        if unsafe { record.cast::<u32>().read() } != Kind::CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL as u32 {
            continue;
        }
        // SAFETY: records of that kind are of this structure, or of a later one that begins with the same fields.
        let kernel = unsafe { &*record.cast::<Record>() };
        let name = kernel.name;
        let name = if name.is_null() {
            "?".to_owned()
        } else {
            // SAFETY: a name is a string that the library keeps as long as the record's buffer at least.
            unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
        };
        let grid = [kernel.gridX, kernel.gridY, kernel.gridZ].map(i32::cast_unsigned);
        noted.push(KernelRun { name, grid, start: kernel.start, end: kernel.end });
    }
    // SAFETY: `give_buffer` took it with this layout, and the library is done with it.
    unsafe { alloc::dealloc(buffer, BUFFER) };
}

fn check(call: &'static str, code: CUptiResult) -> Result<(), CudaError> {
    if code == CUptiResult::CUPTI_SUCCESS {
        return Ok(());
    }
    Err(CudaError::Call { call, name: format!("{code:?}"), code: code as u32 })
}
