//! The exponential function, written so that the compiler can run it over vectors and every machine gives the same
//! bits.

use super::dot::multiply_add;

/// `e^x`, off by at most two units in the last place; 0 below -87, infinite above 88.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    const LOG2_E: f32 = std::f32::consts::LOG2_E;
    // ln 2 in two parts, the first exact in few bits, so that `x - n ln 2` keeps its low bits.
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let clamped = x.clamp(-87.0, 88.0);
    // Adding and subtracting 1.5 * 2^23 rounds to an integer.
    const ROUNDER: f32 = 12_582_912.0;
    let n = multiply_add(clamped, LOG2_E, ROUNDER) - ROUNDER;
    let r = multiply_add(n, -LN2_LOW, multiply_add(n, -LN2_HIGH, clamped));
    let mut sum = 1.987_569_2e-4;
    for coefficient in [1.398_2e-3, 8.333_452e-3, 4.166_579_5e-2, 0.166_666_65, 0.5] {
        sum = multiply_add(sum, r, coefficient);
    }
    let fraction = multiply_add(sum, r * r, r) + 1.0;
    let power = f32::from_bits(((n as i32 + 127) as u32) << 23);
    let result = fraction * power;
    if x < -87.0 {
        0.0
    } else if x > 88.0 {
        f32::INFINITY
    } else {
        result
    }
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub(crate) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_within_two_units_in_the_last_place() {
        for step in -870_000..880_000 {
            let x = step as f32 / 10_000.0;
            let exact = f64::from(x).exp();
            let error = (f64::from(exp(x)) - exact).abs() / exact;
            assert!(error < 2.0 * f64::from(f32::EPSILON), "exp({x}) is off by {error}");
        }
    }

    #[test]
    fn the_ends_are_zero_infinite_and_not_a_number() {
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert!(exp(f32::NAN).is_nan());
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(sigmoid(-1000.0), 0.0);
        assert_eq!(sigmoid(1000.0), 1.0);
    }
}
