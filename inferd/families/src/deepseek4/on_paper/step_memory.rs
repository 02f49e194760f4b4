//! What steps take of a GPU's memory, at the published shapes: what is planned is what is had, and no two buffers share bytes
//! that both need.

use super::{CONTEXT, OnPaper, flash, model, paper, pro, step};
use crate::deepseek4::self_test::Case;
use ds4_gpu::cuda::Gpu;
use ds4_kernels::Backend;
use ds4_kernels::cuda::{Cuda, CudaOptions, StepPlan};
use ds4_kernels::kv_rows::PackedRows;
use ds4_model::{Model, StepSize};
use ds4_units::{BankId, Bytes, Layout, MemoryUse, Tokens};
use std::collections::BTreeSet;

const HERE: &str = "deepseek4::on_paper::step_memory";
const CONVERSATIONS: usize = 32;

/// Weights that were copied to the device and are still there.
fn copied(cuda: &Cuda<PackedRows>) -> Bytes {
    let of = |(what, bytes)| (what == MemoryUse::SmallWeights).then_some(bytes);
    cuda.memory().into_iter().find_map(of).expect("it says so")
}

fn activations(model: &OnPaper) -> Bytes {
    model.device_memory()[0].1
}

fn mib(bytes: Bytes) -> f64 {
    bytes.0 as f64 / f64::from(1 << 20)
}

/// Buffers whose lives meet share no byte, all of them lie in what was planned, and kernels that do not wait before they write
/// do so to memory that the launch in front of them knew as theirs.
fn check(plan: &StepPlan, planned: Bytes) {
    assert!(!plan.buffers.is_empty() && plan.bytes() <= planned, "{} in {planned}", plan.bytes());
    for (index, buffer) in plan.buffers.iter().enumerate() {
        // Those that were asked for while it was held.
        let later = plan.buffers[index + 1..].iter().take_while(|later| buffer.meets(later));
        for later in later {
            assert!(!buffer.overlaps(later), "{buffer}\n{later}");
        }
    }
    assert_eq!(plan.written_too_early(), [], "launches of a step");
}

fn compute(model: &mut OnPaper, segments: &[(BankId, usize)]) {
    step(model, segments).expect("the driver on paper takes every launch");
}

/// Plans, takes and uses the memory of steps up to so many rows.
fn steps_stay_within(model: &mut OnPaper, what: &str, rows: usize) -> Bytes {
    let size = StepSize { rows, conversations: CONVERSATIONS };
    let planned = model.activations(size).expect("it can be tried out");
    let plan = model.backend.plan();
    check(&plan, planned);
    let (held, buffers) = plan.most_held();
    println!("{what}, {rows} rows: {:.1} MiB, of which {:.1} MiB are held at once", mib(planned), mib(held));
    buffers.iter().filter(|buffer| buffer.len >= Bytes::mib(1)).for_each(|buffer| println!("    {buffer}"));
    for smaller in (1..=64).chain([65, 96, 127, 128, 129, 500, 1024, 2048, 3000]).filter(|&smaller| smaller < rows) {
        let size = StepSize { rows: smaller, conversations: CONVERSATIONS.min(smaller) };
        model.activations(size).expect("it can be tried out");
        let plan = model.backend.plan();
        check(&plan, planned);
        let is_among = |kernel: &str| plan.launches.iter().any(|launch| launch == kernel);
        assert!(smaller > 8 || is_among("few_up") && is_among("few_settle_packed"), "{what}, {smaller} rows");
    }
    model.take_activations(size).expect("the device on paper has it");
    assert_eq!(activations(model), planned, "{what}: what was taken");
    planned
}

/// Kernels that steps of so many rows launch.
fn launched(model: &mut OnPaper, rows: impl Iterator<Item = usize>, conversations: usize) -> BTreeSet<String> {
    rows.flat_map(|rows| {
        let size = StepSize { rows, conversations: conversations.min(rows) };
        model.activations(size).expect("it can be tried out");
        model.backend.plan().launches
    })
    .collect()
}

