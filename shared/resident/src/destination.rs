//! Where weights go, and what follows from it: granularity, layouts, reserves and whose memory is counted.

use crate::memory::{MemoryError, MemorySource, SystemMemory};
use crate::plan::Plan;
use crate::planner::{ArtifactRequest, PlanOptions, TensorTable};
use crate::preflight::{HOST_RESERVE, Preflight, preflight};
use crate::staging::staging_bytes;
use crate::watch::HOST_TRIP_FLOOR;
use ds4_gpu::HostRange;
use ds4_gpu::layout::split_len;
use ds4_units::{Bytes, Layout};

#[cfg(feature = "cuda")]
use crate::memory::DeviceSource;
#[cfg(feature = "cuda")]
use crate::preflight::{preflight_beside_device, preflight_device, preflight_integrated};
#[cfg(feature = "cuda")]
use ds4_gpu::cuda::Gpu;

/// Where weights go.
#[derive(Clone, Debug)]
pub enum Destination {
    /// Host memory.
    Host,
    /// Memory of this device.
    #[cfg(feature = "cuda")]
    Device(Gpu),
}

/// What must stay free on a GPU with memory of its own, beside what a worker needs, unless told otherwise.
#[cfg(feature = "cuda")]
const DEVICE_RESERVE: Bytes = Bytes::gib(4);
/// What must stay free where a GPU shares the host's memory, unless told otherwise.
#[cfg(feature = "cuda")]
const INTEGRATED_RESERVE: Bytes = Bytes::gib(32);
/// What a worker takes beside the weights: an estimate, until a worker says so itself.
#[cfg(feature = "cuda")]
const WORKER_MIN: Bytes = Bytes::gib(4);
/// What must stay available while loading into a GPU with memory of its own.
#[cfg(feature = "cuda")]
const DEVICE_TRIP_FLOOR: Bytes = Bytes::gib(2);
/// What must stay available while loading where a GPU shares the host's memory.
#[cfg(feature = "cuda")]
const INTEGRATED_TRIP_FLOOR: Bytes = Bytes::gib(8);
/// Threads that keep a device's copy engine busy; the copy into pinned memory is the slow side.
#[cfg(feature = "cuda")]
const DEVICE_THREADS_MAX: usize = 16;

impl Destination {
    /// A plan's options: ranges of about `span`, and every layout that the readers of this memory want.
    pub fn plan_options(&self, span: Bytes, tables: &[TensorTable<'_>]) -> PlanOptions {
        let granularity = self.granularity();
        let artifacts = if self.wants_split() { all_split(tables) } else { Vec::new() };
        PlanOptions { span, granularity, artifacts, ..PlanOptions::default() }
    }

    /// Ranges take whole multiples of this.
    pub fn granularity(&self) -> Bytes {
        match self {
            Destination::Host => HostRange::GRANULARITY,
            #[cfg(feature = "cuda")]
            Destination::Device(gpu) => gpu.granularity(),
        }
    }

    /// Whether quantised tensors are stored split there.
    fn wants_split(&self) -> bool {
        !matches!(self, Destination::Host)
    }

    /// What must stay free, unless told otherwise.
    pub fn default_reserve(&self) -> Bytes {
        match self {
            Destination::Host => HOST_RESERVE,
            #[cfg(feature = "cuda")]
            Destination::Device(gpu) if gpu.is_integrated() => INTEGRATED_RESERVE,
            #[cfg(feature = "cuda")]
            Destination::Device(_) => DEVICE_RESERVE,
        }
    }

    /// What a worker needs beside the weights, unless told otherwise.
    pub fn default_worker_min(&self) -> Bytes {
        match self {
            Destination::Host => Bytes::ZERO,
            #[cfg(feature = "cuda")]
            Destination::Device(_) => WORKER_MIN,
        }
    }

    /// What must stay available while loading.
    pub fn trip_floor(&self) -> Bytes {
        match self {
            Destination::Host => HOST_TRIP_FLOOR,
            #[cfg(feature = "cuda")]
            Destination::Device(gpu) if gpu.is_integrated() => INTEGRATED_TRIP_FLOOR,
            #[cfg(feature = "cuda")]
            Destination::Device(_) => DEVICE_TRIP_FLOOR,
        }
    }

    /// Whose memory is watched while loading.
    pub fn memory(&self) -> Box<dyn MemorySource> {
        match self {
            Destination::Host => Box::new(SystemMemory::new()),
            #[cfg(feature = "cuda")]
            Destination::Device(gpu) => Box::new(DeviceSource::new(gpu)),
        }
    }

    /// Threads that read: as many as there are processors, but not more than are of use.
    pub fn threads(&self) -> usize {
        let there = std::thread::available_parallelism().map_or(1, usize::from);
        match self {
            Destination::Host => there.min(8),
            #[cfg(feature = "cuda")]
            Destination::Device(_) => there.min(DEVICE_THREADS_MAX),
        }
    }

    /// A table for every pool of memory that loading draws on: one, or the device's and the host's.
    pub fn preflight(&self, plan: &Plan, reserve: Bytes, worker_min: Bytes) -> Result<Vec<Preflight>, MemoryError> {
        let threads = self.threads();
        let host = SystemMemory::new();
        match self {
            Destination::Host => Ok(vec![preflight(plan, staging_bytes(threads), reserve, worker_min, &host)?]),
            #[cfg(feature = "cuda")]
            Destination::Device(gpu) if gpu.is_integrated() => {
                Ok(vec![preflight_integrated(plan, threads, reserve, worker_min, &DeviceSource::new(gpu))?])
            }
            #[cfg(feature = "cuda")]
            Destination::Device(gpu) => Ok(vec![
                preflight_device(plan, threads, reserve, worker_min, &DeviceSource::new(gpu))?,
                preflight_beside_device(plan, threads, &host)?,
            ]),
        }
    }
}

/// Every tensor of a type that is stored split, to replace what the file has.
pub fn all_split(tables: &[TensorTable<'_>]) -> Vec<ArtifactRequest> {
    let requests = tables.iter().flat_map(|table| {
        table.tensors.iter().filter_map(|info| {
            let (&columns, outer) = info.dims.split_first()?;
            let rows = outer.iter().try_fold(1u64, |rows, &dim| rows.checked_mul(dim))?;
            let len = split_len(info.kind, usize::try_from(rows).ok()?, usize::try_from(columns).ok()?)?;
            let (tensor, layout) = (info.name.clone(), Layout::Split.name().to_owned());
            Some(ArtifactRequest { role: table.role, tensor, layout, len, replaces_raw: true })
        })
    });
    requests.collect()
}
