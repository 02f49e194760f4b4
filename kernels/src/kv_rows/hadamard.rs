//! The Walsh-Hadamard transform in natural (Sylvester) order, scaled to keep lengths.

/// Transforms a power-of-two number of values in place.
pub(super) fn transform(values: &mut [f32]) {
    let len = values.len();
    debug_assert!(len.is_power_of_two());
    let mut half = 1;
    while half < len {
        for pair in values.chunks_exact_mut(2 * half) {
            let (low, high) = pair.split_at_mut(half);
            for (low, high) in low.iter_mut().zip(high) {
                (*low, *high) = (*low + *high, *low - *high);
            }
        }
        half *= 2;
    }
    let scale = (len as f32).sqrt().recip();
    for value in values {
        *value *= scale;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transforming_twice_is_the_identity() {
        let input: Vec<f32> = (0..128).map(|i| (i * 37 % 101) as f32 - 50.0).collect();
        let mut values = input.clone();
        transform(&mut values);
        assert!((values[0] - input.iter().sum::<f32>() / 128f32.sqrt()).abs() < 1e-3);
        transform(&mut values);
        for (value, input) in values.iter().zip(&input) {
            assert!((value - input).abs() < 1e-3);
        }
    }
}