/// Kernels whose only difference from one that is tested is the rows of a tile, for a shared expert of a thousand rows and more.
const WIDER_TILES: [&str; 2] = ["gemm_64_gated_q8_0", "gemm_128_gated_q8_0"];

/// A kernel that no self-test runs may give nonsense to those who asked for an answer.
#[test]
fn a_workers_self_test_runs_every_kernel_of_the_published_shapes() {
    paper::on_paper(&format!("{HERE}::a_workers_self_test_runs_every_kernel_of_the_published_shapes"), || {
        for device in [paper::HOPPER, paper::BLACKWELL] {
            let tested = |case: Case| {
                let gpu = Gpu::open(device).expect("a device on paper");
                let cuda =
                    Cuda::<PackedRows>::new(&gpu, CudaOptions { context: Tokens(1024) }).expect("kernels for it");
                let mut model = case.bind(cuda.clone()).expect("it binds");
                assert!(copied(&cuda) > Bytes::ZERO, "weights from the host are copied");
                let launched = launched(&mut model, case.steps.iter().copied(), 1);
                drop(model);
                assert_eq!(copied(&cuda), Bytes::ZERO, "a self-test leaves no weights behind");
                launched
            };
            let tested = &tested(Case::narrow()) | &tested(Case::wide(Layout::Split));
            for shape in [flash(), pro()] {
                let mut model = model(device, &shape, false, CONTEXT);
                let all = launched(&mut model, (1..=65).chain([96, 127, 128, 500, 2048, 4096]), CONVERSATIONS);
                let others: Vec<_> =
                    all.difference(&tested).filter(|&name| !WIDER_TILES.contains(&name.as_str())).collect();
                assert!(
                    others.is_empty(),
                    "{:?}: {} kernels, of which no self-test runs {others:?}",
                    shape.name(),
                    all.len()
                );
            }
        }
    });
}

#[test]
fn steps_of_the_published_shapes_have_what_was_planned_for_them() {
    paper::on_paper(&format!("{HERE}::steps_of_the_published_shapes_have_what_was_planned_for_them"), || {
        for (what, device, shape, with_draft, context, most) in [
            ("Flash", paper::HOPPER, flash(), false, CONTEXT, 1280),
            ("Flash with a draft block", paper::HOPPER, flash(), true, CONTEXT, 1280),
            ("Flash, 131,072 tokens", paper::HOPPER, flash(), false, Tokens(131_072), 1280),
            ("Flash on Blackwell", paper::BLACKWELL, flash(), false, CONTEXT, 1472),
            ("PRO", paper::HOPPER, pro(), false, CONTEXT, 2304),
        ] {
            let mut model = model(device, &shape, with_draft, context);
            let planned = steps_stay_within(&mut model, what, 4096);
            assert!(planned <= Bytes::mib(most), "{what}: {planned} are planned, {most} MiB were enough");
            let banks: Vec<BankId> = (0..CONVERSATIONS).map(|_| model.open_bank()).collect();
            // A long conversation, piece by piece, then answers, alone and together, and prompts beside them.
            for _ in 0..8 {
                compute(&mut model, &[(banks[0], 4096)]);
            }
            for count in [1, 2, 4, 5, 8, 9, 16, 32] {
                let one_each: Vec<_> = banks[..count].iter().map(|&bank| (bank, 1)).collect();
                (0..3).for_each(|_| compute(&mut model, &one_each));
            }
            for count in [40, 64, 65, 100, 127, 500, 3000] {
                let mut segments: Vec<_> = banks[..31].iter().map(|&bank| (bank, 1)).collect();
                segments.push((banks[31], count - 31));
                compute(&mut model, &segments);
            }
            assert_eq!(activations(&model), planned, "{what}: after steps of every kind");
        }
    });
}
