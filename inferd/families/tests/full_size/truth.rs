//! Logits and operations against the CPU backend's, at the widths of the published model: for a model of few layers,
//! which host memory holds.

use crate::checks::{Table, compare, largest};
use crate::conversation::Conversation;
use crate::journal::{Findings, Journal, Taken};
use crate::watched::{Observed, Watched};
use ds4_families::deepseek4;
use ds4_import::{ComputeDevice, Weights};
use ds4_kernels::cuda::{Cuda, CudaOptions};
use ds4_kernels::kv_rows::{KvFormat, PackedRows, PlainRows};
use ds4_kernels::reference::Cpu;
use ds4_model::{BindOptions, KvRounding};
use ds4_units::Tokens;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// A prompt: so many of the reference's tokens, from which on.
type Prompt = (usize, usize);

const PLAIN: [Prompt; 3] = [(0, 1), (0, 130), (0, 700)];
const ROUNDED: [Prompt; 6] = [(0, 1), (0, 130), (0, 131), (1000, 130), (3000, 130), (0, 700)];
/// More tokens than the indexer may choose rows for.
const CHOOSING: Prompt = (0, 2100);

/// The angle between logits.
const COSINE_LEAST: f64 = 0.999;
/// The same for one prompt whose decisions are free to fall otherwise. The mean of all prompts is held to the other bar.
const COSINE_LEAST_FREE: f64 = 0.99;
/// An operation's largest difference on equal inputs, as a share of the largest value: many rows are multiplied as half
/// floats.
const OPERATION_MOST: f32 = 2e-3;
/// Rows whose last places may be chosen otherwise: scores differ in their last bits. One of so many.
const CHOICES_PER_OTHER: usize = 1000;

/// The same weights on both sides.
pub(crate) struct Sides<'a> {
    pub(crate) file: &'a ds4_gguf::Model,
    pub(crate) host: &'a Weights,
    pub(crate) device: &'a Weights,
    pub(crate) gpu: &'a ds4_gpu::cuda::Gpu,
    pub(crate) context: Tokens,
}

/// A model whose operations can be looked at.
pub(crate) struct Side {
    pub(crate) conversation: Conversation,
    journal: Arc<Mutex<Journal>>,
}

impl Side {
    pub(crate) fn new<B: Observed>(backend: B, sides: &Sides<'_>, weights: &Weights) -> anyhow::Result<Side> {
        let journal = Arc::new(Mutex::new(Journal::new()));
        let watched = Watched::new(backend, Arc::clone(&journal));
        // Only the context counts: the backend is there already, and with it device and rounding.
        let options =
            BindOptions { context: sides.context, kv_rounding: KvRounding::Exact, device: ComputeDevice::Cpu };
        let model = deepseek4::bind_model_on(watched, sides.file, weights, &options)?;
        Ok(Side { conversation: Conversation::new(model), journal })
    }

    pub(crate) fn journal(&self) -> std::sync::MutexGuard<'_, Journal> {
        self.journal.lock().expect("nobody panicked")
    }

    fn logits(&mut self, tokens: &[u32]) -> anyhow::Result<Vec<f32>> {
        self.conversation.restart();
        self.conversation.feed(tokens, tokens.len())
    }
}

/// Plain rows, then rounded ones.
///
/// Without roundings the two computations stay together. With them a code or an expert that fell to the other side of a
/// tie changes what follows, for random weights more than for trained ones: then the logits of a single prompt say little,
/// and three things together say that nothing is wrong: each operation gives the CPU's result on the CPU's inputs, codes
/// and experts included; the logits agree where these decisions are the CPU's; and they agree in the mean where they
/// are not.
pub(crate) fn against_the_cpu(sides: &Sides<'_>, tokens: &[u32], table: &mut Table) -> anyhow::Result<()> {
    compare_rows::<PlainRows>(sides, tokens, &PLAIN, &[Taken::Nothing], table)?;
    let goes = [Taken::Nothing, Taken::Decisions, Taken::Everything];
    let free = compare_rows::<PackedRows>(sides, tokens, &ROUNDED, &goes, table)?;
    let mean = free.iter().sum::<f64>() / free.len() as f64;
    table.line(mean >= COSINE_LEAST, &format!("packed rows, free, mean of {} prompts: cosine {mean:.6}", free.len()));
    compare_rows::<PackedRows>(sides, tokens, &[CHOOSING], &[Taken::Everything], table)?;
    Ok(())
}

/// Compares every prompt; returns the cosines of those that went free.
fn compare_rows<F: KvFormat>(
    sides: &Sides<'_>,
    tokens: &[u32],
    prompts: &[Prompt],
    goes: &[Taken],
    table: &mut Table,
) -> anyhow::Result<Vec<f64>> {
    let mut truth = Side::new(Cpu::<F>::new(), sides, sides.host)?;
    let options = CudaOptions { context: sides.context };
    let mut ours = Side::new(Cuda::<F>::new(sides.gpu, options)?, sides, sides.device)?;
    let mut free = Vec::new();
    for &(from, len) in prompts {
        let tokens = &tokens[from..from + len];
        let began = Instant::now();
        truth.journal().record();
        let want = truth.logits(tokens)?;
        let seen = Arc::new(truth.journal().recorded());
        println!("{} rows, {len} tokens from {from} ({:.1} s on the CPU)", F::NAME, began.elapsed().as_secs_f64());
        for &taken in goes {
            ours.journal().compare(&seen, taken);
            let got = ours.logits(tokens)?;
            let findings = ours.journal().findings();
            let cosine = judge::<F>(taken, &got, &want, &findings, table);
            if taken == Taken::Nothing {
                free.push(cosine);
            }
        }
    }
    Ok(free)
}

/// Holds logits and findings to their bars; returns the cosine.
fn judge<F: KvFormat>(taken: Taken, got: &[f32], want: &[f32], findings: &Findings, table: &mut Table) -> f64 {
    let (cosine, rms) = compare(got, want);
    let apart = got.iter().zip(want).map(|(got, want)| (got - want).abs()).fold(0.0, f32::max);
    let first = largest(want, 2);
    let margin = want[first[0]] - want[first[1]];
    let same = largest(got, 1)[0] == first[0];
    let rounds = F::NAME == "packed";
    let (how, least) = match taken {
        Taken::Nothing if rounds => ("free", COSINE_LEAST_FREE),
        Taken::Nothing => ("free", COSINE_LEAST),
        Taken::Decisions => ("the CPU's stored rows and experts", COSINE_LEAST),
        Taken::Everything => ("each operation on the CPU's inputs", COSINE_LEAST),
    };
    let text = format!(
        "{how}: cosine {cosine:.6}, rms {rms:.1e}, at most {apart:.4} apart, margin of the first {margin:.4}, {}",
        if same { "the same first" } else { "another first" }
    );
    let operations = taken != Taken::Everything
        || findings.worst.0 <= OPERATION_MOST
            && findings.codes.otherwise + findings.routes.otherwise == 0
            && findings.choices.otherwise * CHOICES_PER_OTHER <= findings.choices.all;
    table.line(cosine >= least && (same || margin <= apart) && operations, &text);
    println!("         {findings}");
    cosine
}
