//! Models and reference arrays from fixtures.

use ds4_families::deepseek4;
use ds4_gpu::Memory;
use ds4_import::{ComputeDevice, Tensor, Weights};
use ds4_model::{BindOptions, DraftSource, KvRounding, LogitsWanted, Model, Segment, StepBatch, StepLogits};
use ds4_units::{BankId, Layout, TokenId, TokenPos, Tokens};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The repository's root: where this was built or, if it has been carried elsewhere, the working directory.
pub(crate) fn root() -> PathBuf {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    if built.join("tests/fixtures").exists() { built } else { PathBuf::new() }
}

/// Where an oracle model's files are: in the repository, or in the folder that `DS4_ORACLE_DIR` names. Says so and
/// returns nothing when they are in neither.
pub(crate) fn oracle(name: &str) -> Option<PathBuf> {
    let tracked = root().join("tests/fixtures/oracle").join(name);
    let folder = std::env::var_os("DS4_ORACLE_DIR").map(|folder| Path::new(&folder).join("dsv4/out").join(name));
    let found = [Some(tracked), folder].into_iter().flatten().find(|path| path.with_extension("gguf").exists());
    if found.is_none() {
        println!("{name} was not checked: it is not where DS4_ORACLE_DIR says, if it is set");
    }
    found
}

/// The oracle models.
pub(crate) const ORACLE_MODELS: [&str; 4] = ["flash-micro", "pro-micro", "kshape", "f16-micro"];

/// A reference prompt.
pub(crate) struct Prompt {
    pub(crate) name: String,
    pub(crate) tokens: Vec<TokenId>,
    /// First position at which the reference itself, run in f32, has chosen differently than in f64.
    pub(crate) first_flip: usize,
}

/// The reference prompts of an oracle model.
pub(crate) fn oracle_prompts(path: &Path) -> Vec<Prompt> {
    let text = std::fs::read_to_string(path.with_extension("json")).expect("reference description");
    let description: Value = serde_json::from_str(&text).expect("valid JSON");
    let prompts = description["prompts"].as_object().expect("prompts");
    prompts
        .iter()
        .map(|(name, prompt)| {
            let tokens: Vec<TokenId> = prompt["ids"]
                .as_array()
                .expect("ids")
                .iter()
                .map(|id| TokenId(id.as_u64().expect("an id") as u32))
                .collect();
            let flip = &prompt["qat_f32_first_pos_over_1e-3"];
            let first_flip = flip.as_u64().map_or(tokens.len(), |position| position as usize);
            Prompt { name: name.clone(), tokens, first_flip }
        })
        .collect()
}

/// Binds the model in a GGUF file.
pub(crate) fn load(path: &Path, kv_rounding: KvRounding) -> Box<dyn Model> {
    load_with_context(path, kv_rounding, Tokens(1 << 16))
}

/// The same with a bound on conversations.
pub(crate) fn load_with_context(path: &Path, kv_rounding: KvRounding, context: Tokens) -> Box<dyn Model> {
    load_on(ComputeDevice::Cpu, path, kv_rounding, context)
}

/// The same on a device.
pub(crate) fn load_on(device: ComputeDevice, path: &Path, kv_rounding: KvRounding, context: Tokens) -> Box<dyn Model> {
    let file = ds4_gguf::Model::open(path).expect("fixture opens");
    let weights = read_weights(&file);
    let options = BindOptions { context, kv_rounding, device };
    deepseek4::bind_model(&file, &weights, None, &options).expect("fixture binds")
}

/// The demo model with its draft block, on a device.
pub(crate) fn load_demo_with_draft(device: ComputeDevice, kv_rounding: KvRounding) -> Box<dyn Model> {
    let [file, draft] = ["ds4-demo-16m.gguf", "ds4-demo-16m-mtp.gguf"]
        .map(|name| ds4_gguf::Model::open(&root().join("scripts/demo-model").join(name)).expect("fixture opens"));
    let (weights, draft_weights) = (read_weights(&file), read_weights(&draft));
    let options = BindOptions { context: Tokens(1 << 15), kv_rounding, device };
    let source = DraftSource { file: &draft, weights: &draft_weights };
    deepseek4::bind_model(&file, &weights, Some(source), &options).expect("fixture binds")
}

/// All tensors of a file, in plain memory.
pub(crate) fn read_weights(file: &ds4_gguf::Model) -> Weights {
    let tensors = file.tensors().iter().map(|info| {
        let bytes = file.read_tensor(info).expect("fixture reads");
        let len = bytes.len();
        let (name, dims, memory) = (info.name.clone(), info.dims.clone(), Memory::host(bytes));
        Tensor::new(name, info.kind, dims, Layout::Gguf, memory, 0..len).expect("sizes match")
    });
    Weights::from_tensors(tensors.collect::<Vec<_>>()).expect("names are unique")
}

/// Feeds one segment.
pub(crate) fn feed(
    model: &mut dyn Model,
    bank: BankId,
    start: usize,
    tokens: &[TokenId],
    logits: LogitsWanted,
) -> StepLogits {
    let segment = Segment { bank, start: TokenPos(start as u32), tokens, logits, drafted: 0 };
    model.step(&StepBatch { segments: &[segment] }).expect("the step runs")
}

/// Logits of every position, fed in one step.
pub(crate) fn all_logits(model: &mut dyn Model, tokens: &[TokenId]) -> Vec<Vec<f32>> {
    let bank = model.open_bank();
    let logits = feed(model, bank, 0, tokens, LogitsWanted::All);
    let rows = logits.of_segment(0).map(<[f32]>::to_vec).collect();
    model.close_bank(bank);
    rows
}

/// The index of the largest value, the lower one on ties.
pub(crate) fn argmax(row: &[f32]) -> TokenId {
    let best = (0..row.len()).reduce(|best, index| if row[index] > row[best] { index } else { best });
    TokenId(best.expect("a row has values") as u32)
}

/// `f32` rows of an array in an npz archive.
pub(crate) fn reference_rows(path: &Path, name: &str) -> Vec<Vec<f32>> {
    let mut archive = npyz::npz::NpzArchive::open(path).expect("reference archive");
    let array = archive.by_name(name).expect("readable archive").unwrap_or_else(|| panic!("{name} is not in {path:?}"));
    let width = *array.shape().last().expect("an array of rows") as usize;
    let values: Vec<f32> = array.into_vec().expect("f32 values");
    values.chunks_exact(width).map(<[f32]>::to_vec).collect()
}
