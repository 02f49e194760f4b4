//! Root-mean-square normalisation.

use crate::kit::{assert_close, cpu, cuda, down, rows, up};
use ds4_kernels::Backend;

#[test]
fn rows_are_normalised_as_on_the_cpu() {
    let cuda = cuda();
    for (len, width) in [(1, 64), (3, 100), (130, 512), (2, 1024), (5, 4096), (2, 7168)] {
        let input = rows(1, len, width);
        let weight = rows(2, 1, width).into_values();
        let mut want = input.clone();
        cpu().normalize(&mut want, &weight, 1e-6);
        let mut got = up(&cuda, &input);
        cuda.normalize(&mut got, &cuda.vector(weight).unwrap(), 1e-6);
        assert_close(&format!("normalize {len} x {width}"), &down(&cuda, got), &want, 1e-6);
    }
}

#[test]
fn heads_are_normalised_as_on_the_cpu() {
    let cuda = cuda();
    for (len, heads, width) in [(1, 64, 512), (3, 5, 128), (130, 4, 192), (7, 128, 512)] {
        let input = rows(3, len, heads * width);
        let mut want = input.clone();
        cpu().normalize_heads(&mut want, width, 1e-6);
        let mut got = up(&cuda, &input);
        cuda.normalize_heads(&mut got, width, 1e-6);
        assert_close(&format!("normalize_heads {len} x {heads} x {width}"), &down(&cuda, got), &want, 1e-6);
    }
}
