//! Dot products: the one place where the CPU backend multiplies and adds along a row.
//!
//! Every product of two rows is summed in sixteen lanes, lane `i` taking the elements at `i`, `i + 16`, `i + 32` and so
//! on, and the lanes are then added pairwise. That order does not depend on how many rows are multiplied at once, so
//! one row and many rows give the same bits.

use wide::f32x8;

/// Lanes of a dot product.
const LANES: usize = 16;

/// `a * b + sum`, fused where the target does that in one instruction. (Elsewhere the library function would be far
/// slower than rounding twice.)
#[inline(always)]
pub(crate) fn multiply_add(a: f32, b: f32, sum: f32) -> f32 {
    if cfg!(any(target_feature = "fma", target_arch = "aarch64")) { a.mul_add(b, sum) } else { a * b + sum }
}

/// All products of the `left` rows, each `width` long, with the `right` rows: `out[l * right.len() + r]`.
pub(crate) fn dot_rows(left: &[f32], right: &[&[f32]], width: usize, out: &mut [f32]) {
    let mut lefts = left.chunks_exact(width).zip(out.chunks_exact_mut(right.len()));
    while let Some((first, first_out)) = lefts.next() {
        match lefts.next() {
            Some((second, second_out)) => sweep([first, second], right, [first_out, second_out]),
            None => sweep([first], right, [first_out]),
        }
    }
}

/// Multiplies `L` rows with every right row, three right rows at a time: twelve accumulators fill the registers.
fn sweep<const L: usize>(left: [&[f32]; L], right: &[&[f32]], mut out: [&mut [f32]; L]) {
    let (threes, rest) = right.as_chunks::<3>();
    let mut at = 0;
    for &rows in threes {
        store(tile(left, rows), &mut out, at);
        at += 3;
    }
    match *rest {
        [a, b] => store(tile(left, [a, b]), &mut out, at),
        [a] => store(tile(left, [a]), &mut out, at),
        _ => {}
    }
}

fn store<const L: usize, const R: usize>(products: [[f32; R]; L], out: &mut [&mut [f32]; L], at: usize) {
    for (products, out) in products.iter().zip(out) {
        out[at..at + R].copy_from_slice(products);
    }
}

/// The products of `L` rows with `R` rows.
#[inline(always)]
fn tile<const L: usize, const R: usize>(left: [&[f32]; L], right: [&[f32]; R]) -> [[f32; R]; L] {
    let left = left.map(|row| row.as_chunks::<LANES>());
    let right = right.map(|row| row.as_chunks::<LANES>());
    let mut sums = [[[f32x8::ZERO; 2]; R]; L];
    for chunk in 0..left[0].0.len() {
        let a = left.map(|(chunks, _)| load(&chunks[chunk]));
        let b = right.map(|(chunks, _)| load(&chunks[chunk]));
        add_products(&mut sums, &a, &b);
    }
    if !left[0].1.is_empty() {
        let a = left.map(|(_, tail)| load(&padded(tail)));
        let b = right.map(|(_, tail)| load(&padded(tail)));
        add_products(&mut sums, &a, &b);
    }
    sums.map(|row| row.map(add_lanes))
}

#[inline(always)]
fn add_products<const L: usize, const R: usize>(
    sums: &mut [[[f32x8; 2]; R]; L],
    left: &[[f32x8; 2]; L],
    right: &[[f32x8; 2]; R],
) {
    for (sums, a) in sums.iter_mut().zip(left) {
        for (sum, b) in sums.iter_mut().zip(right) {
            *sum = [a[0].mul_add(b[0], sum[0]), a[1].mul_add(b[1], sum[1])];
        }
    }
}

#[inline(always)]
fn load(lanes: &[f32; LANES]) -> [f32x8; 2] {
    let [low, high] = lanes.as_chunks::<8>().0 else { unreachable!("sixteen lanes are two vectors") };
    [f32x8::new(*low), f32x8::new(*high)]
}

fn padded(tail: &[f32]) -> [f32; LANES] {
    let mut lanes = [0.0; LANES];
    lanes[..tail.len()].copy_from_slice(tail);
    lanes
}

#[inline(always)]
fn add_lanes([low, high]: [f32x8; 2]) -> f32 {
    let eight = (low + high).to_array();
    let four: [f32; 4] = std::array::from_fn(|i| eight[i] + eight[i + 4]);
    (four[0] + four[2]) + (four[1] + four[3])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn many_rows_give_the_bits_of_one_row(
            width in 1usize..70,
            (lefts, rights) in (1usize..6, 1usize..9),
            seed in any::<u32>(),
        ) {
            let value = |i: usize| ((i as u32).wrapping_mul(2_654_435_761).wrapping_add(seed) % 2001) as f32 / 1000.0 - 1.0;
            let left: Vec<f32> = (0..lefts * width).map(value).collect();
            let right: Vec<f32> = (0..rights * width).map(|i| value(i + 7919)).collect();
            let right: Vec<&[f32]> = right.chunks_exact(width).collect();
            let mut all = vec![0.0; lefts * rights];
            dot_rows(&left, &right, width, &mut all);
            for l in 0..lefts {
                for r in 0..rights {
                    let (a, b) = (&left[l * width..][..width], right[r]);
                    let mut one = [0.0];
                    dot_rows(a, &[b], width, &mut one);
                    prop_assert_eq!(one[0].to_bits(), all[l * rights + r].to_bits());
                    let exact: f64 = a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum();
                    prop_assert!((exact - f64::from(one[0])).abs() < 1e-4);
                }
            }
        }
    }
}
