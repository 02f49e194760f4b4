//! Q8_0: 34 bytes for 32 elements. A half-float scale, then 32 signed bytes; `value = d * q`.

use super::half_at;

pub(super) const BYTES: usize = 34;

/// Expands one block.
pub(super) fn expand(block: &[u8; BYTES], out: &mut [f32; 32]) {
    let scale = half_at(block, 0);
    for (out, &code) in out.iter_mut().zip(&block[2..]) {
        *out = scale * f32::from(code.cast_signed());
    }
}
