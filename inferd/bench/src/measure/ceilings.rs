//! What the machine can do at best, and how much of it a rate is.

use crate::error::BenchError;
use ds4_boot::ComputeDevice;
use ds4_kernels::ceilings::{self, Ceilings};
use ds4_model::TokenWork;

/// Measures the device that the model computes on.
pub(crate) fn measure(device: &ComputeDevice) -> Result<Ceilings, BenchError> {
    match device {
        ComputeDevice::Cpu => Ok(ceilings::of_host()),
        #[cfg(feature = "cuda")]
        ComputeDevice::Gpu(gpu) => {
            ds4_kernels::cuda::ceilings(gpu).map_err(|error| BenchError::Ceilings(error.to_string()))
        }
    }
}

/// The device, for a reader.
pub(crate) fn name(device: &ComputeDevice) -> String {
    match device {
        ComputeDevice::Cpu => "the CPU".into(),
        #[cfg(feature = "cuda")]
        ComputeDevice::Gpu(gpu) => format!("{}, driver {}", gpu.name(), gpu.driver_version()),
    }
}

/// Makes shares of rates, where ceilings were measured and the model says what a token takes.
pub(crate) struct Shares {
    pub(crate) ceilings: Option<Ceilings>,
    pub(crate) work: Option<TokenWork>,
}

impl Shares {
    /// The products of so many tokens a second as a share of the fastest ones.
    pub(crate) fn of_products(&self, rate: f64) -> Option<f64> {
        Some(rate * self.work?.operations as f64 / self.ceilings?.operations)
    }

    /// The weights of so many tokens a second, read once for each step of `rows` of them, as a share of the fastest
    /// reading.
    pub(crate) fn of_reading(&self, rate: f64, rows: u32) -> Option<f64> {
        Some(rate / f64::from(rows) * self.work?.weights_of_step(rows) / self.ceilings?.read)
    }

    /// Says what was measured.
    pub(crate) fn print(&self) {
        if let Some(Ceilings { read, copied, operations }) = self.ceilings {
            let (read, copied, operations) = (read / 1e9, copied / 1e9, operations / 1e9);
            eprintln!(
                "ds4-bench: at best {read:.1} GB/s read, {copied:.1} GB/s copied, {operations:.0} GFLOP/s of products"
            );
        }
        if let Some(TokenWork { weights, operations, .. }) = self.work {
            let operations = operations as f64 / 1e9;
            eprintln!("ds4-bench: a token reads {weights} of weights and takes {operations:.2} GFLOP");
        }
    }
}
