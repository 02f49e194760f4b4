//! Everything of module `cuda` on a real device. These need a GPU; where there is none only compiling them is a test.

mod buffers;
mod driver;
mod sharing;
mod weights;

use ds4_gpu::cuda::Gpu;

/// The table of kernels names its type by the path it has in the crate.
mod cuda {
    pub(crate) use ds4_gpu::cuda::Cubin;
}

/// The crate's own kernels.
const CUBINS: &[ds4_gpu::cuda::Cubin] = include!(concat!(env!("OUT_DIR"), "/cubins.rs"));

fn gpu() -> Gpu {
    Gpu::open(0).expect("these tests need a GPU")
}
