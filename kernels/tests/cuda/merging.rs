//! Products and experts merged into the streams, and the site after them: few rows have kernels that do several of these
//! at once.

use crate::data::{matrix, rows};
use crate::kit::{TestCuda, assert_close, cpu, cpu_step, cuda, cuda_step, up};
use crate::multiply::FEW;
use ds4_kernels::backend::{Experts, HyperSite, Mlp, Produced, Routing};
use ds4_kernels::experts::ExpertConstants;
use ds4_kernels::hyper_connection::HyperConstants;
use ds4_kernels::{Backend, Rows};
use ds4_units::TensorType::{self, F16, F32, IQ2_XXS, Q2_K, Q4_K, Q8_0};

const CONSTANTS: HyperConstants = HyperConstants { norm_epsilon: 1e-6, mix_epsilon: 1e-6, iterations: 20 };
const EXPERTS: ExpertConstants = ExpertConstants { weight_scale: 1.5, clamp: 10.0 };
/// Of the largest value: products of few rows in 16 bits of fixed point, of many in half floats.
const BOUND: f32 = 1e-4;
const BOUND_MANY: f32 = 1e-3;
/// Types of routed experts that are merged as they are multiplied, and of such that are not.
const MERGED: [TensorType; 2] = [IQ2_XXS, Q2_K];
const APART: [TensorType; 2] = [Q4_K, Q4_K];

/// Stacks of experts: types of gate and linear part, and of down; hidden width, their own width, how many.
type Stacks = ([TensorType; 2], [usize; 3]);

fn site<B: Backend>(backend: &B, kind: TensorType, width: usize) -> HyperSite<B> {
    let vector = |seed, len| backend.vector(rows(1, len, seed).into_values()).unwrap();
    HyperSite {
        mix: backend.matrix(matrix(kind, [1, 24, 4 * width], 11)).unwrap(),
        base: vector(12, 24),
        scale: backend.vector(vec![0.7, 1.3, 0.9]).unwrap(),
        norm: vector(13, width),
    }
}

/// What is left of the streams, and the next site's input and merge values.
fn finish<B: Backend>(backend: &B, streams: B::Rows, site: &HyperSite<B>) -> [Rows; 3] {
    let mixed = backend.mix(site, &CONSTANTS, &streams);
    [streams, mixed.input, mixed.merge].map(|rows| backend.download(rows).unwrap())
}

fn compare(what: &str, got: [Rows; 3], want: [Rows; 3]) {
    let bound = if want[0].len() > FEW { BOUND_MANY } else { BOUND };
    for ((name, got), want) in ["streams", "input", "merge values"].iter().zip(got).zip(want) {
        assert_close(&format!("{what}, {name}"), &got, &want, bound);
    }
}

#[test]
fn a_merged_product_and_the_next_site_are_those_of_the_cpu() {
    merged_products(&[
        (1, 4096, 8192, F16),
        (4, 4096, 8192, F16),
        (7, 1024, 2048, F16),
        (2, 7168, 2048, F16),
        (3, 512, 1280, F32),
        (20, 512, 2048, F16),
        (2, 256, 512, F16),
        (33, 512, 2304, F16),
        (75, 4096, 1024, F16),
        (40, 264, 4096, F16),
        (16, 4096, 8192, F16),
        (32, 1024, 2048, F16),
    ]);
}

#[test]
fn what_few_rows_do_at_once_under_a_sanitizer() {
    merged_products(&[
        (3, 1024, 1280, F16),
        (7, 1024, 1280, F16),
        (12, 1024, 1280, F16),
        (20, 1024, 1280, F16),
        (40, 512, 256, F16),
    ]);
    // Experts that fill the panels of the router, and some that do not.
    merged_experts(&[2, 6, 12, 20].map(|len| (len, [1536, 1024, 64])));
    merged_experts(&[(2, [1280, 1024, 8])]);
    sites_in_a_row(MERGED, &[2, 6, 12]);
}

#[test]
fn two_sites_in_a_row_are_those_of_the_cpu() {
    sites_in_a_row(MERGED, &[1, 4, 8, 9, 32]);
    // Merge values that no kernel of experts has taken along.
    sites_in_a_row(APART, &[1, 6, 12]);
}

/// A product merged, and the experts of the site after it, whose merge values are made while they are multiplied.
fn sites_in_a_row(types: [TensorType; 2], lens: &[usize]) {
    const SIZES: [usize; 3] = [1536, 1024, 64];
    let cuda: &TestCuda = &cuda();
    for &len in lens {
        let inputs = [rows(len, 2048, 8), rows(len, 4 * SIZES[0], 9), rows(len, 20, 10)];
        let tokens = vec![0; len];
        let want = cpu_step(&tokens, |step| both_sites(&cpu(), step, (types, SIZES), inputs.clone()));
        let own = inputs.each_ref().map(|rows| up(cuda, rows));
        let got = cuda_step(cuda, &tokens, |step| both_sites(cuda, step, (types, SIZES), own));
        compare(&format!("{len} rows, two sites, {types:?}"), got, want);
    }
}

fn both_sites<B: Backend>(
    backend: &B,
    step: &ds4_kernels::step::Step<'_, B::Bank>,
    stacks: Stacks,
    [input, mut streams, mut merge]: [B::Rows; 3],
) -> [Rows; 3] {
    let hidden = stacks.1[0];
    let site = site(backend, F16, hidden);
    let matrix = backend.matrix(matrix(Q8_0, [1, hidden, 2048], 6)).unwrap();
    backend.multiply_and_merge(&matrix, &input, [&mut streams, &mut merge], Some(&site));
    let mixed = backend.mix(&site, &CONSTANTS, &streams);
    fed(backend, step, stacks, [mixed.input, streams, mixed.merge])
}

