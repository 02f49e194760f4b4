//! Dimensions and constants of a DeepSeek V4 model, read from metadata and checked.
//!
//! Two published shapes exist; any other file whose numbers fit the architecture's rules is a custom one. Keys are those
//! of the published files; a number that the architecture fixes is checked, not read.

use super::metadata::Keys;
use ds4_gguf::Metadata;
use ds4_kernels::bank::WINDOW;
use ds4_kernels::experts::EXPERTS_USED;
use ds4_kernels::hyper_connection::STREAMS;
use ds4_kernels::kv_rows::ROTARY;
use ds4_kernels::rope::Stretch;
use ds4_model::FamilyError;
use std::fmt;
use std::ops::RangeInclusive;

/// Channels of an index row.
pub(super) const INDEX_WIDTH: usize = 128;

/// Head widths that can be: the rotated channels and at least one group of plain ones.
const HEAD_WIDTHS: RangeInclusive<usize> = ROTARY + 64..=4096;

/// Which shape a file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShapeName {
    /// 43 layers, 256 experts.
    Flash,
    /// 61 layers, 384 experts.
    Pro,
    /// Anything else that fits the rules.
    Custom,
}

/// How a layer compresses the tokens that leave its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Not at all: tokens outside the window are forgotten.
    None,
    /// One row per 4 tokens, pooled with the window before; an indexer chooses what a query sees.
    Indexed,
    /// One row per 128 tokens, all of them seen.
    Dense,
}

/// Dimensions and constants.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct Shape {
    pub hidden: usize,
    pub vocabulary: usize,
    pub trained_context: u32,
    pub heads: usize,
    pub head_width: usize,
    pub query_rank: usize,
    pub output_groups: usize,
    pub output_rank: usize,
    pub experts: usize,
    pub expert_width: usize,
    pub hash_layers: usize,
    pub index_heads: usize,
    pub index_top: usize,
    pub sinkhorn_iterations: usize,
    pub norm_epsilon: f32,
    pub mix_epsilon: f32,
    pub expert_scale: f32,
    pub rope_base: f64,
    pub compressed_rope_base: f64,
    pub stretch: Stretch,
    /// One per layer.
    pub compression: Vec<Compression>,
    /// Clamp of the experts' hidden values, one per layer.
    pub clamps: Vec<f32>,
}

impl fmt::Display for ShapeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ShapeName::Flash => "Flash",
            ShapeName::Pro => "PRO",
            ShapeName::Custom => "custom",
        })
    }
}

impl Compression {
    fn from_ratio(ratio: u64) -> Option<Compression> {
        match ratio {
            0 => Some(Compression::None),
            4 => Some(Compression::Indexed),
            128 => Some(Compression::Dense),
            _ => None,
        }
    }

    /// Tokens per row; `None` where no rows are made.
    pub fn ratio(self) -> Option<usize> {
        match self {
            Compression::None => None,
            Compression::Indexed => Some(4),
            Compression::Dense => Some(128),
        }
    }
}

impl Shape {
    /// Reads and checks the metadata of a file of this architecture.
    pub fn read(metadata: &Metadata) -> Result<Shape, FamilyError> {
        let keys = Keys::new(metadata);
        check_fixed(&keys)?;
        let layers = keys.size("block_count", 1..=1024)?;
        let shape = Shape {
            hidden: keys.size("embedding_length", 1..=1 << 20)?,
            vocabulary: keys.size("vocab_size", 1..=1 << 24)?,
            trained_context: keys.size_or("context_length", 1_048_576, 1..=1 << 30)? as u32,
            heads: keys.size("attention.head_count", 1..=4096)?,
            head_width: keys.size("attention.key_length", HEAD_WIDTHS)?,
            query_rank: keys.size("attention.q_lora_rank", 1..=1 << 20)?,
            output_groups: keys.size("attention.output_group_count", 1..=4096)?,
            output_rank: keys.size("attention.output_lora_rank", 1..=1 << 20)?,
            experts: keys.size("expert_count", EXPERTS_USED..=1 << 16)?,
            expert_width: keys.size("expert_feed_forward_length", 1..=1 << 20)?,
            hash_layers: keys.size("hash_layer_count", 0..=layers)?,
            index_heads: keys.size("attention.indexer.head_count", 1..=4096)?,
            index_top: keys.size("attention.indexer.top_k", 1..=1 << 20)?,
            sinkhorn_iterations: keys.size("hyper_connection.sinkhorn_iterations", 1..=1000)?,
            norm_epsilon: keys.float("attention.layer_norm_rms_epsilon")? as f32,
            mix_epsilon: keys.float("hyper_connection.epsilon")? as f32,
            expert_scale: keys.float("expert_weights_scale")? as f32,
            rope_base: keys.float("rope.freq_base")?,
            compressed_rope_base: keys.float("attention.compress_rope_freq_base")?,
            stretch: Stretch {
                factor: keys.float_or("rope.scaling.factor", 16.0)?,
                original_context: keys.size_or("rope.scaling.original_context_length", 65_536, 1..=1 << 30)? as f64,
                beta_fast: keys.float_or("rope.scaling.yarn_beta_fast", 32.0)?,
                beta_slow: keys.float_or("rope.scaling.yarn_beta_slow", 1.0)?,
            },
            compression: read_compression(&keys, layers)?,
            clamps: read_clamps(&keys, layers)?,
        };
        shape.check_divisibility(&keys)?;
        Ok(shape)
    }

