//! Everything of module `cuda` on a real device. These need a GPU; where there is none only compiling them is a test.

mod buffers;
mod driver;
mod sharing;
mod weights;

use ds4_gpu::cuda::Gpu;

fn gpu() -> Gpu {
    Gpu::open(0).expect("these tests need a GPU")
}
