//! How fast this backend's products are when nothing has to come from memory.

use super::dot::dot_rows;
use rayon::prelude::*;
use std::hint::black_box;
use std::time::Instant;

/// Rows that stay in the first cache.
const WIDTH: usize = 512;
const ROWS: usize = 6;
/// Products of one thread in one go: some hundredth of a second.
const ROUNDS: usize = 20_000;

/// Multiplications and additions a second of all threads; the fastest of some repetitions.
pub(crate) fn fastest_product(repeats: usize) -> f64 {
    let rows = vec![0.5f32; ROWS * WIDTH];
    let right: Vec<&[f32]> = rows.chunks_exact(WIDTH).collect();
    let threads = rayon::current_num_threads();
    let operations = (threads * ROUNDS * ROWS * ROWS * WIDTH * 2) as f64;
    let rate = |_| {
        let began = Instant::now();
        (0..threads).into_par_iter().with_max_len(1).for_each(|_| {
            let mut out = [0.0; ROWS * ROWS];
            for _ in 0..ROUNDS {
                dot_rows(black_box(&rows), black_box(&right), WIDTH, &mut out);
            }
            black_box(out);
        });
        operations / began.elapsed().as_secs_f64()
    };
    (0..repeats).map(rate).fold(0.0, f64::max)
}
