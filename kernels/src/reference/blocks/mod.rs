//! Expanding stored weights to `f32`: one file per block format, one function for all.

mod iq2_xxs;
mod q2_k;
mod q4_k;
mod q8_0;

use ds4_units::TensorType;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// The storage types this backend computes with.
pub const SUPPORTED: [TensorType; 7] = [
    TensorType::F32,
    TensorType::F16,
    TensorType::BF16,
    TensorType::Q8_0,
    TensorType::Q2_K,
    TensorType::Q4_K,
    TensorType::IQ2_XXS,
];

/// Expands whole blocks of `kind` into `out`.
///
/// # Panics
/// When `kind` is not in [`SUPPORTED`] or `bytes` is not exactly what `out.len()` elements take; matrices are checked
/// when they are made.
pub fn expand(kind: TensorType, bytes: &[u8], out: &mut [f32]) {
    assert_eq!(kind.byte_len(out.len() as u64).map(|len| len.index()), Some(bytes.len()), "partial blocks of {kind}");
    match kind {
        TensorType::F32 => each_block(bytes, out, |block: &[u8; 4], out: &mut [f32; 1]| {
            out[0] = f32::from_le_bytes(*block);
        }),
        TensorType::F16 => expand_half(bytes, out),
        TensorType::BF16 => each_block(bytes, out, |block: &[u8; 2], out: &mut [f32; 1]| {
            out[0] = bf16::from_le_bytes(*block).to_f32();
        }),
        TensorType::Q8_0 => each_block(bytes, out, q8_0::expand),
        TensorType::Q2_K => each_block(bytes, out, q2_k::expand),
        TensorType::Q4_K => each_block(bytes, out, q4_k::expand),
        TensorType::IQ2_XXS => each_block(bytes, out, iq2_xxs::expand),
        other => panic!("{other} weights are not computed with"),
    }
}

fn each_block<const BYTES: usize, const LEN: usize>(
    bytes: &[u8],
    out: &mut [f32],
    expand: impl Fn(&[u8; BYTES], &mut [f32; LEN]),
) {
    for (block, out) in bytes.as_chunks().0.iter().zip(out.as_chunks_mut().0) {
        expand(block, out);
    }
}

/// Goes through the `half` crate's slice conversion, which uses the processor's own instruction.
fn expand_half(bytes: &[u8], out: &mut [f32]) {
    let mut halves = [f16::ZERO; 256];
    for (bytes, out) in bytes.chunks(512).zip(out.chunks_mut(256)) {
        let halves = &mut halves[..out.len()];
        for (half, bytes) in halves.iter_mut().zip(bytes.as_chunks().0) {
            *half = f16::from_le_bytes(*bytes);
        }
        halves.convert_to_f32_slice(out);
    }
}

fn half_at(block: &[u8], offset: usize) -> f32 {
    f16::from_le_bytes([block[offset], block[offset + 1]]).to_f32()
}
