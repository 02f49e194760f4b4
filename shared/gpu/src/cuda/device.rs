//! A CUDA device and its context in this process.

use super::driver::{check, start};
use super::error::CudaError;
use super::leaks;
use cudarc::driver::sys::{self, CUcontext, CUdevice, CUdevice_attribute as Attribute};
use ds4_units::Bytes;
use std::ffi::{CStr, c_char, c_int};
use std::fmt;
use std::ptr;
use std::sync::Arc;

/// A device, with its primary context held. Cloning is cheap; everything made from it keeps it.
#[derive(Clone)]
pub struct Gpu {
    inner: Arc<Inner>,
}

struct Inner {
    device: CUdevice,
    context: CUcontext,
    facts: Facts,
}

/// What does not change.
struct Facts {
    name: String,
    uuid: String,
    driver: i32,
    compute_capability: (u32, u32),
    multiprocessors: u32,
    is_integrated: bool,
    max_shared_per_block: u32,
    l2: Bytes,
    granularity: Bytes,
}

// SAFETY: a context handle may be used from any thread, and from several at once: the driver locks inside. The other
// fields are plain data.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

/// Memory of a device at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuMemory {
    /// What nobody uses.
    pub free: Bytes,
    /// What there is.
    pub total: Bytes,
}

impl Gpu {
    /// How many devices the driver shows to this process.
    pub fn count() -> Result<usize, CudaError> {
        start()?;
        let mut count = 0;
        // SAFETY: `count` is writable for the call, and the driver is initialised.
        check("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&mut count) })?;
        Ok(count as usize)
    }

    /// Opens a device and makes or joins its primary context in this process: some 0.2 s the first time. Refuses a
    /// device that cannot share memory.
    pub fn open(ordinal: usize) -> Result<Gpu, CudaError> {
        let driver = start()?;
        let count = Gpu::count()?;
        if ordinal >= count {
            return Err(CudaError::NoDevice { ordinal, count });
        }
        let mut device = 0;
        // SAFETY: `device` is writable for the call; the number was checked.
        check("cuDeviceGet", unsafe { sys::cuDeviceGet(&mut device, ordinal as c_int) })?;
        let facts = facts(device, driver)?;
        let mut context = ptr::null_mut();
        // SAFETY: `context` is writable for the call, `device` came from the driver. `Inner` releases it once.
        check("cuDevicePrimaryCtxRetain", unsafe { sys::cuDevicePrimaryCtxRetain(&mut context, device) })?;
        let gpu = Gpu { inner: Arc::new(Inner { device, context, facts }) };
        gpu.bind()?;
        Ok(gpu)
    }

    /// The product's name.
    pub fn name(&self) -> &str {
        &self.inner.facts.name
    }

    /// The device's identity, `GPU-` and 32 hexadecimal digits in groups, the same in every process.
    pub fn uuid(&self) -> &str {
        &self.inner.facts.uuid
    }

    /// Version of CUDA that the driver speaks, as 1000 times major plus 10 times minor.
    pub fn driver_version(&self) -> i32 {
        self.inner.facts.driver
    }

    /// Compute capability, major and minor.
    pub fn compute_capability(&self) -> (u32, u32) {
        self.inner.facts.compute_capability
    }

    /// Streaming multiprocessors.
    pub fn multiprocessors(&self) -> u32 {
        self.inner.facts.multiprocessors
    }

    /// Whether it shares the host's memory.
    pub fn is_integrated(&self) -> bool {
        self.inner.facts.is_integrated
    }

    /// Shared memory that a block may have when its kernel asks for it, in bytes.
    pub fn max_shared_per_block(&self) -> u32 {
        self.inner.facts.max_shared_per_block
    }

    /// Size of the second-level cache.
    pub fn l2(&self) -> Bytes {
        self.inner.facts.l2
    }

    /// Shareable allocations take whole multiples of this, by the driver's recommendation.
    pub fn granularity(&self) -> Bytes {
        self.inner.facts.granularity
    }

    /// Memory now.
    pub fn memory(&self) -> Result<GpuMemory, CudaError> {
        self.bind()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: both are writable for the call; a context is current.
        check("cuMemGetInfo", unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) })?;
        Ok(GpuMemory { free: Bytes(free as u64), total: Bytes(total as u64) })
    }

    /// Blocks until everything that was started on the device by this process has ended. A kernel's fault shows here.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        self.bind()?;
        // SAFETY: takes no pointer; a context is current.
        check("cuCtxSynchronize", unsafe { sys::cuCtxSynchronize() })
    }

    /// Runs `work`, waits for the device, and tells a profiler that was started with this process's profiling off that
    /// only this counts. Without a profiler it does nothing else.
    pub fn profiled<R>(&self, work: impl FnOnce() -> R) -> Result<R, CudaError> {
        self.synchronize()?;
        // SAFETY: takes nothing; a context is current.
        check("cuProfilerStart", unsafe { sys::cuProfilerStart() })?;
        let result = work();
        self.synchronize()?;
        // SAFETY: as above.
        check("cuProfilerStop", unsafe { sys::cuProfilerStop() })?;
        Ok(result)
    }

    /// Makes the context current on this thread, which nearly every call of the driver needs.
    pub(super) fn bind(&self) -> Result<(), CudaError> {
        // SAFETY: `Inner` holds the context, so it is alive.
        check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(self.inner.context) })
    }

    /// The driver's number of the device.
    pub(super) fn device(&self) -> CUdevice {
        self.inner.device
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: retained once in `Gpu::open`, released once here, after everything that holds a `Gpu` is gone.
        leaks::count(check("cuDevicePrimaryCtxRelease", unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) }));
    }
}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gpu({}, {})", self.name(), self.uuid())
    }
}