    /// Number of layers.
    pub fn layers(&self) -> usize {
        self.compression.len()
    }

    /// Which shape this is.
    pub fn name(&self) -> ShapeName {
        let dimensions = (self.layers(), self.hidden, self.vocabulary, self.heads, self.head_width, self.query_rank);
        let experts = (self.experts, self.expert_width, self.hash_layers, self.index_heads, self.index_top);
        let outputs = (self.output_groups, self.output_rank);
        let late = |layers: &[Compression]| {
            let pattern = [Compression::Indexed, Compression::Dense];
            layers.iter().enumerate().all(|(index, &layer)| layer == pattern[index % 2])
        };
        let (first, rest) = self.compression.split_at(2.min(self.layers()));
        if dimensions == (43, 4096, 129_280, 64, 512, 1024)
            && experts == (256, 2048, 3, 64, 512)
            && outputs == (8, 1024)
            && first.iter().all(|&layer| layer == Compression::None)
            && late(rest)
        {
            ShapeName::Flash
        } else if dimensions == (61, 7168, 129_280, 128, 512, 1536)
            && experts == (384, 3072, 3, 64, 1024)
            && outputs == (16, 1024)
            && first.iter().all(|&layer| layer == Compression::Dense)
            && late(rest)
        {
            ShapeName::Pro
        } else {
            ShapeName::Custom
        }
    }

    fn check_divisibility(&self, keys: &Keys<'_>) -> Result<(), FamilyError> {
        if !self.heads.is_multiple_of(self.output_groups) {
            let problem = format!("{} heads cannot form {} equal groups", self.heads, self.output_groups);
            return Err(keys.wrong("attention.output_group_count", problem));
        }
        if !(self.head_width - ROTARY).is_multiple_of(64) {
            let problem = format!("{} minus {ROTARY} is not a multiple of 64", self.head_width);
            return Err(keys.wrong("attention.key_length", problem));
        }
        if let Some(tokens) = keys.metadata().strings("tokenizer.ggml.tokens").ok().flatten()
            && tokens.len() != self.vocabulary
        {
            let problem = format!("{} does not match the file's {} tokens", self.vocabulary, tokens.len());
            return Err(keys.wrong("vocab_size", problem));
        }
        Ok(())
    }
}

/// Numbers that the architecture fixes.
fn check_fixed(keys: &Keys<'_>) -> Result<(), FamilyError> {
    for (key, value) in [
        ("attention.head_count_kv", 1),
        ("rope.dimension_count", ROTARY),
        ("expert_used_count", EXPERTS_USED),
        ("expert_shared_count", 1),
        ("attention.sliding_window", WINDOW),
        ("attention.indexer.key_length", INDEX_WIDTH),
        ("hyper_connection.count", STREAMS),
    ] {
        keys.size(key, value..=value)?;
    }
    let width = keys.size("attention.key_length", HEAD_WIDTHS)?;
    keys.size("attention.value_length", width..=width)?;
    for key in ["expert_group_count", "expert_group_used_count"] {
        keys.size_or(key, 0, 0..=0)?;
    }
    if !keys.flag("expert_weights_norm")? {
        return Err(keys.wrong("expert_weights_norm", "must be true".into()));
    }
    Ok(())
}

fn read_compression(keys: &Keys<'_>, layers: usize) -> Result<Vec<Compression>, FamilyError> {
    const KEY: &str = "attention.compress_ratios";
    // The published arrays have one more entry, for the draft block.
    let ratios = keys.sizes(KEY, layers)?;
    let read = |(layer, &ratio): (usize, &u64)| {
        Compression::from_ratio(ratio)
            .ok_or_else(|| keys.wrong(KEY, format!("layer {layer} has ratio {ratio}; known are 0, 4 and 128")))
    };
    ratios[..layers].iter().enumerate().map(read).collect()
}

fn read_clamps(keys: &Keys<'_>, layers: usize) -> Result<Vec<f32>, FamilyError> {
    const KEY: &str = "swiglu_clamp_exp";
    let clamps = keys.floats(KEY, layers)?;
    match clamps[..layers].iter().position(|&clamp| !(clamp.is_finite() && clamp > 0.0)) {
        Some(layer) => {
            Err(keys.wrong(KEY, format!("layer {layer} has {}; a positive number is needed", clamps[layer])))
        }
        None => Ok(clamps[..layers].iter().map(|&clamp| clamp as f32).collect()),
    }
}
