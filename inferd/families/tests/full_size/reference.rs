//! What another engine computed.

use anyhow::Context;
use serde_json::Value;
use std::path::Path;

/// Between the ids whose logits were kept.
pub(crate) const SAMPLE_STRIDE: usize = 2020;

/// Tokens, and what some of their first so many are followed by.
pub(crate) struct Reference {
    pub(crate) tokens: Vec<u32>,
    pub(crate) prompts: Vec<Prompt>,
}

/// The logits after a prompt.
pub(crate) struct Prompt {
    pub(crate) len: usize,
    /// The fifty largest, by id.
    pub(crate) top: Vec<usize>,
    /// Every 2,020th.
    pub(crate) sample: Vec<f32>,
}

/// Reads the fixture, from the repository or the working directory.
pub(crate) fn read() -> anyhow::Result<Reference> {
    let place = "tests/fixtures/full_size/reference.jsonl.zst";
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(place);
    let path = if built.exists() { built } else { place.into() };
    let packed = std::fs::File::open(&path).with_context(|| path.display().to_string())?;
    let text = String::from_utf8(zstd::decode_all(packed)?)?;
    let mut lines = text.lines().map(serde_json::from_str::<Value>);
    let tokens = numbers(&lines.next().context("an empty fixture")??["tokens"])?;
    let prompts = lines.map(|line| {
        let line = line?;
        Ok(Prompt {
            len: line["prompt"].as_u64().context("a prompt without length")? as usize,
            top: numbers(&line["top"])?.into_iter().map(|id| id as usize).collect(),
            sample: line["sample"]
                .as_array()
                .context("no sample")?
                .iter()
                .map(|value| value.as_f64().unwrap_or(f64::NAN) as f32)
                .collect(),
        })
    });
    Ok(Reference { tokens, prompts: prompts.collect::<anyhow::Result<_>>()? })
}

fn numbers(value: &Value) -> anyhow::Result<Vec<u32>> {
    let values = value.as_array().context("not a list")?;
    values.iter().map(|value| Ok(u32::try_from(value.as_u64().context("not a number")?)?)).collect()
}