/// Rows, width of the streams and of the input, and the mixing matrix's type.
fn merged_products(cases: &[(usize, usize, usize, TensorType)]) {
    let cuda = &*cuda();
    for &(len, width, columns, kind) in cases {
        let streams = rows(len, 4 * width, 3);
        let (merge, input) = (rows(len, 20, 4), rows(len, columns, 5));
        let stored = matrix(Q8_0, [1, width, columns], 6);
        let want = {
            let (cpu, mut streams, mut merge) = (cpu(), streams.clone(), merge.clone());
            let (matrix, site) = (cpu.matrix(stored.clone()).unwrap(), site(&cpu, kind, width));
            cpu.multiply_and_merge(&matrix, &input, [&mut streams, &mut merge], Some(&site));
            finish(&cpu, streams, &site)
        };
        let (mut streams, mut merge) = (up(cuda, &streams), up(cuda, &merge));
        let (matrix, site) = (cuda.matrix(stored).unwrap(), site(cuda, kind, width));
        cuda.multiply_and_merge(&matrix, &up(cuda, &input), [&mut streams, &mut merge], Some(&site));
        compare(&format!("{len} rows, {columns} -> {width}, {kind}"), finish(cuda, streams, &site), want);
    }
}

fn experts<B: Backend>(backend: &B, (types, [hidden, width, stack]): Stacks) -> [Mlp<B>; 2] {
    let mlp = |[up, down]: [TensorType; 2], stack, seed| Mlp {
        gate: backend.matrix(matrix(up, [stack, width, hidden], seed)).unwrap(),
        up: backend.matrix(matrix(up, [stack, width, hidden], seed + 1)).unwrap(),
        down: backend.matrix(matrix(down, [stack, hidden, width], seed + 2)).unwrap(),
    };
    [mlp(types, stack, 20), mlp([Q8_0, Q8_0], 1, 30)]
}

fn fed<B: Backend>(
    backend: &B,
    step: &ds4_kernels::step::Step<'_, B::Bank>,
    stacks: Stacks,
    [input, mut streams, mut merge]: [B::Rows; 3],
) -> [Rows; 3] {
    let sizes = stacks.1;
    let [routed, shared] = experts(backend, stacks);
    let site = site(backend, F16, sizes[0]);
    let router = backend.matrix(matrix(F16, [1, sizes[2], sizes[0]], 40)).unwrap();
    let routing = Routing::Best { bias: None };
    let experts = Experts { router: &router, routing: &routing, routed: &routed, shared: &shared, constants: &EXPERTS };
    backend.feed_forward_and_merge(step, &experts, &input, [&mut streams, &mut merge], Some(&site));
    finish(backend, streams, &site)
}

#[test]
fn merged_experts_and_the_next_site_are_those_of_the_cpu() {
    merged_experts(&[
        (1, [4096, 2048, 64]),
        (4, [1024, 1280, 20]),
        (8, [2048, 768, 12]),
        (3, [1280, 1024, 20]),
        (3, [256, 512, 20]),
        (12, [512, 256, 9]),
        (16, [4096, 2048, 64]),
        (32, [1024, 1024, 12]),
    ]);
}

/// Rows, and the sizes of the experts.
fn merged_experts(cases: &[(usize, [usize; 3])]) {
    let cuda: &TestCuda = &cuda();
    for &(len, sizes) in cases {
        let [hidden, ..] = sizes;
        let inputs = [rows(len, hidden, 8), rows(len, 4 * hidden, 9), rows(len, 20, 10)];
        let tokens = vec![0; len];
        let stacks = (MERGED, sizes);
        let want = cpu_step(&tokens, |step| fed(&cpu(), step, stacks, inputs.clone()));
        let got =
            cuda_step(cuda, &tokens, |step| fed(cuda, step, stacks, inputs.each_ref().map(|rows| up(cuda, rows))));
        compare(&format!("{len} rows, experts {sizes:?}"), got, want);
    }
}

#[test]
fn the_best_of_every_row_is_the_first_of_the_largest() {
    let cuda = &*cuda();
    let mut logits = rows(5, 3000, 1);
    logits.row_mut(1)[2999] = 5.0;
    logits.row_mut(2)[40] = 5.0;
    logits.row_mut(2)[41] = 5.0;
    logits.row_mut(3)[7] = f32::NAN;
    logits.row_mut(4).fill(-3.0);
    let computed = cuda_step(cuda, &[0; 5], |_| {
        let mut step = ds4_kernels::step::Step::new([], vec![0; 5]);
        cuda.compute(&Default::default(), &mut step, &[1, 3], |cuda, _| Produced {
            logits: Some(up(cuda, &logits)),
            kept: vec![up(cuda, &logits)],
        })
        .unwrap()
    });
    let want: Vec<_> = logits.iter().map(ds4_kernels::backend::best).collect();
    assert_eq!(computed.best, want);
    // What was kept is where it was, whole and in parts.
    let kept = &computed.kept[0];
    assert_eq!(cuda.peek(&cuda.part(kept, 1..3)).unwrap().values(), &logits.values()[3000..9000]);
    assert_eq!(computed.logits[..3000], *logits.row(1));
    assert!(computed.logits[3007].is_nan() && computed.logits.len() == 6000);
}
