//! Physical device memory that can go to other processes.

use super::device::Gpu;
use super::driver::check;
use super::error::CudaError;
use super::leaks;
use cudarc::driver::sys::{
    self, CUdevice, CUmemAllocationGranularity_flags_enum as Granularity, CUmemAllocationHandleType,
    CUmemAllocationProp, CUmemAllocationProp_st__bindgen_ty_1, CUmemAllocationType_enum, CUmemGenericAllocationHandle,
    CUmemLocation, CUmemLocationType_enum,
};
use ds4_units::Bytes;
use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

/// Kind of handle that goes between processes: a file descriptor.
const SHARED_AS: CUmemAllocationHandleType = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

/// A piece of device memory, not yet anywhere in the address space. It is freed when nobody has it mapped, holds a
/// handle or holds an exported descriptor of it, in whatever process.
#[derive(Debug)]
pub struct PhysAlloc {
    handle: CUmemGenericAllocationHandle,
    len: Bytes,
    gpu: Gpu,
}

/// A descriptor that keeps device memory and lets another process import it. Who has it may map it for writing too.
#[derive(Debug)]
pub struct ExportedFd(OwnedFd);

impl PhysAlloc {
    /// Takes `len` bytes, a multiple of [`Gpu::granularity`], from the device.
    pub fn create(gpu: &Gpu, len: Bytes) -> Result<PhysAlloc, CudaError> {
        gpu.bind()?;
        let properties = properties(gpu.device());
        let mut handle = 0;
        // SAFETY: `handle` is writable and `properties` readable for the call. Dropping releases the handle once.
        check("cuMemCreate", unsafe { sys::cuMemCreate(&mut handle, len.index(), &properties, 0) })?;
        Ok(PhysAlloc { handle, len, gpu: gpu.clone() })
    }

    /// Takes over what a descriptor of another process stands for. The descriptor can be closed afterwards. `len` is
    /// what that process says; mapping fails if it is more than there is.
    pub fn import(gpu: &Gpu, fd: BorrowedFd<'_>, len: Bytes) -> Result<PhysAlloc, CudaError> {
        gpu.bind()?;
        let mut handle = 0;
        let as_pointer = fd.as_raw_fd() as usize as *mut c_void;
        // SAFETY: `handle` is writable for the call; for this kind the pointer is the number of an open descriptor,
        // which the driver duplicates. Dropping releases the handle once.
        let code = unsafe { sys::cuMemImportFromShareableHandle(&mut handle, as_pointer, SHARED_AS) };
        check("cuMemImportFromShareableHandle", code)?;
        let imported = PhysAlloc { handle, len, gpu: gpu.clone() };
        let found = imported.device()?;
        if found != gpu.device() {
            return Err(CudaError::OtherDevice { found, wanted: gpu.device() });
        }
        Ok(imported)
    }

    /// A descriptor of it. Only of memory that this process has created: an imported one cannot be exported again.
    pub fn export(&self) -> Result<ExportedFd, CudaError> {
        self.gpu.bind()?;
        let mut fd: c_int = -1;
        // SAFETY: for this kind the driver writes one `int` to where the pointer points; the handle is alive.
        let code =
            unsafe { sys::cuMemExportToShareableHandle(ptr::from_mut(&mut fd).cast(), self.handle, SHARED_AS, 0) };
        check("cuMemExportToShareableHandle", code)?;
        // SAFETY: the driver has just opened this descriptor for us, and nobody else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(ExportedFd(fd))
    }

    /// Its length.
    pub fn len(&self) -> Bytes {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == Bytes::ZERO
    }

    /// Its device.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// The driver's handle, valid while `self` lives.
    pub(super) fn raw(&self) -> CUmemGenericAllocationHandle {
        self.handle
    }

    fn device(&self) -> Result<CUdevice, CudaError> {
        let mut properties = properties(self.gpu.device());
        // SAFETY: `properties` is writable for the call; the handle is alive.
        let code = unsafe { sys::cuMemGetAllocationPropertiesFromHandle(&mut properties, self.handle) };
        check("cuMemGetAllocationPropertiesFromHandle", code)?;
        Ok(properties.location.id)
    }
}

impl Drop for PhysAlloc {
    fn drop(&mut self) {
        // SAFETY: created or imported once, released once here; mappings keep the memory by themselves.
        let release = || check("cuMemRelease", unsafe { sys::cuMemRelease(self.handle) });
        leaks::count(self.gpu.bind().and_then(|()| release()));
    }
}

impl ExportedFd {
    /// The descriptor, to be kept or passed on.
    pub fn into_fd(self) -> OwnedFd {
        self.0
    }
}

impl AsFd for ExportedFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// What the driver recommends that allocations be multiples of.
pub(super) fn granularity(device: CUdevice) -> Result<Bytes, CudaError> {
    let mut granularity = 0;
    let properties = properties(device);
    let option = Granularity::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED;
    // SAFETY: `granularity` is writable and `properties` readable for the call.
    let code = unsafe { sys::cuMemGetAllocationGranularity(&mut granularity, &properties, option) };
    check("cuMemGetAllocationGranularity", code)?;
    Ok(Bytes(granularity as u64))
}

/// Shareable memory on this device. The kind of handle has to be named at creation; it cannot be added later.
fn properties(device: CUdevice) -> CUmemAllocationProp {
    CUmemAllocationProp {
        type_: CUmemAllocationType_enum::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: SHARED_AS,
        location: CUmemLocation { type_: CUmemLocationType_enum::CU_MEM_LOCATION_TYPE_DEVICE, id: device },
        win32HandleMetaData: ptr::null_mut(),
        allocFlags: CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType: 0,
            gpuDirectRDMACapable: 0,
            usage: 0,
            reserved: [0; 4],
        },
    }
}
