//! Reserved addresses, and memory mapped there.

use super::copy;
use super::copy::check_place;
use super::device::Gpu;
use super::driver::check;
use super::error::CudaError;
use super::leaks;
use super::physical::PhysAlloc;
use crate::memory::{DeviceMemory, DevicePtr, MemoryError};
use cudarc::driver::sys::{
    self, CUmemAccess_flags_enum as Flags, CUmemAccessDesc, CUmemLocation, CUmemLocationType_enum,
};
use ds4_units::Bytes;
use std::mem;
use std::sync::Arc;

/// Addresses that are reserved in this process and stay the same while memory behind them comes and goes.
#[derive(Debug)]
pub struct VaRange {
    address: DevicePtr,
    len: Bytes,
    gpu: Gpu,
}

/// What kernels of this process may do with mapped memory. One that does more faults, and with it everything of this
/// process on the device; other processes and the bytes are unharmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read.
    ReadOnly,
    /// Read and write.
    ReadWrite,
}

/// Physical memory at reserved addresses. Dropping it unmaps, then lets go of the memory, then of the addresses.
#[derive(Debug)]
pub struct Mapping {
    offset: Bytes,
    is_mapped: bool,
    // Fields drop in order: memory before addresses.
    memory: Arc<PhysAlloc>,
    range: Arc<VaRange>,
}

impl VaRange {
    /// Reserves `len` bytes of addresses, a multiple of [`Gpu::granularity`]. Takes no memory.
    pub fn reserve(gpu: &Gpu, len: Bytes) -> Result<Arc<VaRange>, CudaError> {
        gpu.bind()?;
        let mut address = 0;
        // SAFETY: `address` is writable for the call. Dropping frees the reservation once.
        check("cuMemAddressReserve", unsafe { sys::cuMemAddressReserve(&mut address, len.index(), 0, 0, 0) })?;
        Ok(Arc::new(VaRange { address: DevicePtr(address), len, gpu: gpu.clone() }))
    }

    /// Where it starts.
    pub fn address(&self) -> DevicePtr {
        self.address
    }

    /// Its length.
    pub fn len(&self) -> Bytes {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == Bytes::ZERO
    }
}

impl Drop for VaRange {
    fn drop(&mut self) {
        // SAFETY: reserved once, freed once here; every mapping in it holds it, so none is left.
        let free = || check("cuMemAddressFree", unsafe { sys::cuMemAddressFree(self.address.0, self.len.index()) });
        leaks::count(self.gpu.bind().and_then(|()| free()));
    }
}

impl Mapping {
    /// Maps all of `memory` at `offset` of `range`, a multiple of [`Gpu::granularity`], where nothing is mapped yet.
    pub fn map(
        range: &Arc<VaRange>,
        offset: Bytes,
        memory: Arc<PhysAlloc>,
        access: Access,
    ) -> Result<Mapping, CudaError> {
        let len = memory.len();
        check_place(range.len, offset.0, len.0)?;
        range.gpu.bind()?;
        let address = range.address.offset(offset.0);
        // SAFETY: the place lies in a reservation of ours, the handle is alive. The driver refuses a place that is
        // taken and a length that the memory does not have.
        check("cuMemMap", unsafe { sys::cuMemMap(address.0, len.index(), 0, memory.raw(), 0) })?;
        let mapping = Mapping { offset, is_mapped: true, memory, range: range.clone() };
        let descriptor = access_for(mapping.memory.gpu(), access);
        // SAFETY: `descriptor` is readable for the call; the place has just been mapped whole.
        check("cuMemSetAccess", unsafe { sys::cuMemSetAccess(address.0, len.index(), &descriptor, 1) })?;
        Ok(mapping)
    }

    /// [`Mapping::map`] at addresses of its own.
    pub fn alone(memory: Arc<PhysAlloc>, access: Access) -> Result<Mapping, CudaError> {
        let range = VaRange::reserve(memory.gpu(), memory.len())?;
        Mapping::map(&range, Bytes::ZERO, memory, access)
    }

    /// The memory behind it.
    pub fn memory(&self) -> &Arc<PhysAlloc> {
        &self.memory
    }

    /// Unmaps, or gives the mapping back with the reason why it is still there. No kernel may be using it.
    pub fn unmap(mut self) -> Result<(), (Mapping, CudaError)> {
        match self.try_unmap() {
            Ok(()) => Ok(()),
            Err(error) => Err((self, error)),
        }
    }

    /// Copies bytes in, for memory mapped to be written. Blocks.
    pub fn upload(&self, offset: u64, bytes: &[u8]) -> Result<(), CudaError> {
        check_place(self.len(), offset, bytes.len() as u64)?;
        // SAFETY: the place was checked, and the mapping is alive. Without write access the driver refuses.
        unsafe { copy::upload(&self.range.gpu, self.address().offset(offset), bytes) }
    }

    fn try_unmap(&mut self) -> Result<(), CudaError> {
        if self.is_mapped {
            self.range.gpu.bind()?;
            let (address, len) = (self.address(), self.len());
            // SAFETY: exactly what `map` mapped, once: `is_mapped` says that it is still there.
            check("cuMemUnmap", unsafe { sys::cuMemUnmap(address.0, len.index()) })?;
            self.is_mapped = false;
        }
        Ok(())
    }
}

impl DeviceMemory for Mapping {
    fn address(&self) -> DevicePtr {
        self.range.address.offset(self.offset.0)
    }

    fn len(&self) -> Bytes {
        self.memory.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), MemoryError> {
        let device = |error| MemoryError::Device(Box::new(error));
        check_place(self.len(), offset, out.len() as u64).map_err(device)?;
        // SAFETY: the place was checked, and the mapping is alive and readable.
        unsafe { copy::download(&self.range.gpu, self.address().offset(offset), out) }.map_err(device)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let unmapped = self.try_unmap();
        if unmapped.is_err() {
            // It is still mapped: neither the memory nor the addresses may be given back.
            mem::forget((self.memory.clone(), self.range.clone()));
        }
        leaks::count(unmapped);
    }
}

fn access_for(gpu: &Gpu, access: Access) -> CUmemAccessDesc {
    let flags = match access {
        Access::ReadOnly => Flags::CU_MEM_ACCESS_FLAGS_PROT_READ,
        Access::ReadWrite => Flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    let location = CUmemLocation { type_: CUmemLocationType_enum::CU_MEM_LOCATION_TYPE_DEVICE, id: gpu.device() };
    CUmemAccessDesc { location, flags }
}
