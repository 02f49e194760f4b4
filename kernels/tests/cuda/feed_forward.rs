//! The feed-forward site against the CPU's, and against itself in other company.

use crate::data::{assert_same_bits, distance, matrix, part, rows};
use crate::kit::{TestCuda, cpu, cpu_step, cuda, cuda_step};
use crate::multiply::{FEW, bound};
use ds4_kernels::backend::{Mlp, Routing};
use ds4_kernels::experts::ExpertConstants;
use ds4_kernels::{Backend, Rows};
use ds4_units::TensorType::{self, BF16, F16, F32, IQ2_XXS, Q2_K, Q4_K, Q8_0};

const CONSTANTS: ExpertConstants = ExpertConstants { weight_scale: 1.5, clamp: 10.0 };

/// Types of the routed gate and up, of the routed down, of the shared expert; experts, their width, the model's.
struct Site {
    types: [TensorType; 3],
    stack: usize,
    width: usize,
    hidden: usize,
}

impl Site {
    fn routed<B: Backend>(&self, backend: &B) -> Mlp<B> {
        let [up, down, _] = self.types;
        mlp(backend, [up, down], [self.stack, self.width, self.hidden], 1)
    }

    fn shared<B: Backend>(&self, backend: &B) -> Mlp<B> {
        mlp(backend, [self.types[2]; 2], [1, self.width, self.hidden], 7)
    }

    /// Logits and inputs of `batch` rows; inputs are large enough for clamps to matter.
    fn input(&self, batch: usize) -> (Rows, Rows) {
        let mut input = rows(batch, self.hidden, 3);
        input.values_mut().iter_mut().for_each(|value| *value *= 8.0);
        (rows(batch, self.stack, 11), input)
    }

    fn on_cpu(&self, logits: &Rows, input: &Rows) -> Rows {
        let routing = Routing::Best { bias: None };
        cpu_step(&vec![0; input.len()], |step| {
            let routes = cpu().route(step, logits, &routing, &CONSTANTS);
            cpu().feed_forward(&self.routed(&cpu()), &self.shared(&cpu()), &CONSTANTS, &routes, input)
        })
    }
}

fn mlp<B: Backend>(backend: &B, [up, down]: [TensorType; 2], [stack, width, hidden]: [usize; 3], seed: u64) -> Mlp<B> {
    let take = |kind, shape, seed| backend.matrix(matrix(kind, shape, seed)).expect("takes it");
    Mlp {
        gate: take(up, [stack, width, hidden], seed),
        up: take(up, [stack, width, hidden], seed + 1),
        down: take(down, [stack, hidden, width], seed + 2),
    }
}

fn check(cuda: &TestCuda, site: &Site, batches: &[usize]) {
    let (routed, shared) = (site.routed(cuda), site.shared(cuda));
    for &batch in batches {
        let (logits, input) = site.input(batch);
        let want = site.on_cpu(&logits, &input);
        let got = on_cuda(cuda, &routed, &shared, &logits, &input);
        let error = distance(&got, &want);
        println!("{:?} {} experts, {batch} rows: {error:.1e}", site.types, site.stack);
        // Two products, one after the other.
        assert!(
            error < 2.0 * bound(site.types[0], batch, site.width * site.hidden),
            "{:?}, {batch} rows: off by {error:e}",
            site.types
        );
    }
}

fn on_cuda(cuda: &TestCuda, routed: &Mlp<TestCuda>, shared: &Mlp<TestCuda>, logits: &Rows, input: &Rows) -> Rows {
    let routing = Routing::Best { bias: None };
    let (logits, input) = (cuda.upload(logits).expect("takes it"), cuda.upload(input).expect("takes it"));
    cuda_step(cuda, &vec![0; input.len()], |step| {
        let routes = cuda.route(step, &logits, &routing, &CONSTANTS);
        cuda.download(cuda.feed_forward(routed, shared, &CONSTANTS, &routes, &input)).expect("computes")
    })
}

#[test]
fn experts_of_every_type_are_those_of_the_cpu() {
    for types in [
        [IQ2_XXS, Q2_K, Q8_0],
        [Q4_K, Q4_K, Q8_0],
        [Q8_0, Q8_0, Q4_K],
        [F16, F32, F16],
        [BF16, F16, F32],
        [Q2_K, IQ2_XXS, Q8_0],
    ] {
        check(&cuda(), &Site { types, stack: 12, width: 256, hidden: 512 }, &[1, 2, 9, 40, 150]);
        check(&cuda(), &Site { types, stack: 7, width: 1280, hidden: 1024 }, &[40, 150]);
    }
}

