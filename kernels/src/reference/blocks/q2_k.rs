//! Q2_K: 84 bytes for 256 elements. Sixteen bytes (scale in the low nibble, minimum in the high one) for groups of 16,
//! 64 bytes of 2-bit codes, then two half floats `d` and `dmin`; `value = d * scale * q - dmin * min`.

use super::half_at;

pub(super) const BYTES: usize = 84;

/// Expands one block.
pub(super) fn expand(block: &[u8; BYTES], out: &mut [f32; 256]) {
    let (d, dmin) = (half_at(block, 80), half_at(block, 82));
    for (index, out) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        // Each half of the block keeps its codes in 32 bytes; groups of 16 alternate between their two halves and
        // move up two bits every second group.
        let (half, within) = (index / 8, index % 8);
        let codes = &block[16 + 32 * half + 16 * (within % 2)..][..16];
        let shift = 2 * (within / 2);
        let scale = d * f32::from(block[index] & 15);
        let min = dmin * f32::from(block[index] >> 4);
        for (out, &code) in out.iter_mut().zip(codes) {
            *out = scale * f32::from(code >> shift & 3) - min;
        }
    }
}
