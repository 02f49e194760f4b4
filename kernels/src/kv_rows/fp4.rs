//! E2M1: sign and the eight magnitudes 0, 0.5, 1, 1.5, 2, 3, 4, 6.

/// The largest value.
pub(super) const TOP: f32 = 6.0;

const MAGNITUDES: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];

/// The nearest code to a value, ties to the even code; values beyond [`TOP`] get the last one.
pub(super) fn encode(value: f32) -> u8 {
    let magnitude = value.abs();
    // Middles between neighbours; a tie goes up exactly where the upper code is even.
    let code = u8::from(magnitude > 0.25)
        + u8::from(magnitude >= 0.75)
        + u8::from(magnitude > 1.25)
        + u8::from(magnitude >= 1.75)
        + u8::from(magnitude > 2.5)
        + u8::from(magnitude >= 3.5)
        + u8::from(magnitude > 5.0);
    code | (u8::from(value.is_sign_negative()) << 3)
}

/// The value of a code (its low four bits).
pub(super) fn decode(code: u8) -> f32 {
    let magnitude = MAGNITUDES[usize::from(code & 7)];
    if code & 8 == 0 { magnitude } else { -magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_survive_and_ties_go_to_the_even_code() {
        for code in 0..16 {
            assert_eq!(encode(decode(code)), code);
        }
        for code in 0..7u8 {
            let middle = (decode(code) + decode(code + 1)) / 2.0;
            let even = if code % 2 == 0 { code } else { code + 1 };
            assert_eq!(encode(middle), even);
            assert_eq!(encode(middle.next_down()), code);
            assert_eq!(encode(middle.next_up()), code + 1);
        }
    }
}
