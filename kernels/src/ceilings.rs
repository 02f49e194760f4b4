//! What a machine can do at best: the figures that others are shares of.

use crate::reference::fastest_product;
use rayon::prelude::*;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ceilings {
    /// Bytes a second that are read.
    pub read: f64,
    /// Bytes a second that are copied; each of them is read and written.
    pub copied: f64,
    /// Multiplications and additions a second of the fastest products: of bf16 numbers on a GPU's matrix units, of `f32`
    /// numbers on a CPU.
    pub operations: f64,
}

/// Several times any cache.
const HOST_BYTES: usize = 512 << 20;
/// Repetitions; the fastest counts.
const REPEATS: usize = 5;

/// The CPU's, with all threads. Takes a second and a gigabyte.
pub fn of_host() -> Ceilings {
    let from = vec![1u64; HOST_BYTES / 8];
    let mut to = vec![0u64; HOST_BYTES / 8];
    let piece = from.len() / (8 * rayon::current_num_threads());
    let read = fastest(|| {
        let sum = |part: &[u64]| part.iter().fold(0u64, |sum, &value| sum.wrapping_add(value));
        black_box(from.par_chunks(piece).map(sum).reduce(|| 0, u64::wrapping_add));
    });
    let copy = fastest(|| {
        let pairs = to.par_chunks_mut(piece).zip(from.par_chunks(piece));
        pairs.for_each(|(to, from)| to.copy_from_slice(from));
        black_box(&mut to);
    });
    let rate = |took: Duration| HOST_BYTES as f64 / took.as_secs_f64();
    Ceilings { read: rate(read), copied: rate(copy), operations: fastest_product(REPEATS) }
}

fn fastest(mut work: impl FnMut()) -> Duration {
    // Once unmeasured: pages are not there before they are touched.
    work();
    let time = |_| {
        let began = Instant::now();
        work();
        began.elapsed()
    };
    (0..REPEATS).map(time).min().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_reads_faster_than_it_copies_and_multiplies_faster_than_it_reads() {
        let ceilings = of_host();
        assert!(ceilings.read > 1e8 && ceilings.copied > 1e8 && ceilings.operations > 1e9, "{ceilings:?}");
        assert!(ceilings.operations > ceilings.read, "{ceilings:?}");
    }
}
