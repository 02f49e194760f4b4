//! Products against the CPU's, and against themselves in other company.

use crate::data::{assert_same_bits, distance, matrix, part, rows};
use crate::kit::{TestCuda, cpu, cuda};
use ds4_kernels::reference::blocks::SUPPORTED;
use ds4_kernels::{Backend, Rows};
use ds4_units::TensorType;

/// Of the largest value. Few rows, a small matrix or one of half floats: both sides sum in f32, in other orders and on the
/// units without rounding to nearest, or multiply in 16 bits of fixed point. Many rows and a large matrix otherwise:
/// activations and weights are rounded to half floats.
pub(crate) fn bound(kind: TensorType, batch: usize, elements: usize) -> f32 {
    if batch > FEW && elements > SMALL && kind != TensorType::F16 { 1e-3 } else { 5e-5 }
}

/// Rows, and elements of a matrix, that are multiplied as precisely as on the CPU.
pub(crate) const FEW: usize = 32;
const SMALL: usize = 1 << 20;

fn check(cuda: &TestCuda, kind: TensorType, outputs: usize, columns: usize, parts: usize, batch: usize) -> f32 {
    let stored = matrix(kind, [1, outputs, columns], (outputs + columns) as u64);
    let input = rows(batch, parts * columns, batch as u64);
    let want = cpu().multiply_groups(&cpu().matrix(stored.clone()).expect("takes it"), parts, &input);
    let got =
        cuda.multiply_groups(&cuda.matrix(stored).expect("takes it"), parts, &cuda.upload(&input).expect("takes it"));
    let error = distance(&cuda.download(got).expect("computes"), &want);
    assert!(
        error < bound(kind, batch, outputs * columns),
        "{kind} {outputs}x{columns} in {parts} parts, {batch} rows: off by {error:e}"
    );
    error
}

#[test]
fn products_of_every_type_and_odd_shape_are_those_of_the_cpu() {
    let cuda = cuda();
    for kind in SUPPORTED {
        let block = kind.block_len() as usize;
        for (outputs, columns) in [(1, 1), (5, 2), (16, 3), (37, 7), (129, 9)] {
            // Types without blocks: any width, of whole 16-byte loads and not.
            let columns = if block == 1 { 13 * columns } else { block * columns };
            let worst = [1, 3, 8, 9, 31, 33, 70].map(|batch| check(&cuda, kind, outputs, columns, 1, batch));
            println!("{kind} {outputs}x{columns}: {:.1e}", worst.into_iter().fold(0.0, f32::max));
        }
        for columns in [8, 24, 40, 264, 1000].into_iter().filter(|_| block == 1) {
            for batch in [1, 16, 65] {
                check(&cuda, kind, 20, columns, 1, batch);
            }
        }
    }
}

#[test]
fn products_under_a_sanitizer() {
    let cuda = cuda();
    for kind in SUPPORTED {
        for batch in [1, 9, 70] {
            check(&cuda, kind, 40, 512, 1, batch);
        }
    }
    // Rows that do not fill 16-byte loads.
    check(&cuda, TensorType::F16, 40, 36, 1, 9);
    // Few and some rows of matrices that are not small, whole and in parts; many in tiles of every width.
    for batch in [3, 7, 12, 20] {
        check(&cuda, TensorType::Q8_0, 1040, 1280, 1, batch);
        check(&cuda, TensorType::Q8_0, 896, 1280, 2, batch);
        check(&cuda, TensorType::F16, 96, 512, 1, batch);
    }
    for (kind, batch) in
        [(TensorType::Q8_0, 40), (TensorType::Q8_0, 600), (TensorType::Q8_0, 1000), (TensorType::F16, 600)]
    {
        check(&cuda, kind, 2100, 512, 1, batch);
    }
}

#[test]
fn products_of_the_published_models_shapes_are_those_of_the_cpu() {
    let cuda = cuda();
    let q8 = [(1024, 4096), (512, 4096), (4096, 8192), (2048, 4096), (1536, 7168), (7168, 3072)];
    let f16 = [(256, 4096), (64, 4096), (24, 16384), (4, 28672), (1024, 4096)];
    for (kind, shapes) in [(TensorType::Q8_0, &q8[..]), (TensorType::F16, &f16[..])] {
        for &(outputs, columns) in shapes {
            let worst = [1, 8, 16, 32, 130].map(|batch| check(&cuda, kind, outputs, columns, 1, batch));
            println!("{kind} {outputs}x{columns}: {:.1e}", worst.into_iter().fold(0.0, f32::max));
        }
    }
    for batch in [1, 4, 20, 100] {
        check(&cuda, TensorType::Q8_0, 8 * 1024, 4096, 8, batch);
    }
}

