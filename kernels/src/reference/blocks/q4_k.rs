//! Q4_K: 144 bytes for 256 elements. Two half floats `d` and `dmin`, twelve bytes with eight pairs of 6-bit scales and
//! minima, then 128 bytes of 4-bit codes; `value = d * scale * q - dmin * min` in groups of 32.

use super::half_at;

pub(super) const BYTES: usize = 144;

/// Expands one block.
pub(super) fn expand(block: &[u8; BYTES], out: &mut [f32; 256]) {
    let (d, dmin) = (half_at(block, 0), half_at(block, 2));
    let packed = &block[4..16];
    for (pair, (codes, out)) in block[16..].as_chunks::<32>().0.iter().zip(out.as_chunks_mut::<64>().0).enumerate() {
        let (low_scale, low_min) = scale_and_min(packed, 2 * pair);
        let (high_scale, high_min) = scale_and_min(packed, 2 * pair + 1);
        let (low, high) = out.split_at_mut(32);
        spread(low, codes, |code| code & 15, d * low_scale, dmin * low_min);
        spread(high, codes, |code| code >> 4, d * high_scale, dmin * high_min);
    }
}

fn spread(out: &mut [f32], codes: &[u8; 32], nibble: impl Fn(u8) -> u8, scale: f32, min: f32) {
    for (out, &code) in out.iter_mut().zip(codes) {
        *out = scale * f32::from(nibble(code)) - min;
    }
}

/// The 6-bit scale and minimum of group `index` (0..8): the first four lie in bytes 0..8, the rest borrow the top two
/// bits of those bytes.
fn scale_and_min(packed: &[u8], index: usize) -> (f32, f32) {
    let (scale, min) = if index < 4 {
        (packed[index] & 63, packed[index + 4] & 63)
    } else {
        (
            (packed[index + 4] & 15) | ((packed[index - 4] >> 6) << 4),
            (packed[index + 4] >> 4) | ((packed[index] >> 6) << 4),
        )
    };
    (f32::from(scale), f32::from(min))
}
