//! A model of full size on one GPU: logits against those of another engine, steps against each other, and speed.
//!
//! Not a test of `cargo test`: it takes the model file as its argument. The reference was computed from the file that the
//! generator of synthetic models writes for seed 1; for another file `--no-reference` leaves that part out. With
//! `--against-cpu` the CPU backend computes the reference instead, operation by operation: for a model of few layers, which
//! host memory holds. With `--roofline` it says where the time of a step goes and how much of the machine each part of it
//! uses (`--roofline --kernels`: and which kernels these are), with `--profile` it only computes what a profiler is to
//! look at. `--depths A,B` says at how many tokens speed is measured. With `--mtp FILE` it measures what guessing ahead
//! takes with the draft block in that file, and nothing else.

mod checks;
mod conversation;
mod guessing;
mod journal;
mod reference;
mod roofline;
mod speed;
mod truth;
mod watched;
mod work;

use anyhow::{Context, bail};
use conversation::Conversation;
use ds4_gpu::cuda::{Gpu, KernelTrace};
use ds4_import::{ComputeDevice, Progress, SelfLoadOptions, Weights, self_load};
use ds4_model::Model;
use ds4_model::{BindOptions, DraftSource, KvRounding};
use ds4_units::{Bytes, Tokens};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Instant;
use truth::Sides;

/// The longest conversation: a prompt of 32k and some answer.
const CONTEXT: u32 = 33_024;

struct Quiet;

impl Progress for Quiet {
    fn read(&self, _done: Bytes) {}

    fn note(&self, text: &str) {
        println!("{text}");
    }
}

fn main() -> anyhow::Result<ExitCode> {
    let Arguments { path, against, depths, draft } = arguments()?;
    let Some(path) = path else {
        println!("full_size: no --model FILE, nothing is checked");
        return Ok(ExitCode::SUCCESS);
    };
    let file = ds4_gguf::Model::open(&path)?;
    // Before the first graph.
    let trace = matches!(against, Against::Roofline { .. }).then(KernelTrace::start).transpose()?;
    let gpu = Gpu::open(0)?;
    let free = gpu.memory()?.free;
    let reference = reference::read()?;
    let mut table = checks::Table::default();
    let device = load(&file, ComputeDevice::Gpu(gpu.clone()))?;
    if let Against::Cpu = against {
        let host = load(&file, ComputeDevice::Cpu)?;
        let sides = Sides { file: &file, host: &host, device: &device, gpu: &gpu, context: Tokens(CONTEXT) };
        truth::against_the_cpu(&sides, &reference.tokens, &mut table)?;
        return Ok(table.finish());
    }
    if let (Against::Roofline { kernels }, Some(trace)) = (&against, &trace) {
        let sides = Sides { file: &file, host: &device, device: &device, gpu: &gpu, context: Tokens(CONTEXT) };
        roofline::print(&sides, trace, &reference.tokens, *kernels)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(draft) = draft {
        let draft = ds4_gguf::Model::open(&draft)?;
        let weights = load(&draft, ComputeDevice::Gpu(gpu.clone()))?;
        let source = DraftSource { file: &draft, weights: &weights };
        guessing::measure(bind(&file, &device, Some(source), &gpu)?.as_mut(), &reference.tokens)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut conversation = Conversation::new(bind(&file, &device, None, &gpu)?);
    if let Against::Profile = against {
        speed::profile(&mut conversation, &reference.tokens, &gpu)?;
        return Ok(table.finish());
    }
    if let Against::Reference = against {
        checks::against_the_reference(&mut conversation, &reference, &mut table)?;
    }
    checks::steps_against_each_other(&mut conversation, &reference.tokens, &mut table)?;
    speed::measure(&mut conversation, &reference.tokens, &depths)?;
    speed::by_rows(&mut conversation, &reference.tokens)?;
    for (purpose, bytes) in conversation.device_memory() {
        println!("device memory beyond the weights: {bytes} {purpose}");
    }
    println!("device memory taken in all: {}", Bytes(free.0.saturating_sub(gpu.memory()?.free.0)));
    Ok(table.finish())
}

fn load(file: &ds4_gguf::Model, device: ComputeDevice) -> anyhow::Result<Weights> {
    let (began, cancel) = (Instant::now(), AtomicBool::new(false));
    let loading = SelfLoadOptions { device, reserve: None, progress: &Quiet, cancel: &cancel };
    let loaded = self_load(file, &loading)?;
    println!("{} loaded in {:.1} s", file.logical_size(), began.elapsed().as_secs_f64());
    Ok(loaded.weights)
}

fn bind(
    file: &ds4_gguf::Model,
    weights: &Weights,
    draft: Option<DraftSource<'_>>,
    gpu: &Gpu,
) -> anyhow::Result<Box<dyn Model>> {
    let began = Instant::now();
    let options = BindOptions {
        context: Tokens(CONTEXT),
        kv_rounding: KvRounding::Exact,
        device: ComputeDevice::Gpu(gpu.clone()),
    };
    let model = ds4_families::deepseek4::bind_model(file, weights, draft, &options)?;
    println!("bound, self-test included, in {} ms", began.elapsed().as_millis());
    Ok(model)
}

/// What logits are compared with.
enum Against {
    Reference,
    Cpu,
    Nothing,
    /// Nothing is compared: a profiler looks at some steps.
    Profile,
    /// Nothing is compared: kernels are timed.
    Roofline {
        kernels: bool,
    },
}

struct Arguments {
    path: Option<PathBuf>,
    against: Against,
    /// Tokens of a conversation at which its speed is measured.
    depths: Vec<usize>,
    /// The draft block to guess with.
    draft: Option<PathBuf>,
}

fn arguments() -> anyhow::Result<Arguments> {
    let (mut path, mut against, mut depths) = (None, Against::Reference, vec![2048, 8192, 32_768]);
    let mut draft = None;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--model" => path = Some(PathBuf::from(arguments.next().context("--model needs a file")?)),
            "--mtp" => draft = Some(PathBuf::from(arguments.next().context("--mtp needs a file")?)),
            "--no-reference" => against = Against::Nothing,
            "--against-cpu" => against = Against::Cpu,
            "--profile" => against = Against::Profile,
            "--roofline" => against = Against::Roofline { kernels: false },
            "--kernels" => against = Against::Roofline { kernels: true },
            "--depths" => {
                let list = arguments.next().context("--depths needs a list")?;
                depths = list.split(',').map(str::parse).collect::<Result<_, _>>()?;
            }
            other => bail!("{other:?} is no argument: --model FILE and what the head of this file names are"),
        }
    }
    Ok(Arguments { path, against, depths, draft })
}
