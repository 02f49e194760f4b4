//! What can go wrong with a CUDA device.

use ds4_units::Bytes;
use thiserror::Error;

/// The oldest driver that runs what is built here, as the driver spells it (13.0).
pub(crate) const DRIVER_MIN: i32 = 13_000;

/// How programs with kernels are built, as the README says it too.
const BUILD: &str = "cargo build --release -p ds4-weightd -p ds4-server -p ds4 --features \
                     ds4-weightd/cuda,ds4-server/cuda,ds4/cuda";

/// Why something could not be done with a CUDA device.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CudaError {
    /// The driver's library cannot be loaded.
    #[error("there is no NVIDIA driver: libcuda.so.1 cannot be loaded. Install driver 580 or later")]
    NoDriver,
    /// The library that notes when kernels run cannot be loaded.
    #[error(
        "there is no profiling library: libcupti.so.13 cannot be loaded. It is in the CUDA toolkit's extras/CUPTI/lib64, or \
         in the wheel nvidia-cuda-cupti: name its folder in LD_LIBRARY_PATH"
    )]
    NoProfiler,
    /// The driver is too old for the kernels in this program.
    #[error("the NVIDIA driver speaks CUDA {}, this program needs {}: install driver 580 or later", spelled(*have), spelled(DRIVER_MIN))]
    DriverTooOld {
        /// What it speaks, as 1000 times major plus 10 times minor.
        have: i32,
    },
    /// No device has that number.
    #[error("there is no GPU {ordinal}: the driver shows {count} (CUDA_VISIBLE_DEVICES may hide some)")]
    NoDevice {
        /// The number asked for.
        ordinal: usize,
        /// How many there are.
        count: usize,
    },
    /// The device cannot share memory with other processes.
    #[error("{device} does not support {what}, which sharing weights needs: hold them with --backend memfd")]
    Unsupported {
        /// The device.
        device: String,
        /// The driver's name of what is missing.
        what: &'static str,
    },
    /// Nothing was built for this device.
    #[error(
        "{device} needs kernels for {arch}, and this program has some for {built} only. To have them for it as well, add it \
         to ARCHITECTURES in shared/nvcc/src/lib.rs, run scripts/cuda-toolkit, and build again: {BUILD}"
    )]
    NoCubin {
        /// The device.
        device: String,
        /// Its architecture.
        arch: String,
        /// What there is.
        built: String,
    },
    /// Something has no such name.
    #[error("the module has no function or variable {name:?}")]
    NoSymbol {
        /// The name.
        name: String,
    },
    /// A kernel was given other arguments than it has.
    #[error("kernel {kernel} takes arguments of {takes:?} bytes and was given {given:?}")]
    Arguments {
        /// The kernel.
        kernel: String,
        /// Sizes of its parameters.
        takes: Vec<usize>,
        /// Sizes of what it was given.
        given: Vec<usize>,
    },
    /// A copy or mapping that reaches beyond the end.
    #[error("{count} bytes at {offset} do not fit memory of {} bytes", len.0)]
    PastEnd {
        /// Length of the memory.
        len: Bytes,
        /// Where it was to start.
        offset: u64,
        /// How much it was.
        count: u64,
    },
    /// Bytes that are not where kernels can read them fast.
    #[error("byte {start} of a tensor at {offset}: both must be multiples of 16")]
    Unaligned {
        /// Where the tensor starts in its memory.
        offset: u64,
        /// The byte in the tensor.
        start: u64,
    },
    /// Imported memory is on another device.
    #[error("the imported memory is on GPU {found}, this process uses GPU {wanted}")]
    OtherDevice {
        /// Number of the device it is on.
        found: i32,
        /// Number of the device in use.
        wanted: i32,
    },
    /// The driver refused.
    #[error("{call}: {name} ({code})")]
    Call {
        /// The driver's function.
        call: &'static str,
        /// The driver's name of the error.
        name: String,
        /// Its number.
        code: u32,
    },
}

impl CudaError {
    /// Whether the device has too little memory.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, CudaError::Call { name, .. } if name == "CUDA_ERROR_OUT_OF_MEMORY")
    }

    /// Whether a kernel touched memory that it must not. Everything of this process on the device is lost with it.
    pub fn is_fault(&self) -> bool {
        matches!(self, CudaError::Call { name, .. } if name == "CUDA_ERROR_ILLEGAL_ADDRESS")
    }
}

fn spelled(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_driver_is_told_what_to_install() {
        let text = CudaError::DriverTooOld { have: 12_040 }.to_string();
        assert_eq!(text, "the NVIDIA driver speaks CUDA 12.4, this program needs 13.0: install driver 580 or later");
    }
}