#[test]
fn large_matrices_of_odd_shapes_are_those_of_the_cpu() {
    let cuda = cuda();
    for kind in [TensorType::Q8_0, TensorType::F16, TensorType::Q2_K, TensorType::Q4_K, TensorType::IQ2_XXS] {
        let columns = if kind.block_len() > 32 { 1280 } else { 1312 };
        let worst = [33, 64, 70, 150].map(|batch| check(&cuda, kind, 1037, columns, 1, batch));
        println!("{kind} 1037x{columns}: {:.1e}", worst.into_iter().fold(0.0, f32::max));
    }
    for kind in [TensorType::Q8_0, TensorType::F16] {
        for batch in [40, 100] {
            check(&cuda, kind, 3 * 420, 992, 3, batch);
        }
    }
}

#[test]
fn parts_that_begin_inside_a_panel_are_kept_apart() {
    let cuda = cuda();
    for kind in [TensorType::Q8_0, TensorType::F16, TensorType::F32] {
        for batch in [1, 12, 40, 100] {
            check(&cuda, kind, 3 * 20, 96, 3, batch);
            check(&cuda, kind, 2 * 8, 32, 2, batch);
        }
    }
}

#[test]
fn a_row_gives_the_same_bits_alone_and_in_any_company() {
    let cuda = cuda();
    for kind in SUPPORTED {
        let stored = cuda.matrix(matrix(kind, [1, 1200, 1536], 9)).expect("takes it");
        let input = rows(150, 1536, 4);
        let multiply = |input: &Rows| {
            cuda.download(cuda.multiply(&stored, &cuda.upload(input).expect("takes it"))).expect("computes")
        };
        // Some rows and many are two kinds of kernels: a row's result is the same in every step of one kind.
        let few = multiply(&part(&input, 0, FEW));
        for (first, len) in [(0, 9), (10, 13), (1, 30)] {
            assert_same_bits(&multiply(&part(&input, first, len)), &part(&few, first, len), &format!("{kind} {len}"));
        }
        let all = multiply(&input);
        for (first, len) in [(0, 33), (60, 40), (7, 64), (2, 120)] {
            assert_same_bits(&multiply(&part(&input, first, len)), &part(&all, first, len), &format!("{kind} {len}"));
        }
        // Few rows have kernels of their own: the same bits among themselves.
        for (first, len) in [(0, 1), (149, 1), (3, 2), (3, 5), (3, 8)] {
            let together = multiply(&part(&input, first, len));
            for row in 0..len {
                let alone = multiply(&part(&input, first + row, 1));
                assert_same_bits(&alone, &part(&together, row, 1), &format!("{kind}, one of {len}"));
            }
            let off = distance(&together, &part(&all, first, len));
            assert!(off < bound(kind, all.len(), 1200 * 1536), "{kind}: {len} rows and many are {off:e} apart");
        }
    }
}

#[test]
fn rows_of_any_size_keep_their_precision() {
    let cuda = cuda();
    let kinds = [TensorType::Q8_0, TensorType::Q2_K, TensorType::F16];
    for (kind, batch, outputs) in kinds.into_iter().flat_map(|kind| [(kind, 6, 40), (kind, 48, 2100)]) {
        let stored = matrix(kind, [1, outputs, 512], 5);
        let mut input = rows(batch, 512, 6);
        for (row, size) in [1e-30f32, 1e-9, 1.0, 1e3, 1e6, 1e30].into_iter().cycle().take(batch).enumerate() {
            input.row_mut(row).iter_mut().for_each(|value| *value *= size);
        }
        // One outlier per row, and the rest a thousandth of it.
        (0..batch).for_each(|row| input.row_mut(row)[row] *= 1000.0);
        let want = cpu().multiply(&cpu().matrix(stored.clone()).expect("takes it"), &input);
        let got = cuda.multiply(&cuda.matrix(stored).expect("takes it"), &cuda.upload(&input).expect("takes it"));
        let got = cuda.download(got).expect("computes");
        for row in 0..batch {
            let error = distance(&part(&got, row, 1), &part(&want, row, 1));
            assert!(error < bound(kind, batch, outputs * 512), "{kind} row {row}: off by {error:e}");
        }
    }
    let zeros = cuda.upload(&Rows::zeros(2, 512)).expect("takes it");
    let got = cuda.multiply(&cuda.matrix(matrix(TensorType::Q4_K, [1, 40, 512], 5)).expect("takes it"), &zeros);
    assert!(cuda.download(got).expect("computes").values().iter().all(|&value| value == 0.0));
}
