//! Every flag of `ds4` with its help text and its environment fallback.

mod kv;

use clap::{Parser, ValueEnum};
use ds4_boot::ModelArgs;
use ds4_engine::{Sampling, TOP_LOGPROBS_MAX};
use ds4_host::Exit;
use ds4_model::Effort;
pub(crate) use kv::{ApiArg, Command, FolderArgs, KvAction, KvArgs, PruneArgs, Switch, WhyMissArgs};
use std::path::PathBuf;

/// Exit codes that this program gives.
const EXITS: &[Exit] = &[
    Exit::Ok,
    Exit::Failed,
    Exit::Usage,
    Exit::ModelFile,
    Exit::Memory,
    Exit::Aborted,
    Exit::ImportRefused,
    Exit::OwnerLost,
    Exit::WeightsMismatch,
    Exit::Engine,
    Exit::Interrupted,
];

const LONG_ABOUT: &str = "\
Asks a model one question and prints the answer as it is written.

The answer goes to standard output; reasoning is dimmed on a terminal and goes to standard error otherwise, so that \
a pipe carries the answer alone. Ctrl-C ends an answer and keeps what was written; a second one ends at once.

With --weights it uses the weights of a running ds4-weightd and starts in milliseconds; without, it loads the file.";

const EXAMPLES: &str = "\
Examples:
  ds4 -m model.gguf -p \"Why is the sky blue?\"
  ds4 --weights /run/ds4/weights.json -p \"Name three rivers\" --no-think --temperature 0
  git diff | ds4 -m model.gguf --system \"Write a commit message\" -p -
  ds4 -m model.gguf -p \"Hello\" --dump-tokens              how the prompt is tokenised
  ds4 -m model.gguf -p \"Once upon\" --raw -n 20 --dump-logprobs out.json --logprobs-top-k 5
  ds4 kv list --kv-disk-dir DIR                          conversations that a server keeps on disk
  ds4 why-miss request.json -m model.gguf --kv-disk-dir DIR   why a request goes on from none, or from less

";

/// How much an answer reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EffortArg {
    /// Less than usual
    Low,
    /// Thorough
    High,
    /// As much as the model can
    Max,
}

impl EffortArg {
    pub(crate) fn level(self) -> Effort {
        match self {
            EffortArg::Low => Effort::Low,
            EffortArg::High => Effort::High,
            EffortArg::Max => Effort::Max,
        }
    }
}

/// Flags of `ds4`.
#[derive(Debug, Parser)]
#[command(name = "ds4", version, allow_negative_numbers = true, about = "Asks a model one question", long_about = LONG_ABOUT,
    subcommand_negates_reqs = true, args_conflicts_with_subcommands = true, disable_help_subcommand = true,
    after_help = format!("{EXAMPLES}{}", Exit::help(EXITS)))]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    /// The question; - reads it from standard input
    #[arg(short, long, value_name = "TEXT", required = true, allow_hyphen_values = true)]
    prompt: Option<String>,

    /// Instructions that go before the question
    #[arg(long, value_name = "TEXT", conflicts_with = "raw", allow_hyphen_values = true)]
    pub(crate) system: Option<String>,

    /// Let the model continue the text itself, without any conversation around it
    #[arg(long)]
    pub(crate) raw: bool,

    /// Reason before answering (the default)
    #[arg(long, conflicts_with_all = ["no_think", "raw"])]
    pub(crate) think: bool,

    /// Answer at once
    #[arg(long, conflicts_with = "raw")]
    pub(crate) no_think: bool,

    /// How much to reason
    #[arg(long, value_enum, value_name = "LEVEL", conflicts_with_all = ["no_think", "raw"], env = "DS4_REASONING_EFFORT")]
    pub(crate) reasoning_effort: Option<EffortArg>,

    #[command(flatten)]
    pub(crate) model: ModelArgs,

    #[command(flatten)]
    pub(crate) answer: AnswerArgs,

    /// Print the prompt's tokens, one a line: id and spelling; nothing is generated
    #[arg(long, help_heading = "Inspection")]
    pub(crate) dump_tokens: bool,

    /// Write prompt tokens, generated tokens and the likeliest alternatives to a JSON file, readable by you alone
    #[arg(long, value_name = "FILE", help_heading = "Inspection", conflicts_with = "dump_tokens")]
    pub(crate) dump_logprobs: Option<PathBuf>,

    /// Alternatives for each position of --dump-logprobs
    #[arg(long, value_name = "N", default_value_t = 20, help_heading = "Inspection",
        value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=TOP_LOGPROBS_MAX as u64))]
    pub(crate) logprobs_top_k: usize,
}

