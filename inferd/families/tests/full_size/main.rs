//! A model of full size on one GPU: logits against those of another engine, steps against each other, and speed.
//!
//! Not a test of `cargo test`: it takes the model file as its argument. The reference was computed from the file that the
//! generator of synthetic models writes for seed 1; for another file `--no-reference` leaves that part out.

mod checks;
mod conversation;
mod reference;
mod speed;

use anyhow::{Context, bail};
use conversation::Conversation;
use ds4_gpu::cuda::Gpu;
use ds4_import::{ComputeDevice, Progress, SelfLoadOptions, self_load};
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
    let (path, with_reference) = arguments()?;
    let Some(path) = path else {
        println!("full_size: no --model FILE, nothing is checked");
        return Ok(ExitCode::SUCCESS);
    };
    let file = ds4_gguf::Model::open(&path)?;
    let gpu = Gpu::open(0)?;
    let device = ComputeDevice::Gpu(gpu.clone());
    let free = gpu.memory()?.free;
    let (began, cancel) = (Instant::now(), AtomicBool::new(false));
    let loading = SelfLoadOptions { device: device.clone(), reserve: None, progress: &Quiet, cancel: &cancel };
    let loaded = self_load(&file, &loading)?;
    println!("{} loaded in {:.1} s", file.logical_size(), began.elapsed().as_secs_f64());
    let began = Instant::now();
    let options =
        BindOptions { context: Tokens(CONTEXT), kv_rounding: KvRounding::Exact, device, prompt_profile: None };
    let model = ds4_families::deepseek4::bind_model(&file, &loaded.weights, &options)?;
    println!("bound, self-test included, in {} ms", began.elapsed().as_millis());
    let mut conversation = Conversation::new(model);
    let reference = reference::read()?;
    let mut table = checks::Table::default();
    if with_reference {
        checks::against_the_reference(&mut conversation, &reference, &mut table)?;
    }
    checks::steps_against_each_other(&mut conversation, &reference.tokens, &mut table)?;
    speed::measure(&mut conversation, &reference.tokens)?;
    for (purpose, bytes) in conversation.device_memory() {
        println!("device memory beyond the weights: {bytes} {purpose}");
    }
    println!("device memory taken in all: {}", Bytes(free.0.saturating_sub(gpu.memory()?.free.0)));
    Ok(table.finish())
}

/// `--model FILE` and whether `--no-reference` is missing.
fn arguments() -> anyhow::Result<(Option<PathBuf>, bool)> {
    let (mut path, mut with_reference) = (None, true);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--model" => path = Some(PathBuf::from(arguments.next().context("--model needs a file")?)),
            "--no-reference" => with_reference = false,
            other => bail!("{other:?} is no argument: --model FILE and --no-reference are"),
        }
    }
    Ok((path, with_reference))
}
