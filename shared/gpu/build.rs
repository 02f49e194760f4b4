//! Compiles `cu/` when feature `cuda` is on.

fn main() {
    ds4_nvcc::compile("cu", "crate::cuda::Cubin");
}
