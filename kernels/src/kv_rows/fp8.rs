//! E4M3 (finite, no infinities): sign, four exponent bits with bias 7, three mantissa bits, largest value 448.

/// The largest finite value.
pub(super) const TOP: f32 = 448.0;

/// The nearest code to a value of magnitude at most [`TOP`], ties to the even code.
pub(super) fn encode(value: f32) -> u8 {
    let sign = ((value.to_bits() >> 24) & 0x80) as u8;
    let magnitude = value.abs();
    // Below 2^-6 codes are multiples of 2^-9; rounding up to 8 of them is the first normal code, as it should be.
    if magnitude < 0.015_625 {
        return sign | (magnitude * 512.0).round_ties_even() as u8;
    }
    let bits = magnitude.to_bits();
    let rounded = bits + 0x7_ffff + ((bits >> 20) & 1);
    sign | ((rounded >> 20) - ((127 - 7) << 3)) as u8
}

/// The value of a code.
#[inline(always)]
pub(super) fn decode(code: u8) -> f32 {
    // The code's exponent and mantissa fields, moved to their places in an f32, read 2^120 too small; this holds for
    // subnormal codes as well.
    let bits = (u32::from(code & 0x80) << 24) | (u32::from(code & 0x7f) << 20);
    f32::from_bits(bits) * f32::from_bits((120 + 127) << 23)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_survives_a_round_trip() {
        for code in (0..=0x7eu8).chain(0x80..=0xfe) {
            assert_eq!(encode(decode(code)), code);
        }
        assert_eq!(decode(0x7e), TOP);
        assert_eq!(decode(1), 2.0_f32.powi(-9));
    }

    #[test]
    fn values_round_to_the_nearest_code_with_ties_to_even() {
        for code in 0..0x7eu8 {
            let (low, high) = (decode(code), decode(code + 1));
            let middle = (low + high) / 2.0;
            let even = if code % 2 == 0 { code } else { code + 1 };
            assert_eq!(encode(middle), even, "between codes {code} and {}", code + 1);
            assert_eq!(encode(middle.next_down()), code);
            assert_eq!(encode(middle.next_up()), code + 1);
        }
    }
}
