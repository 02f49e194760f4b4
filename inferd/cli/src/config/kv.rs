//! Flags of `ds4 kv` and `ds4 why-miss`.

use clap::{Args, Subcommand, ValueEnum};
use ds4_boot::ModelArgs;
use ds4_host::Exit;
use ds4_units::{Bytes, Tokens};
use std::path::PathBuf;
use std::time::Duration;

const KV_EXITS: &[Exit] = &[Exit::Ok, Exit::Failed, Exit::Usage, Exit::LockHeld, Exit::KvDamaged];

const KV_ABOUT: &str = "\
Looks at the conversations that ds4-server keeps with --kv-disk-dir. Needs no model and no GPU, and may run beside a \
server; only `prune` needs the folder for itself.

A file holds a conversation up to one of its tokens, or continues another file. What was said is never shown here.";

const KV_EXAMPLES: &str = "\
Examples:
  ds4 kv list --kv-disk-dir DIR                  what is kept, for which model, how large and how old
  ds4 kv list --kv-disk-dir DIR --json           the same for programs
  ds4 kv show 3f2a --kv-disk-dir DIR             one conversation and the files it goes on from
  ds4 kv verify --kv-disk-dir DIR                read every byte and compare it with its checksum
  ds4 kv prune --kv-disk-dir DIR --dry-run       what nobody can use any more
  ds4 kv prune --kv-disk-dir DIR --older-than 30 --max-mb 8192

";

const WHY_EXITS: &[Exit] = &[Exit::Ok, Exit::Failed, Exit::Usage, Exit::ModelFile, Exit::KvMiss];

const WHY_ABOUT: &str = "\
Says which kept conversation a request would go on from, and where the closest one begins to differ: the byte, both \
sides of it, and the part of the request that it comes from. The request is read and rendered as ds4-server does; \
nothing is computed, and of the model only the file's header is read.

The excerpts are what people wrote: this is the one command that shows them.

REQUEST is the body of a POST to /v1/chat/completions, /v1/completions, /v1/responses or /v1/messages, or one line of \
the file that ds4-server --trace writes.";

const WHY_EXAMPLES: &str = "\
Examples:
  ds4 why-miss request.json -m model.gguf --kv-disk-dir DIR
  tail -n 1 trace.jsonl | ds4 why-miss - -m model.gguf --kv-disk-dir DIR
  ds4 why-miss request.json -m model.gguf --kv-disk-dir DIR --json

Flags of the server that change prompts (--prompt-profile, --reasoning-effort, ...) must be given here too.

";

/// What `ds4` does other than asking a question.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Look at conversations on disk: list, show, verify, prune
    #[command(long_about = KV_ABOUT, after_help = format!("{KV_EXAMPLES}{}", Exit::help(KV_EXITS)))]
    Kv(KvArgs),
    /// Say which kept conversation a request would go on from, and why not from more of it
    #[command(long_about = WHY_ABOUT, after_help = format!("{WHY_EXAMPLES}{}", Exit::help(WHY_EXITS)))]
    WhyMiss(Box<WhyMissArgs>),
}

/// The folder, and who reads the output.
#[derive(Debug, Args)]
pub(crate) struct FolderArgs {
    /// The folder that ds4-server has as --kv-disk-dir
    #[arg(long, value_name = "DIR", env = "DS4_KV_DISK_DIR")]
    pub(crate) kv_disk_dir: PathBuf,

    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct KvArgs {
    #[command(subcommand)]
    pub(crate) action: KvAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KvAction {
    /// Print every file: tokens, size, age, why it was saved, whether it continues another
    List {
        #[command(flatten)]
        folder: FolderArgs,
    },
    /// Print what is known of one conversation, without what was said
    Show {
        /// Its file's name, or the beginning of it
        name: String,
        #[command(flatten)]
        folder: FolderArgs,
    },
    /// Check every byte of all files, or of those named; a damaged one gives exit code 30
    Verify {
        /// Files' names, or their beginnings
        names: Vec<String>,
        #[command(flatten)]
        folder: FolderArgs,
    },
    /// Remove files: without other flags those that nobody can use (damaged, set aside, unfinished)
    Prune {
        #[command(flatten)]
        which: PruneArgs,
        #[command(flatten)]
        folder: FolderArgs,
    },
}

#[derive(Debug, Args)]
pub(crate) struct PruneArgs {
    /// Conversations that were not used for so many days, too
    #[arg(long, value_name = "DAYS")]
    pub(crate) older_than: Option<u64>,

    /// And then the longest unused, until all files take at most so many MiB
    #[arg(long, value_name = "MIB")]
    pub(crate) max_mb: Option<u64>,

    /// Everything
    #[arg(long, conflicts_with_all = ["older_than", "max_mb"])]
    pub(crate) all: bool,

    /// Print what would be removed, and remove nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

impl PruneArgs {
    /// The age beyond which conversations go.
    pub(crate) fn age(&self) -> Option<Duration> {
        self.older_than.map(|days| Duration::from_secs(days.saturating_mul(24 * 3600)))
    }

    /// What may be left.
    pub(crate) fn most(&self) -> Option<Bytes> {
        self.max_mb.map(|mib| Bytes(mib.saturating_mul(1 << 20)))
    }
}

/// The surface a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ApiArg {
    /// /v1/chat/completions
    Chat,
    /// /v1/completions
    Completions,
    /// /v1/responses
    Responses,
    /// /v1/messages
    Messages,
}

/// A switch that is spelled out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    /// Yes
    On,
    /// No
    Off,
}

#[derive(Debug, Args)]
pub(crate) struct WhyMissArgs {
    /// The request's JSON; - reads it from standard input
    pub(crate) request: String,

    /// The API the request is for [default: as its fields, or the trace, say]
    #[arg(long, value_enum, value_name = "API")]
    pub(crate) api: Option<ApiArg>,

    #[command(flatten)]
    pub(crate) folder: FolderArgs,

    /// As ds4-server has it: shorter conversations are not restored
    #[arg(long, value_name = "N", default_value_t = 512, env = "DS4_KV_CACHE_MIN_TOKENS")]
    pub(crate) kv_cache_min_tokens: u32,

    /// As ds4-server has it: how much answers reason when a request does not say
    #[arg(long, value_enum, value_name = "LEVEL", env = "DS4_REASONING_EFFORT")]
    pub(crate) reasoning_effort: Option<super::EffortArg>,

    /// As ds4-server has it: answers of /v1/messages reason when a request does not say
    #[arg(long, value_enum, value_name = "ON|OFF", default_value = "off", env = "DS4_ANTHROPIC_DEFAULT_THINKING")]
    pub(crate) anthropic_default_thinking: Switch,

    #[command(flatten)]
    pub(crate) model: ModelArgs,
}

impl WhyMissArgs {
    /// The fewest tokens of a conversation that is restored.
    pub(crate) fn min_tokens(&self) -> Tokens {
        Tokens(self.kv_cache_min_tokens)
    }
}
