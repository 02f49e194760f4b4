//! Banks that leave the process and come back.

use crate::kit;
use ds4_gguf::{Array, Metadata, Value, writer::Writer};
use ds4_model::{BankError, BankImage, KvRounding, LogitsWanted, Model};
use ds4_units::{BankId, TokenId, Tokens};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MODELS: [&str; 4] = ["flash-micro", "pro-micro", "kshape", "f16-micro"];

/// A model's file and its longest prompt.
fn fixture(name: &str) -> Option<(PathBuf, Vec<TokenId>)> {
    let path = kit::oracle(name)?;
    let prompts = kit::oracle_prompts(&path);
    let tokens = prompts.into_iter().map(|prompt| prompt.tokens).max_by_key(Vec::len).expect("a prompt");
    Some((path.with_extension("gguf"), tokens))
}

fn filled(model: &mut dyn Model, tokens: &[TokenId]) -> BankId {
    let bank = model.open_bank();
    kit::feed(model, bank, 0, tokens, LogitsWanted::None);
    bank
}

fn logits_after(model: &mut dyn Model, bank: BankId, tokens: &[TokenId], from: usize) -> Vec<Vec<f32>> {
    let logits = kit::feed(model, bank, from, &tokens[from..], LogitsWanted::All);
    logits.of_segment(0).map(<[f32]>::to_vec).collect()
}

/// As a disk gives it back.
fn through_bytes(image: &BankImage) -> BankImage {
    let copy = |bytes: &[u8]| Arc::new(bytes.to_vec()) as Arc<_>;
    let blocks = image.blocks.iter().map(|block| copy(block.as_ref().as_ref())).collect();
    BankImage { blocks, recurrent: image.recurrent.clone() }
}

#[test]
fn a_restored_bank_goes_on_with_the_same_bits_in_another_process() {
    for name in MODELS {
        let Some((path, tokens)) = fixture(name) else { return };
        let expected = kit::all_logits(kit::load(&path, KvRounding::Exact).as_mut(), &tokens);
        for cut in [1, 5, 127, 128, 129, tokens.len() / 2, tokens.len() - 1] {
            if cut >= tokens.len() {
                continue;
            }
            let mut first = kit::load(&path, KvRounding::Exact);
            let bank = filled(first.as_mut(), &tokens[..cut]);
            let image = through_bytes(&first.export(bank, 0).expect("banks can be exported"));
            let mut second = kit::load(&path, KvRounding::Exact);
            assert_eq!(first.bank_format(), second.bank_format());
            let bank = second.import(&tokens[..cut], &image).expect("and imported");
            assert_eq!(second.frontier(bank), Some(Tokens(cut as u32)));
            let logits = logits_after(second.as_mut(), bank, &tokens, cut);
            assert!(logits == expected[cut..], "{name} restored at {cut} of {} tokens", tokens.len());
        }
    }
}

#[test]
fn blocks_of_an_earlier_export_with_those_since_make_the_whole_bank() {
    let Some((path, tokens)) = fixture("flash-micro") else { return };
    let tokens: Vec<TokenId> = tokens.iter().copied().cycle().take(700).collect();
    let mut model = kit::load(&path, KvRounding::Exact);
    let expected = kit::all_logits(model.as_mut(), &tokens);
    let bank = filled(model.as_mut(), &tokens[..300]);
    let mut image = model.export(bank, 0).expect("an export");
    kit::feed(model.as_mut(), bank, 300, &tokens[300..650], LogitsWanted::None);
    let since = model.export(bank, 300 / 128).expect("an export");
    assert_eq!((image.blocks.len(), since.blocks.len()), (3, 4));
    image.blocks.truncate(300 / 128);
    image.blocks.extend(since.blocks);
    image.recurrent = since.recurrent;
    let restored = model.import(&tokens[..650], &image).expect("an import");
    assert!(logits_after(model.as_mut(), restored, &tokens, 650) == expected[650..]);
}

#[test]
fn an_export_is_not_changed_by_what_its_bank_does_next() {
    let Some((path, tokens)) = fixture("flash-micro") else { return };
    let cut = tokens.len() / 2;
    let mut model = kit::load(&path, KvRounding::Exact);
    let expected = kit::all_logits(model.as_mut(), &tokens);
    let bank = filled(model.as_mut(), &tokens[..cut]);
    let image = model.export(bank, 0).expect("an export");
    logits_after(model.as_mut(), bank, &tokens, cut);
    let restored = model.import(&tokens[..cut], &image).expect("an import");
    assert!(logits_after(model.as_mut(), restored, &tokens, cut) == expected[cut..]);
    // The imported bank can be cut back to where it was imported, and shares nothing with the image.
    assert_eq!(model.truncate(restored, Tokens(cut as u32)), Ok(Tokens(cut as u32)));
    assert!(logits_after(model.as_mut(), restored, &tokens, cut) == expected[cut..]);
}