impl Args {
    /// The question's text, or `-`.
    pub(crate) fn prompt(&self) -> &str {
        self.prompt.as_deref().unwrap_or_default()
    }
}

/// How tokens are drawn and when the answer ends.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Answer")]
pub(crate) struct AnswerArgs {
    /// Tokens of the answer at most [default: what the context holds]
    #[arg(short = 'n', long, value_name = "N", env = "DS4_TOKENS")]
    pub(crate) tokens: Option<u32>,

    /// 0 always takes the likeliest token; up to 2
    #[arg(long, visible_alias = "temp", value_name = "T", default_value_t = Sampling::DEFAULT.temperature,
        value_parser = within(0.0, 2.0))]
    pub(crate) temperature: f32,

    /// Draw from the likeliest tokens that together reach this probability
    #[arg(long, value_name = "P", default_value_t = Sampling::DEFAULT.top_p, value_parser = within(f32::MIN_POSITIVE, 1.0))]
    pub(crate) top_p: f32,

    /// Draw from this many of the likeliest tokens; 0 from all
    #[arg(long, value_name = "K", default_value_t = Sampling::DEFAULT.top_k)]
    pub(crate) top_k: u32,

    /// Draw from tokens at least this likely, relative to the likeliest
    #[arg(long, value_name = "P", default_value_t = Sampling::DEFAULT.min_p, value_parser = within(0.0, 1.0))]
    pub(crate) min_p: f32,

    /// Makes the draw repeatable
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,

    /// End the answer before this text; may be given several times
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) stop: Vec<String>,
}

impl AnswerArgs {
    pub(crate) fn sampling(&self) -> Sampling {
        Sampling {
            temperature: self.temperature,
            top_p: self.top_p,
            top_k: self.top_k,
            min_p: self.min_p,
            seed: self.seed,
        }
    }
}

/// A number between two bounds, both allowed.
fn within(min: f32, max: f32) -> impl Fn(&str) -> Result<f32, String> + Clone {
    move |text| {
        let number = text.parse().ok().filter(|number| (min..=max).contains(number));
        number.ok_or_else(|| {
            if min == 0.0 {
                format!("must be a number from 0 to {max}")
            } else {
                format!("must be above 0 and up to {max}")
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn wrong_values_name_their_flag() {
        for (arguments, flag) in [
            (&["-p", "x", "--temperature", "3"][..], "--temperature"),
            (&["-p", "x", "--top-p", "0"], "--top-p"),
            (&["-p", "x", "--min-p", "nan"], "--min-p"),
            (&["-p", "x", "--logprobs-top-k", "0"], "--logprobs-top-k"),
            (&["-p", "x", "--think", "--no-think"], "--no-think"),
            (&["-p", "x", "--raw", "--system", "y"], "--system"),
            (&["-p", "x", "--frobnicate"], "--frobnicate"),
            (&["--no-think"], "--prompt"),
            (&["kv", "list"], "--kv-disk-dir"),
            (&["kv", "prune", "--kv-disk-dir", "d", "--all", "--max-mb", "5"], "--all"),
            (&["why-miss", "--kv-disk-dir", "d"], "REQUEST"),
        ] {
            let arguments = std::iter::once("ds4").chain(arguments.iter().copied());
            let error = Args::try_parse_from(arguments).unwrap_err();
            assert!(error.to_string().contains(flag), "{error}");
            assert_eq!(error.exit_code(), i32::from(Exit::Usage.code()));
        }
    }
}
