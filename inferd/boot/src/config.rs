//! The flags about model and weights that the worker and the command line share.

use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::str::FromStr;

/// Values of platform variables, read here and nowhere else.
#[derive(Debug, Default)]
pub struct Platform {
    /// `RUST_LOG`.
    pub log_filter: Option<String>,
}

impl Platform {
    /// Reads the environment.
    pub fn read() -> Platform {
        Platform { log_filter: std::env::var("RUST_LOG").ok() }
    }
}

/// What to do when no owner can be attached to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Fallback {
    /// Load the file in this process.
    SelfLoad,
}

/// Where to compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceChoice {
    /// Where the owner's weights are; without an owner on a GPU, or on the CPU where there is none.
    Auto,
    /// On the CPU.
    Cpu,
    /// On the GPU with this number.
    Gpu(u32),
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<DeviceChoice, String> {
        match text {
            "auto" => Ok(DeviceChoice::Auto),
            "cpu" => Ok(DeviceChoice::Cpu),
            number => number.parse().map(DeviceChoice::Gpu).map_err(|_| "auto, cpu or a GPU's number is needed".into()),
        }
    }
}

/// How KV rows are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum KvRows {
    /// As the model was trained
    Exact,
    /// Without rounding, for comparison with references
    Off,
}

/// Which model, from where, and how it is bound.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Model")]
pub struct ModelArgs {
    /// The model: a GGUF file, or the first of its shards [default: the file that the owner's manifest names]
    #[arg(short, long, value_name = "FILE", env = "DS4_MODEL")]
    pub model: Option<PathBuf>,

    /// Longest conversation, in tokens [default: 32768, or less if the model was trained for less]
    #[arg(short, long, value_name = "TOKENS", env = "DS4_CTX", value_parser = clap::value_parser!(u32).range(16..))]
    pub ctx: Option<u32>,

    /// Take the weights from the owner with this manifest; without it, this process loads the file itself
    #[arg(long, value_name = "MANIFEST", env = "DS4_WEIGHTS")]
    pub weights: Option<PathBuf>,

    /// The same, under the name that published deployments set
    #[arg(long, value_name = "MANIFEST", env = "DS4_CUDA_WEIGHT_IPC_MANIFEST", hide = true)]
    pub cuda_weight_ipc_manifest: Option<PathBuf>,

    /// Where to compute: `auto` (where the owner's weights are, else on a GPU if there is one), `cpu`, or a GPU's number
    #[arg(long, value_name = "DEVICE", default_value = "auto", env = "DS4_WORKER_DEVICE")]
    pub device: DeviceChoice,

    /// What to do when the owner cannot be attached to [default: end with an error]
    #[arg(long, value_enum, value_name = "HOW", env = "DS4_WEIGHTS_FALLBACK")]
    pub weights_fallback: Option<Fallback>,

    /// Which of the model's prompt wordings to use, for instance `release` or `revised` [default: the model's first]
    #[arg(long, value_name = "NAME", env = "DS4_PROMPT_PROFILE")]
    pub prompt_profile: Option<String>,

    /// Trust manifests and owners of this user too, beside this process's own user and root
    #[arg(long, value_name = "UID", env = "DS4_WEIGHTS_UID", value_delimiter = ',')]
    pub weights_uid: Vec<u32>,

    /// How long to wait for an owner that is not there or still loading
    #[arg(long, value_name = "SECONDS", default_value_t = 0, env = "DS4_WAIT")]
    pub wait: u64,

    /// How KV rows are kept: rounded exactly as the model was trained, or not at all, to compare with references
    #[arg(long, value_enum, value_name = "HOW", default_value = "exact", env = "DS4_KV_ROUNDING")]
    pub kv_rounding: KvRows,

    /// How answers are guessed ahead.
    #[command(flatten)]
    pub draft: DraftArgs,
}

/// How answers are guessed ahead.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Guessing ahead (speculative decoding)")]
pub struct DraftArgs {
    /// Guess ahead with the draft block (MTP) in this GGUF file, which was trained beside the model. Answers stay the same
    /// and are written sooner: guesses are checked in the step that follows, and made only while that pays [default: what
    /// the owner holds beside the model that its manifest names, if anything]
    #[arg(long, value_name = "FILE", env = "DS4_MTP")]
    pub mtp: Option<PathBuf>,

    /// Tokens to guess ahead in one step at most [default: 1]
    #[arg(long, value_name = "N", env = "DS4_MTP_DRAFT", value_parser = clap::value_parser!(u8).range(1..=AHEAD_MAX))]
    pub mtp_draft: Option<u8>,

    /// Make no guess whose logit leads the second best by less than this
    #[arg(long, value_name = "LOGITS", default_value_t = 0.0, env = "DS4_MTP_MARGIN", value_parser = margin)]
    pub mtp_margin: f32,

    /// Do not guess ahead, whatever the owner holds
    #[arg(long, conflicts_with = "mtp")]
    pub no_mtp: bool,
}

/// Tokens that may be guessed ahead in one step.
const AHEAD_MAX: i64 = 7;

fn margin(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(value) if value.is_finite() && value >= 0.0 => Ok(value),
        _ => Err("it is a number of 0 or more".into()),
    }
}

impl DraftArgs {
    /// Tokens to guess ahead in one step at most.
    pub fn ahead(&self) -> usize {
        usize::from(self.mtp_draft.unwrap_or(1))
    }
}

impl ModelArgs {
    /// The manifest to attach through, under whichever name it was given.
    pub fn manifest(&self) -> Option<&PathBuf> {
        self.weights.as_ref().or(self.cuda_weight_ipc_manifest.as_ref())
    }
}