fn facts(device: CUdevice, driver: i32) -> Result<Facts, CudaError> {
    let get = |attribute| attribute_of(device, attribute);
    let name = name(device)?;
    for (attribute, what) in [
        (Attribute::CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, "UNIFIED_ADDRESSING"),
        (Attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, "VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED"),
        (
            Attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
            "HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED",
        ),
    ] {
        if get(attribute)? == 0 {
            return Err(CudaError::Unsupported { device: name, what });
        }
    }
    Ok(Facts {
        uuid: uuid(device)?,
        driver,
        compute_capability: (
            get(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            get(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        multiprocessors: get(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        is_integrated: get(Attribute::CU_DEVICE_ATTRIBUTE_INTEGRATED)? != 0,
        max_shared_per_block: get(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
        l2: Bytes(u64::from(get(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?)),
        granularity: super::physical::granularity(device)?,
        name,
    })
}

/// None of those asked for is negative.
fn attribute_of(device: CUdevice, attribute: Attribute) -> Result<u32, CudaError> {
    let mut value = 0;
    // SAFETY: `value` is writable for the call, `device` came from the driver.
    check("cuDeviceGetAttribute", unsafe { sys::cuDeviceGetAttribute(&mut value, attribute, device) })?;
    Ok(value.max(0).cast_unsigned())
}

fn name(device: CUdevice) -> Result<String, CudaError> {
    let mut name: [c_char; 128] = [0; 128];
    // SAFETY: the driver writes at most the given number of bytes, a NUL among them.
    check("cuDeviceGetName", unsafe { sys::cuDeviceGetName(name.as_mut_ptr(), name.len() as c_int, device) })?;
    // SAFETY: the array holds a NUL: the driver wrote one, and its last byte was 0 before.
    Ok(unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned())
}

fn uuid(device: CUdevice) -> Result<String, CudaError> {
    let mut uuid = sys::CUuuid { bytes: [0; 16] };
    // SAFETY: `uuid` is writable for the call, `device` came from the driver.
    check("cuDeviceGetUuid", unsafe { sys::cuDeviceGetUuid_v2(&mut uuid, device) })?;
    let digits: String = uuid.bytes.iter().map(|&byte| format!("{:02x}", byte as u8)).collect();
    let group = |range: std::ops::Range<usize>| &digits[range];
    Ok(format!("GPU-{}-{}-{}-{}-{}", group(0..8), group(8..12), group(12..16), group(16..20), group(20..32)))
}
