//! Flags about what the HTTP surfaces do with prompts and answers.

use clap::builder::BoolishValueParser;
use clap::{Args, ValueEnum};
use ds4_api::{KeepTurns, ReasoningReplay, Settings, ThinkingSampling};
use ds4_model::{REMEMBERED_CALLS_MAX, ThinkingMode};
use ds4_units::Bytes;
use std::path::PathBuf;
use std::time::Duration;

/// A switch that is spelled out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Switch {
    /// Yes
    On,
    /// No
    Off,
}

/// Whose sampling counts for answers that reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SamplingArg {
    /// The request's
    Asked,
    /// The defaults, whatever the request says
    Fixed,
}

/// What becomes of the reasoning in earlier answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ReplayArg {
    /// What the model was trained with: kept where tools are in play
    Keep,
    /// Left out everywhere
    Drop,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Protocols")]
pub(super) struct ProtocolArgs {
    /// Whether answers of /v1/messages reason when a request does not say
    #[arg(long, value_enum, value_name = "ON|OFF", default_value = "off", env = "DS4_ANTHROPIC_DEFAULT_THINKING")]
    anthropic_default_thinking: Switch,

    /// Stream the arguments of calls on /v1/messages while they are generated; malformed calls are not retried then
    #[arg(long, env = "DS4_ANTHROPIC_LIVE_ARGS", value_parser = BoolishValueParser::new())]
    anthropic_live_args: bool,

    /// Take every effort a client names for `low`, so that clients which change it keep their cached prompt
    #[arg(long, env = "DS4_EFFORT_COMPAT", value_parser = BoolishValueParser::new())]
    effort_compat: bool,

    /// Whose temperature, top_p and so on count for answers that reason
    #[arg(long, value_enum, value_name = "WHOSE", default_value = "asked", env = "DS4_THINKING_SAMPLING")]
    thinking_sampling: SamplingArg,

    /// What becomes of the reasoning in earlier answers
    #[arg(long, value_enum, value_name = "WHAT", default_value = "keep", env = "DS4_REASONING_REPLAY")]
    reasoning_replay: ReplayArg,

    /// Put prompts of /v1/completions into a conversation instead of continuing them as they are
    #[arg(long, env = "DS4_WRAP_COMPLETIONS", value_parser = BoolishValueParser::new())]
    wrap_completions: bool,

    /// Remind the model in tool results of long conversations how to call tools
    #[arg(long, value_enum, value_name = "ON|OFF", default_value = "on", env = "DS4_TOOL_CALL_REMINDER")]
    tool_call_reminder: Switch,

    /// Bytes of a prompt beyond which tool results carry the reminder
    #[arg(long, value_name = "BYTES", default_value_t = 98_304, env = "DS4_TOOL_CALL_REMINDER_MIN_BYTES")]
    tool_call_reminder_min_bytes: u64,

    /// Ask once more, with another seed, for a chat reply that announces a tool call and makes none (not for streams)
    #[arg(long, env = "DS4_TOOL_SLIP_RESAMPLE", value_parser = BoolishValueParser::new())]
    tool_slip_resample: bool,

    /// Append requests whose answers announce a tool call and make none to tool-slips.jsonl in this folder, in clear
    /// (mode 0600; links are refused)
    #[arg(long, value_name = "DIR", env = "DS4_TOOL_SLIP_DUMP_DIR")]
    pub(super) tool_slip_dump: Option<PathBuf>,

    /// Tool calls remembered as they were generated, so that clients which change their spelling keep their cached
    /// prompt
    #[arg(long, value_name = "N", default_value_t = REMEMBERED_CALLS_MAX, env = "DS4_TOOL_MEMORY_MAX_IDS")]
    tool_memory_max_ids: usize,

    /// Render earlier tool calls as clients send them
    #[arg(long, env = "DS4_DISABLE_EXACT_DSML_TOOL_REPLAY", value_parser = BoolishValueParser::new())]
    disable_exact_dsml_tool_replay: bool,

    /// Finished turns that clients may go on from without sending them again; 0 keeps none
    #[arg(long, value_name = "N", default_value_t = KeepTurns::default().records, env = "DS4_CONT_REGISTRY_MAX")]
    cont_registry_max: usize,

    /// Seconds for which a turn with tool calls, and its place in memory, is not given up for another
    #[arg(long, value_name = "S", default_value_t = KeepTurns::default().grace.as_secs(), env = "DS4_CONT_GRACE_S")]
    cont_grace_s: u64,

    /// Seconds after which a turn is given up
    #[arg(long, value_name = "S", default_value_t = KeepTurns::default().lifetime.as_secs(), env = "DS4_CONT_TTL_S")]
    cont_ttl_s: u64,

    /// Append every request with its prompt and answer to this file, in clear (mode 0600; links are refused)
    #[arg(long, value_name = "FILE", env = "DS4_TRACE")]
    pub(super) trace: Option<PathBuf>,
}

impl ProtocolArgs {
    /// How long the conversation of a turn with tool calls keeps its place in memory.
    pub(super) fn grace(&self) -> Duration {
        Duration::from_secs(self.cont_grace_s)
    }

    /// `settings` with these flags.
    pub(super) fn applied_to(&self, settings: Settings) -> Settings {
        let remembers = !self.disable_exact_dsml_tool_replay;
        let reminds = self.tool_call_reminder == Switch::On;
        Settings {
            anthropic_thinking: match self.anthropic_default_thinking {
                Switch::On => ThinkingMode::On,
                Switch::Off => ThinkingMode::Off,
            },
            anthropic_live_args: self.anthropic_live_args,
            effort_compat: self.effort_compat,
            thinking_sampling: match self.thinking_sampling {
                SamplingArg::Asked => ThinkingSampling::Asked,
                SamplingArg::Fixed => ThinkingSampling::Fixed,
            },
            reasoning_replay: match self.reasoning_replay {
                ReplayArg::Keep => ReasoningReplay::Keep,
                ReplayArg::Drop => ReasoningReplay::Drop,
            },
            wrap_completions: self.wrap_completions,
            reminder_after: reminds.then_some(Bytes(self.tool_call_reminder_min_bytes)),
            resample_slips: self.tool_slip_resample,
            remembered_calls: if remembers { self.tool_memory_max_ids } else { 0 },
            keep_turns: KeepTurns {
                records: self.cont_registry_max,
                grace: self.grace(),
                lifetime: Duration::from_secs(self.cont_ttl_s),
            },
            ..settings
        }
    }
}
