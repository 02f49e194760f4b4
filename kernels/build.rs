//! Compiles the CUDA kernels when the crate is built with them.

fn main() {
    ds4_nvcc::compile("cu", "ds4_gpu::cuda::Cubin");
}
