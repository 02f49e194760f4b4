//! Kernels, and starting them.

use super::driver::check;
use super::error::CudaError;
use super::launch::{Args, Launch};
use super::module::Module;
use super::stream::Stream;
use cudarc::driver::sys::{self, CUfunction, CUfunction_attribute as Attribute, CUlaunchConfig, CUresult};
use std::sync::Arc;

/// A kernel. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Function {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    name: String,
    function: CUfunction,
    /// Sizes of its parameters.
    takes: Vec<usize>,
    module: Module,
}

// SAFETY: a function handle may be used from any thread; the driver locks inside. `Module` is Send and Sync and keeps
// the function alive.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Function {
    /// A handle that the driver gave for this module.
    pub(super) fn own(module: &Module, name: &str, function: CUfunction) -> Result<Function, CudaError> {
        let takes = parameters(function)?;
        let inner = Inner { name: name.to_owned(), function, takes, module: module.clone() };
        Ok(Function { inner: Arc::new(inner) })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Lets its blocks have up to `bytes` of dynamic shared memory; beyond 48 KiB a kernel has to ask.
    pub fn allow_shared(&self, bytes: u32) -> Result<(), CudaError> {
        self.inner.module.gpu().bind()?;
        let attribute = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: takes no pointer of ours; the function is alive.
        let code = unsafe { sys::cuFuncSetAttribute(self.inner.function, attribute, bytes.cast_signed()) };
        check("cuFuncSetAttribute", code)
    }

    /// Lets clusters have more than the portable eight blocks.
    pub fn allow_large_clusters(&self) -> Result<(), CudaError> {
        self.inner.module.gpu().bind()?;
        let attribute = Attribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED;
        // SAFETY: as in `allow_shared`.
        check("cuFuncSetAttribute", unsafe { sys::cuFuncSetAttribute(self.inner.function, attribute, 1) })
    }

    /// Registers of a thread.
    pub fn registers(&self) -> Result<u32, CudaError> {
        self.attribute(Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)
    }

    /// Local memory of a thread in bytes: what did not fit its registers, and its arrays.
    pub fn local_bytes(&self) -> Result<u32, CudaError> {
        self.attribute(Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)
    }

    /// Blocks of `threads` threads with `shared` bytes of dynamic shared memory that one multiprocessor runs at once.
    pub fn blocks_per_multiprocessor(&self, threads: u32, shared: u32) -> Result<u32, CudaError> {
        self.inner.module.gpu().bind()?;
        let (mut blocks, threads) = (0, threads.cast_signed());
        // SAFETY: `blocks` is writable for the call; the function is alive.
        let code = unsafe {
            sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, self.inner.function, threads, shared as usize)
        };
        check("cuOccupancyMaxActiveBlocksPerMultiprocessor", code)?;
        Ok(blocks.max(0).cast_unsigned())
    }

    /// Puts the kernel into `stream`. Does not block; a fault shows when somebody waits. Number and sizes of the
    /// arguments are checked against the kernel's.
    ///
    /// # Safety
    /// Every address among the arguments is memory that the kernel may touch as it does, for as long as it runs; and
    /// nothing else on the device writes what it reads or touches what it writes, unless streams or events order it
    /// before or after.
    pub unsafe fn launch(&self, stream: &Stream, launch: &Launch, args: &Args) -> Result<(), CudaError> {
        if args.sizes() != self.inner.takes {
            let (takes, given) = (self.inner.takes.clone(), args.sizes().to_vec());
            return Err(CudaError::Arguments { kernel: self.inner.name.clone(), takes, given });
        }
        stream.gpu().bind()?;
        let mut attributes = launch.attributes();
        let config = CUlaunchConfig {
            gridDimX: launch.grid[0],
            gridDimY: launch.grid[1],
            gridDimZ: launch.grid[2],
            blockDimX: launch.block[0],
            blockDimY: launch.block[1],
            blockDimZ: launch.block[2],
            sharedMemBytes: launch.shared,
            hStream: stream.raw(),
            attrs: attributes.as_mut_ptr(),
            numAttrs: attributes.len() as u32,
        };
        let mut pointers = args.pointers();
        // SAFETY: config, attributes and arguments are alive for the call, which copies them; there is a pointer for
        // each parameter, to as many bytes as the parameter has. The caller vouches for the addresses in them.
        let code =
            unsafe { sys::cuLaunchKernelEx(&config, self.inner.function, pointers.as_mut_ptr(), std::ptr::null_mut()) };
        check("cuLaunchKernelEx", code)
    }

    fn attribute(&self, attribute: Attribute) -> Result<u32, CudaError> {
        self.inner.module.gpu().bind()?;
        let mut value = 0;
        // SAFETY: `value` is writable for the call; the function is alive.
        let code = unsafe { sys::cuFuncGetAttribute(&mut value, attribute, self.inner.function) };
        check("cuFuncGetAttribute", code)?;
        Ok(value.max(0).cast_unsigned())
    }
}

/// Sizes of a kernel's parameters, in order.
fn parameters(function: CUfunction) -> Result<Vec<usize>, CudaError> {
    let mut sizes = Vec::new();
    loop {
        let (mut offset, mut size) = (0, 0);
        // SAFETY: both are writable for the call; the function is alive. An index beyond the last is an error code (which
        // compute-sanitizer reports, unless told --report-api-errors no).
        match unsafe { sys::cuFuncGetParamInfo(function, sizes.len(), &mut offset, &mut size) } {
            CUresult::CUDA_ERROR_INVALID_VALUE => return Ok(sizes),
            code => check("cuFuncGetParamInfo", code)?,
        }
        sizes.push(size);
    }
}
