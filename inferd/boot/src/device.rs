//! Where the model computes: where its weights are, or where they can be best.

use crate::{BootError, DeviceChoice, ModelArgs};
use ds4_import::ComputeDevice;
use ds4_manifest::WeightsManifest;

#[cfg(feature = "cuda")]
pub use ds4_gpu::cuda::leaked_handles;
#[cfg(feature = "cuda")]
use ds4_gpu::cuda::{CudaError, Gpu};
#[cfg(feature = "cuda")]
use tracing::info;

/// The device that the flags ask for. When they leave it open, an owner's weights decide, and without an owner a GPU is
/// taken where there is one.
pub(crate) fn choose(args: &ModelArgs, owner: Option<&WeightsManifest>) -> Result<ComputeDevice, BootError> {
    let device = match (args.device, owner) {
        (DeviceChoice::Cpu, _) => ComputeDevice::Cpu,
        (DeviceChoice::Gpu(number), _) => numbered(number)?,
        (DeviceChoice::Auto, Some(held)) => match &held.device.uuid {
            Some(uuid) => with_uuid(uuid, &held.device.name)?,
            None => ComputeDevice::Cpu,
        },
        (DeviceChoice::Auto, None) => best()?,
    };
    tell(&device);
    ds4_families::check_device(&device)?;
    Ok(device)
}

/// Has the driver start, which takes it a tenth of a second, unless everything is on the CPU. Blocks for so long. What is
/// wrong with it is told when a device is chosen.
pub fn start_driver(args: &ModelArgs) {
    #[cfg(feature = "cuda")]
    if args.device != DeviceChoice::Cpu {
        let _ = Gpu::count();
    }
    #[cfg(not(feature = "cuda"))]
    let _ = args;
}

/// How many handles of this process a GPU's driver did not take back so far: none where there is no GPU.
#[cfg(not(feature = "cuda"))]
pub fn leaked_handles() -> u64 {
    0
}

#[cfg(feature = "cuda")]
fn numbered(number: u32) -> Result<ComputeDevice, BootError> {
    Ok(ComputeDevice::Gpu(Gpu::open(number as usize).map_err(refused)?))
}

#[cfg(feature = "cuda")]
fn with_uuid(uuid: &str, name: &str) -> Result<ComputeDevice, BootError> {
    let mut there = Vec::new();
    for number in 0..Gpu::count().map_err(refused)? {
        let gpu = Gpu::open(number).map_err(refused)?;
        if gpu.uuid().eq_ignore_ascii_case(uuid) {
            return Ok(ComputeDevice::Gpu(gpu));
        }
        there.push(gpu.uuid().to_owned());
    }
    let there = there.join(" ");
    Err(BootError::Device {
        problem: format!(
            "the owner's weights are on {name} ({uuid}); this process sees {there} (CUDA_VISIBLE_DEVICES may hide some)"
        ),
    })
}

/// The first GPU; the CPU on a machine without one. A GPU that is there and cannot be used is told: nobody wants to find
/// out from its speed.
#[cfg(feature = "cuda")]
fn best() -> Result<ComputeDevice, BootError> {
    match Gpu::count() {
        Err(CudaError::NoDriver) | Ok(0) => Ok(ComputeDevice::Cpu),
        Err(CudaError::Call { name, .. }) if name == "CUDA_ERROR_NO_DEVICE" => Ok(ComputeDevice::Cpu),
        Err(error) => Err(refused(error)),
        Ok(_) => numbered(0),
    }
}

#[cfg(feature = "cuda")]
fn tell(device: &ComputeDevice) {
    if let ComputeDevice::Gpu(gpu) = device {
        let (major, minor) = gpu.compute_capability();
        let free = gpu.memory().map(|memory| memory.free.to_string()).unwrap_or_default();
        info!(name = gpu.name(), uuid = gpu.uuid(), arch = format!("sm_{major}{minor}"), free, "computing on a GPU");
    }
}

#[cfg(feature = "cuda")]
fn refused(error: CudaError) -> BootError {
    BootError::Device { problem: format!("{error}. To compute on the CPU: --device cpu") }
}

#[cfg(not(feature = "cuda"))]
fn numbered(number: u32) -> Result<ComputeDevice, BootError> {
    Err(BootError::Device {
        problem: format!("--device {number}: this program is built without GPUs; build it with --features cuda"),
    })
}

#[cfg(not(feature = "cuda"))]
fn with_uuid(uuid: &str, name: &str) -> Result<ComputeDevice, BootError> {
    Err(BootError::Device {
        problem: format!(
            "the owner's weights are on {name} ({uuid}), and this program is built without GPUs: build it with \
             --features cuda, or start the owner with --backend memfd"
        ),
    })
}

#[cfg(not(feature = "cuda"))]
fn best() -> Result<ComputeDevice, BootError> {
    Ok(ComputeDevice::Cpu)
}

#[cfg(not(feature = "cuda"))]
fn tell(_device: &ComputeDevice) {}
