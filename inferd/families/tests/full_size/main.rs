//! A model of full size on one GPU: logits against those of another engine, steps against each other, and speed.
//!
//! Not a test of `cargo test`: it takes the model file as its argument. The reference was computed from the file that the
//! generator of synthetic models writes for seed 1; for another file `--no-reference` leaves that part out. With
//! `--against-cpu` the CPU backend computes the reference instead: for a model of few layers, which host memory holds.

mod checks;
mod conversation;
mod reference;
mod speed;

use anyhow::{Context, bail};
use conversation::Conversation;
use ds4_gpu::cuda::Gpu;
use ds4_import::{ComputeDevice, Progress, SelfLoadOptions, self_load};
use ds4_model::Model;
use ds4_model::{BindOptions, KvRounding};
use ds4_units::{Bytes, Tokens};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

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
    let Arguments { path, against } = arguments()?;
    let Some(path) = path else {
        println!("full_size: no --model FILE, nothing is checked");
        return Ok(ExitCode::SUCCESS);
    };
    let file = ds4_gguf::Model::open(&path)?;
    let gpu = Gpu::open(0)?;
    let free = gpu.memory()?.free;
    let mut conversation = Conversation::new(load(&file, ComputeDevice::Gpu(gpu.clone()))?);
    let reference = reference::read()?;
    let mut table = checks::Table::default();
    match against {
        Against::Reference => checks::against_the_reference(&mut conversation, &reference, &mut table)?,
        Against::Cpu => {
            let mut truth = Conversation::new(load(&file, ComputeDevice::Cpu)?);
            checks::against_the_cpu(&mut conversation, &mut truth, &reference.tokens, &mut table)?;
            return Ok(table.finish());
        }
        Against::Nothing => {}
    }
    checks::steps_against_each_other(&mut conversation, &reference.tokens, &mut table)?;
    speed::measure(&mut conversation, &reference.tokens)?;
    for (purpose, bytes) in conversation.device_memory() {
        println!("device memory beyond the weights: {bytes} {purpose}");
    }
    println!("device memory taken in all: {}", Bytes(free.0.saturating_sub(gpu.memory()?.free.0)));
    Ok(table.finish())
}

fn load(file: &ds4_gguf::Model, device: ComputeDevice) -> anyhow::Result<Box<dyn Model>> {
    let (began, cancel) = (Instant::now(), AtomicBool::new(false));
    let loading = SelfLoadOptions { device: device.clone(), reserve: None, progress: &Quiet, cancel: &cancel };
    let loaded = self_load(file, &loading)?;
    println!("{} loaded in {:.1} s", file.logical_size(), began.elapsed().as_secs_f64());
    let began = Instant::now();
    let options =
        BindOptions { context: Tokens(CONTEXT), kv_rounding: KvRounding::Exact, device, prompt_profile: None };
    let model = ds4_families::deepseek4::bind_model(file, &loaded.weights, &options)?;
    println!("bound, self-test included, in {} ms", began.elapsed().as_millis());
    Ok(model)
}

/// What logits are compared with.
enum Against {
    Reference,
    Cpu,
    Nothing,
}

struct Arguments {
    path: Option<PathBuf>,
    against: Against,
}

fn arguments() -> anyhow::Result<Arguments> {
    let (mut path, mut against) = (None, Against::Reference);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--model" => path = Some(PathBuf::from(arguments.next().context("--model needs a file")?)),
            "--no-reference" => against = Against::Nothing,
            "--against-cpu" => against = Against::Cpu,
            other => bail!("{other:?} is no argument: --model FILE, --no-reference and --against-cpu are"),
        }
    }
    Ok(Arguments { path, against })
}
