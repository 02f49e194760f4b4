//! From the backend asked for to memory that can be filled.

use crate::command::BackendChoice;
#[cfg(feature = "cuda")]
use crate::command::DeviceChoice;
use ds4_manifest::{Device, Need};
use ds4_resident::{Destination, Plan};
use std::collections::BTreeSet;
use thiserror::Error;

#[cfg(feature = "cuda")]
use ds4_gpu::cuda::{CudaError, Gpu};

/// A device that cannot be used.
#[derive(Debug, Error)]
pub enum BackendError {
    /// This program has no CUDA in it.
    #[cfg(not(feature = "cuda"))]
    #[error("this ds4-weightd is built without GPUs: use --backend memfd, or build it with --features cuda")]
    NotBuilt,
    /// No device has that UUID.
    #[cfg(feature = "cuda")]
    #[error("there is no GPU {uuid}: the driver shows {there} (CUDA_VISIBLE_DEVICES may hide some)")]
    NoUuid {
        /// What was asked for.
        uuid: String,
        /// What there is.
        there: String,
    },
    /// The driver or the device refuses.
    #[cfg(feature = "cuda")]
    #[error("{0}. To hold weights in host memory: --backend memfd")]
    Cuda(#[from] CudaError),
}

/// Opens what was asked for. With a GPU the first call takes some 0.2 s.
#[cfg(feature = "cuda")]
pub(crate) fn destination(choice: &BackendChoice) -> Result<Destination, BackendError> {
    match choice {
        BackendChoice::Memfd => Ok(Destination::Host),
        BackendChoice::Vmm(DeviceChoice::Number(number)) => Ok(Destination::Device(Gpu::open(*number as usize)?)),
        BackendChoice::Vmm(DeviceChoice::Uuid(uuid)) => Ok(Destination::Device(by_uuid(uuid)?)),
        // A machine without a driver or without a device computes on its CPU. A device that is there and cannot be
        // used is told: nobody wants to find out from its speed.
        BackendChoice::Best => match Gpu::count() {
            Err(CudaError::NoDriver) | Ok(0) => Ok(Destination::Host),
            Err(CudaError::Call { name, .. }) if name == "CUDA_ERROR_NO_DEVICE" => Ok(Destination::Host),
            Err(error) => Err(error.into()),
            Ok(_) => Ok(Destination::Device(Gpu::open(0)?)),
        },
    }
}

/// The host's memory; there is no other in this program.
#[cfg(not(feature = "cuda"))]
pub(crate) fn destination(choice: &BackendChoice) -> Result<Destination, BackendError> {
    match choice {
        BackendChoice::Memfd | BackendChoice::Best => Ok(Destination::Host),
        BackendChoice::Vmm(_) => Err(BackendError::NotBuilt),
    }
}

#[cfg(feature = "cuda")]
fn by_uuid(uuid: &str) -> Result<Gpu, BackendError> {
    let mut there = Vec::new();
    for number in 0..Gpu::count()? {
        let gpu = Gpu::open(number)?;
        if gpu.uuid().eq_ignore_ascii_case(uuid) {
            return Ok(gpu);
        }
        there.push(gpu.uuid().to_owned());
    }
    Err(BackendError::NoUuid { uuid: uuid.to_owned(), there: there.join(" ") })
}

/// The name in flags and manifests.
pub(crate) fn name(destination: &Destination) -> &'static str {
    match destination {
        Destination::Host => "memfd",
        #[cfg(feature = "cuda")]
        Destination::Device(_) => "vmm",
    }
}

/// What a manifest says of it.
pub(crate) fn described(destination: &Destination) -> Device {
    let granularity = destination.granularity();
    let backend = name(destination).to_owned();
    match destination {
        Destination::Host => Device { backend, name: "host memory".to_owned(), uuid: None, granularity },
        #[cfg(feature = "cuda")]
        Destination::Device(gpu) => {
            Device { backend, name: gpu.name().to_owned(), uuid: Some(gpu.uuid().to_owned()), granularity }
        }
    }
}

/// What a reader of this plan must be able to do. Only GPU memory has layouts beside the file's.
pub(crate) fn needs(plan: &Plan) -> Vec<Need> {
    let layouts: BTreeSet<&str> = plan.artifacts.iter().map(|artifact| artifact.layout.as_str()).collect();
    let need = |layout: &str| Need { capability: layout.to_owned(), avoid_with: "--backend memfd".to_owned() };
    layouts.into_iter().map(need).collect()
}
