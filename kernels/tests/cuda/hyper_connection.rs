//! Hyper-connections.

use crate::kit::{assert_close, cpu, cpu_step, cuda, cuda_step, down, numbers, rows, up};
use crate::multiply::FEW;
use ds4_gpu::Memory;
use ds4_kernels::backend::HyperSite;
use ds4_kernels::hyper_connection::HyperConstants;
use ds4_kernels::{Backend, Matrix};
use ds4_units::{Layout, TensorType};

const CONSTANTS: HyperConstants = HyperConstants { norm_epsilon: 1e-6, mix_epsilon: 1e-6, iterations: 20 };

fn site<B: Backend>(backend: &B, kind: TensorType, mixes: usize, width: usize) -> HyperSite<B> {
    let values = numbers(11, mixes * 4 * width).into_iter().map(|value| value * 0.05);
    let bytes: Vec<u8> = match kind {
        TensorType::F16 => values.flat_map(|value| half::f16::from_f32(value).to_le_bytes()).collect(),
        _ => values.flat_map(f32::to_le_bytes).collect(),
    };
    let len = bytes.len();
    let matrix = Matrix::new(kind, Layout::Gguf, [1, mixes, 4 * width], Memory::host(bytes), 0..len);
    HyperSite {
        mix: backend.matrix(matrix.unwrap()).unwrap(),
        base: backend.vector(numbers(12, mixes)).unwrap(),
        scale: backend.vector(vec![0.7, 1.3, 0.9]).unwrap(),
        norm: backend.vector(numbers(13, width)).unwrap(),
    }
}

#[test]
fn streams_are_mixed_and_merged_as_on_the_cpu() {
    mixes(&[
        (TensorType::F32, 1, 64),
        (TensorType::F32, 3, 256),
        (TensorType::F16, 33, 4096),
        (TensorType::F16, 100, 264),
        (TensorType::F16, 2, 7168),
        (TensorType::F16, 47, 7168),
    ]);
}

#[test]
fn mixing_and_collapsing_under_a_sanitizer() {
    mixes(&[(TensorType::F16, 1, 64), (TensorType::F32, 3, 512), (TensorType::F16, 40, 512)]);
    collapses(&[(1, 64, &[0]), (5, 256, &[1, 4])]);
}

fn mixes(shapes: &[(TensorType, usize, usize)]) {
    let cuda = cuda();
    for &(kind, len, width) in shapes {
        let mut streams = rows(14, len, 4 * width);
        let want = cpu().mix(&site(&cpu(), kind, 24, width), &CONSTANTS, &streams);
        let mut device_streams = up(&cuda, &streams);
        let got = cuda.mix(&site(&*cuda, kind, 24, width), &CONSTANTS, &device_streams);
        let output = rows(15, len, width);
        cuda.merge(&mut device_streams, &got.merge, &up(&cuda, &output));
        cpu().merge(&mut streams, &want.merge, &output);
        let what = format!("mix {kind} {len} x {width}");
        // The matrix units of many rows add up without rounding to nearest.
        let most = if kind == TensorType::F16 && len > FEW { 5e-5 } else { 1e-5 };
        assert_close(&format!("{what}, input"), &down(&cuda, got.input), &want.input, most);
        assert_close(&format!("{what}, merge values"), &down(&cuda, got.merge), &want.merge, most);
        assert_close(&format!("{what}, merged"), &down(&cuda, device_streams), &streams, most);
    }
}

#[test]
fn wanted_rows_are_collapsed_as_on_the_cpu() {
    collapses(&[(1, 64, &[0]), (40, 4096, &[3, 39]), (9, 512, &[0, 1, 2, 3, 4, 5, 6, 7, 8])]);
}

fn collapses(shapes: &[(usize, usize, &[usize])]) {
    let cuda = cuda();
    for &(len, width, wanted) in shapes {
        let streams = rows(16, len, 4 * width);
        let tokens = vec![0; len];
        let want = cpu_step(&tokens, |step| {
            let step = ds4_kernels::step::Step { wanted: wanted.to_vec(), ..bare(step) };
            cpu().collapse(&site(&cpu(), TensorType::F16, 4, width), &CONSTANTS, &streams, &step)
        });
        let got = cuda_step(&cuda, &tokens, |step| {
            let step = ds4_kernels::step::Step { wanted: wanted.to_vec(), ..bare(step) };
            cuda.prepare(&step).unwrap();
            cuda.collapse(&site(&*cuda, TensorType::F16, 4, width), &CONSTANTS, &up(&cuda, &streams), &step)
        });
        assert_close(&format!("collapse {len} x {width}"), &down(&cuda, got), &want, 1e-5);
    }
}

/// The same rows without banks.
fn bare<'a, B>(step: &ds4_kernels::step::Step<'_, B>) -> ds4_kernels::step::Step<'a, B> {
    let (tokens, positions) = (step.tokens.clone(), step.positions.clone());
    ds4_kernels::step::Step { tokens, positions, segments: Vec::new(), wanted: Vec::new() }
}