#[test]
fn experts_under_a_sanitizer() {
    for types in [[IQ2_XXS, Q2_K, Q8_0], [Q4_K, Q4_K, Q8_0]] {
        check(&cuda(), &Site { types, stack: 8, width: 256, hidden: 256 }, &[1, 9, 70]);
        // Groups of experts in tiles of every width.
        check(&cuda(), &Site { types, stack: 7, width: 1280, hidden: 1024 }, &[40, 70]);
        check(&cuda(), &Site { types, stack: 9, width: 1280, hidden: 1024 }, &[70]);
        check(&cuda(), &Site { types, stack: 20, width: 1280, hidden: 1024 }, &[70]);
    }
    // The shared expert in tiles of every width.
    check(&cuda(), &Site { types: [IQ2_XXS, Q2_K, Q8_0], stack: 7, width: 2048, hidden: 768 }, &[10, 300, 600]);
}

#[test]
fn experts_whose_rows_do_not_fill_panels_are_kept_apart() {
    check(&cuda(), &Site { types: [Q8_0, F16, Q8_0], stack: 9, width: 40 * 8, hidden: 72 * 8 }, &[1, 17, 70]);
    check(&cuda(), &Site { types: [F16, F32, F32], stack: 7, width: 20, hidden: 36 }, &[1, 17, 70]);
    check(&cuda(), &Site { types: [Q8_0, F16, F16], stack: 9, width: 40 * 25, hidden: 72 * 16 }, &[70]);
}

#[test]
fn experts_of_the_published_models_shapes_are_those_of_the_cpu() {
    check(
        &cuda(),
        &Site { types: [IQ2_XXS, Q2_K, Q8_0], stack: 32, width: 2048, hidden: 4096 },
        &[1, 4, 12, 32, 48, 130],
    );
    check(&cuda(), &Site { types: [Q4_K, Q4_K, Q8_0], stack: 16, width: 3072, hidden: 7168 }, &[1, 60]);
    // Tile after tile of every width for each block of threads.
    check(&cuda(), &Site { types: [IQ2_XXS, Q2_K, Q8_0], stack: 40, width: 1280, hidden: 1024 }, &[690]);
}

#[test]
fn some_rows_whose_groups_do_not_fit_shared_memory_at_once_are_those_of_the_cpu() {
    check(&cuda(), &Site { types: [IQ2_XXS, Q2_K, Q8_0], stack: 7, width: 1024, hidden: 10_240 }, &[9]);
}

#[test]
fn some_rows_give_the_same_bits_in_any_company_of_their_kind() {
    let cuda = &*cuda();
    let site = Site { types: [IQ2_XXS, Q2_K, Q8_0], stack: 10, width: 1024, hidden: 1024 };
    let (routed, shared) = (site.routed(cuda), site.shared(cuda));
    let (logits, input) = site.input(64);
    let multiply = |first, len| on_cuda(cuda, &routed, &shared, &part(&logits, first, len), &part(&input, first, len));
    // The shared expert of more than 32 rows is multiplied like that of many.
    for (all, parts) in [(32, [(0, 9), (17, 14), (3, 20)]), (64, [(0, 33), (20, 40), (4, 60)])] {
        let together = multiply(0, all);
        for (first, len) in parts {
            assert_same_bits(&multiply(first, len), &part(&together, first, len), &format!("{len} rows from {first}"));
        }
    }
}

#[test]
fn a_row_gives_the_same_bits_alone_and_in_any_company() {
    let cuda = &*cuda();
    let site = Site { types: [IQ2_XXS, Q2_K, Q8_0], stack: 10, width: 1024, hidden: 1280 };
    let (routed, shared) = (site.routed(cuda), site.shared(cuda));
    let (logits, input) = site.input(300);
    let multiply = |first, len| on_cuda(cuda, &routed, &shared, &part(&logits, first, len), &part(&input, first, len));
    // Few rows and many are two kinds of kernels.
    let few = multiply(0, FEW);
    for (first, len) in [(0, 9), (17, 14)] {
        assert_same_bits(&multiply(first, len), &part(&few, first, len), &format!("{len} rows from {first}"));
    }
    // And the fewest have kernels of their own.
    for (first, len) in [(299, 1), (5, 3), (5, 6), (40, 8)] {
        let together = multiply(first, len);
        for row in 0..len {
            assert_same_bits(&multiply(first + row, 1), &part(&together, row, 1), &format!("row {row} of {len}"));
        }
    }
    let all = multiply(0, 300);
    for (first, len) in [(0, 33), (30, 90), (150, 150)] {
        assert_same_bits(&multiply(first, len), &part(&all, first, len), &format!("{len} rows from {first}"));
    }
}
