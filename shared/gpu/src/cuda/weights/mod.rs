//! Putting weights into device memory: ranges that are filled from several threads and then exported, quantised rows
//! cut into tiles on the way, and SHA-256 of what is there.

mod digests;
mod lane;
mod range;
mod shape;

pub use digests::LeafAt;
pub use lane::{Lane, Target};
pub use range::DeviceRange;
pub use shape::SplitShape;

use super::buffer::DeviceBuffer;
use super::cubin::{self, Cubin};
use super::device::Gpu;
use super::error::CudaError;
use super::function::Function;
use std::sync::Arc;

const CUBINS: &[Cubin] = include!(concat!(env!("OUT_DIR"), "/cubins.rs"));

/// The kernels of this room on one device. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct WeightKernels {
    inner: Arc<Kernels>,
}

#[derive(Debug)]
struct Kernels {
    gpu: Gpu,
    split_bytes: Function,
    leaf_digests: Function,
    /// [`shape::tables`] on the device.
    tables: DeviceBuffer,
}

impl WeightKernels {
    /// Loads them. Refuses a device that they were not built for.
    pub fn load(gpu: &Gpu) -> Result<WeightKernels, CudaError> {
        let module = cubin::load(gpu, CUBINS, "weights")?;
        let tables: Vec<u8> = shape::tables().iter().flat_map(|place| place.to_le_bytes()).collect();
        Ok(WeightKernels {
            inner: Arc::new(Kernels {
                gpu: gpu.clone(),
                split_bytes: module.function("split_bytes")?,
                leaf_digests: module.function("leaf_digests")?,
                tables: DeviceBuffer::from_bytes(gpu, &tables)?,
            }),
        })
    }

    /// Their device.
    pub fn gpu(&self) -> &Gpu {
        &self.inner.gpu
    }
}
