//! What a GPU does at best.

use ds4_gpu::cuda::Gpu;
use ds4_kernels::cuda::ceilings;

#[test]
fn a_gpu_reads_faster_than_it_copies_and_multiplies_faster_than_it_reads() {
    let ceilings = ceilings(&Gpu::open(0).expect("these tests need a GPU")).expect("kernels for this GPU");
    println!("{ceilings:?}");
    assert!(ceilings.copied > 1e10 && ceilings.read > ceilings.copied, "{ceilings:?}");
    assert!(ceilings.operations > 10.0 * ceilings.read, "{ceilings:?}");
}