#[test]
fn a_bank_of_windows_alone_has_blocks_without_bytes_and_comes_back_too() {
    let Some((path, tokens)) = fixture("flash-micro") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let windows = folder.path().join("windows.gguf");
    write_again(&path, &windows, |values| {
        let ratios = values.u64s("deepseek4.attention.compress_ratios").expect("numbers").expect("it has them");
        ("deepseek4.attention.compress_ratios", Value::Array(Array::U32(vec![0; ratios.len()])))
    });
    let tokens: Vec<TokenId> = tokens.iter().copied().cycle().take(300).collect();
    let mut model = kit::load(&windows, KvRounding::Exact);
    let expected = kit::all_logits(model.as_mut(), &tokens);
    let bank = filled(model.as_mut(), &tokens[..200]);
    let image = through_bytes(&model.export(bank, 0).expect("an export"));
    assert!(image.blocks.len() == 2 && image.blocks.iter().all(|block| block.as_ref().as_ref().is_empty()));
    let restored = model.import(&tokens[..200], &image).expect("an import");
    assert!(logits_after(model.as_mut(), restored, &tokens, 200) == expected[200..]);
}

/// Writes a model again with one value changed.
fn write_again(model: &Path, to: &Path, change: impl FnOnce(&Metadata) -> (&'static str, Value)) {
    let model = ds4_gguf::Model::open(model).expect("a model");
    let (key, value) = change(model.metadata());
    Writer::copy_of(&model).expect("its bytes").value(key, value).write(to).expect("a file");
}

/// Weights are the same, and what they compute is not.
#[test]
fn banks_of_models_that_differ_in_a_constant_are_told_apart() {
    let Some((path, _)) = fixture("flash-micro") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let format = |path: &Path| kit::load(path, KvRounding::Exact).bank_format();
    let own = format(&path);
    for (key, value, is_other) in [
        ("deepseek4.rope.freq_base", Value::F32(20_000.0), true),
        ("deepseek4.attention.layer_norm_rms_epsilon", Value::F32(2e-6), true),
        ("deepseek4.context_length", Value::U32(5_000), false),
        ("general.name", "another name".into(), false),
    ] {
        let other = folder.path().join("other.gguf");
        write_again(&path, &other, |_| (key, value));
        assert_eq!(format(&other) != own, is_other, "{key}");
    }
}

#[test]
fn bytes_that_no_bank_can_have_are_refused() {
    for rounding in [KvRounding::Exact, KvRounding::Off] {
        let Some((path, tokens)) = fixture("flash-micro") else { return };
        let tokens = &tokens[..tokens.len().min(40)];
        let mut model = kit::load_with_context(&path, rounding, Tokens(256));
        let bank = filled(model.as_mut(), tokens);
        let honest = through_bytes(&model.export(bank, 0).expect("an export"));
        let count = Tokens(tokens.len() as u32);
        let mut refused = |tokens: Tokens, image: &BankImage, part: &str| match model
            .import(&vec![TokenId(1); tokens.index()], image)
        {
            Err(BankError::Image { problem }) => assert!(problem.contains(part), "{problem}"),
            other => panic!("{part}: {other:?}"),
        };
        refused(Tokens(300), &honest, "the context is 256");
        refused(Tokens(129), &honest, "has 1 blocks");
        let mut short = honest.clone();
        short.recurrent.pop();
        refused(count, &short, "recurrent part");
        let mut short = honest.clone();
        short.blocks[0] = Arc::new(vec![0; 3]);
        refused(count, &short, "a block of 3 bytes");
        // All ones are no number in any format: E4M3, half floats, scales, f32.
        let mut wrong = honest.clone();
        wrong.recurrent.fill(0xff);
        refused(count, &wrong, "not a finite number");
        let mut wrong = honest.clone();
        wrong.blocks[0] = Arc::new(vec![0xff; honest.blocks[0].as_ref().as_ref().len()]);
        refused(count, &wrong, "not a finite number");
    }
}

#[test]
fn layouts_of_other_rows_are_told_apart() {
    for name in MODELS {
        let Some((path, _)) = fixture(name) else { return };
        let [packed, plain] = [KvRounding::Exact, KvRounding::Off].map(|rounding| kit::load(&path, rounding));
        assert_ne!(packed.bank_format().layout, plain.bank_format().layout, "{name}");
        assert!(packed.bank_format().layout.starts_with("deepseek4 "));
    }
}
