//! The draft block's logits against the oracle's.

use super::lead;
use crate::deepseek4::model::DeepSeek4;
use crate::deepseek4::{Sources, validate};
use ds4_gpu::Memory;
use ds4_import::{ComputeDevice, Tensor, Weights};
use ds4_kernels::kv_rows::PlainRows;
use ds4_kernels::reference::Cpu;
use ds4_model::{BindOptions, KvRounding, LogitsWanted, Model, Segment, StepBatch};
use ds4_units::{Layout, TokenId, TokenPos, Tokens};
use serde_json::Value;
use std::path::Path;

/// Positions of which the oracle has the block's logits: the last of those it ran over.
const ORACLE_LAST: usize = 16;
/// Positions it ran over at most.
const ORACLE_MOST: usize = 150;

fn weights(file: &ds4_gguf::Model) -> Weights {
    let tensors = file.tensors().iter().map(|info| {
        let bytes = file.read_tensor(info).expect("fixture reads");
        let len = bytes.len();
        let (name, dims) = (info.name.clone(), info.dims.clone());
        Tensor::new(name, info.kind, dims, Layout::Gguf, Memory::host(bytes), 0..len).expect("sizes match")
    });
    Weights::from_tensors(tensors.collect::<Vec<_>>()).expect("names are unique")
}

/// A model and its draft block.
pub(in crate::deepseek4) fn bound(folder: &Path, name: &str) -> DeepSeek4<Cpu<PlainRows>> {
    let open = |name: &str| ds4_gguf::Model::open(&folder.join(name)).expect("fixture opens");
    let (file, draft) = (open(&format!("{name}.gguf")), open(&format!("{name}-mtp.gguf")));
    let shape = validate(&file).expect("a sound file");
    super::draft::check(&shape, &file, &draft).expect("its own draft block");
    let (weights, draft) = (weights(&file), weights(&draft));
    let options = BindOptions { context: Tokens(1 << 12), kv_rounding: KvRounding::Off, device: ComputeDevice::Cpu };
    let sources = Sources { weights: &weights, draft: Some(&draft) };
    DeepSeek4::new(Cpu::new(), shape, sources, &options).expect("fixture binds")
}

#[test]
fn guesses_have_the_logits_of_the_reference() {
    let Some(folder) = std::env::var_os("DS4_ORACLE_DIR").map(|folder| Path::new(&folder).join("dsv4/out")) else {
        return println!("not checked: DS4_ORACLE_DIR does not say where the oracle is");
    };
    for name in ["flash-micro", "pro-micro", "kshape", "f16-micro"] {
        let mut model = bound(&folder, name);
        let text = std::fs::read_to_string(folder.join(name).with_extension("json")).expect("a description");
        let description: Value = serde_json::from_str(&text).expect("valid JSON");
        for (prompt, about) in description["prompts"].as_object().expect("prompts") {
            let ids = about["ids"].as_array().expect("ids").iter();
            let ids: Vec<TokenId> = ids.map(|id| TokenId(id.as_u64().expect("an id") as u32)).collect();
            let worst = worst_of(&mut model, &ids, &reference(&folder, name, prompt));
            println!("{name} {prompt}: {worst:.1e} of the largest logit");
            assert!(worst <= 1e-4, "{name} {prompt} is off by {worst:.1e} of the largest logit");
        }
    }
}

fn reference(folder: &Path, name: &str, prompt: &str) -> Vec<Vec<f32>> {
    let mut archive = npyz::npz::NpzArchive::open(folder.join(name).with_extension("npz")).expect("an archive");
    let array = archive.by_name(&format!("{prompt}.mtp_A")).expect("readable").expect("it has the block's logits");
    let width = *array.shape().last().expect("rows") as usize;
    let values: Vec<f32> = array.into_vec().expect("f32 values");
    values.chunks_exact(width).map(<[f32]>::to_vec).collect()
}

/// The largest difference over the last positions, in units of the largest logit. The conversation is fed in pieces of
/// changing lengths: the block's window must not depend on them.
fn worst_of(model: &mut DeepSeek4<Cpu<PlainRows>>, ids: &[TokenId], want: &[Vec<f32>]) -> f32 {
    let positions = (ids.len() - 1).min(ORACLE_MOST);
    let first = positions - ORACLE_LAST.min(positions);
    let top = want.iter().flatten().fold(0.0f32, |top, value| top.max(value.abs()));
    let bank = model.open_bank();
    let (mut fed, mut worst) = (0, 0.0f32);
    let mut pieces = [1usize, 7, 64, 3].into_iter().cycle();
    for (position, want) in (first..positions).zip(want) {
        // The guess after the token at `position + 1` takes the streams of `position`.
        while fed <= position {
            let count = pieces.next().expect("it cycles").min(position + 1 - fed);
            let (start, tokens) = (TokenPos(fed as u32), &ids[fed..fed + count]);
            let segment = Segment { bank, start, tokens, logits: LogitsWanted::None, drafted: 0 };
            model.step(&StepBatch { segments: &[segment] }).expect("the step runs");
            fed += count;
        }
        let mut banks = vec![model.banks.remove(&bank).expect("it is open")];
        banks[0].begin(&model.backend, 1).expect("memory");
        let computed = model.compute_draft(&ids[position + 1..position + 2], 0, &mut banks, &[0]).expect("it runs");
        model.banks.insert(bank, banks.remove(0));
        let off = computed.logits.iter().zip(want).map(|(got, want)| (got - want).abs() / top);
        worst = worst.max(off.fold(0.0, f32::max));
    }
    model.close_bank(bank);
    worst
}

#[test]
fn the_lead_is_over_the_second_wherever_it_stands() {
    assert_eq!(lead(&[1.0, 5.0, 3.0, -2.0]), 2.0);
    assert_eq!(lead(&[5.0, 5.0]), 0.0);
    assert_eq!(lead(&[7.0, 1.0, 6.5]), 0.5);
}
