//! Every flag with its help text, and everything that is read from the environment.

use clap::builder::{BoolishValueParser, TypedValueParser};
use clap::{Parser, ValueEnum};
use ds4_host::Exit;
use std::path::PathBuf;

/// Exit codes that this program gives.
const EXITS: &[Exit] = &[
    Exit::Ok,
    Exit::Failed,
    Exit::Usage,
    Exit::ModelFile,
    Exit::Memory,
    Exit::Device,
    Exit::LockHeld,
    Exit::StaleState,
    Exit::Aborted,
    Exit::OwnerLoading,
    Exit::OwnerDraining,
    Exit::OwnerStale,
    Exit::NoOwner,
    Exit::OwnerUnreachable,
];

/// Exit codes of `ds4-weightd keep`.
const KEEP_EXITS: &[Exit] = &[Exit::Ok, Exit::Failed, Exit::Usage, Exit::LockHeld];

const KEEP_ABOUT: &str = "\
Holds the memory of weights and conversations while owners and workers come and go.

An owner parks the weights it has loaded: it gives the keeper descriptors of their \
memory, which keep it, on a GPU too. When the owner crashes or is upgraded, the next \
one takes them back and is ready without reading the model. Workers park the memory of \
conversations in the same way: the next worker goes on with them where a killed one \
stopped. What no worker comes back for is freed after the time that it named. The keeper \
itself maps nothing and uses no GPU. Under systemd the descriptors are in the manager's \
store as well (manifests/systemd), so that even the keeper can be restarted.

It keeps what it has until ds4-weightd --release, or until it is stopped with SIGTERM, \
which frees everything that no worker uses.";

const LONG_ABOUT: &str = "\
Loads a model once and lends it to workers.

ds4-weightd reads a GGUF file into memory that other processes can map read-only, \
on a GPU or on the host, and stays. Workers (ds4-server, ds4) attach to it in milliseconds, so that a worker's \
crash, upgrade or change of flags costs no loading.

Whoever can attach can read the weights; everyone with this user id, and root, can. \
Give other users access with --allow-uid or --allow-gid.

Every flag can also be set by the environment variable shown with it.";

const EXAMPLES: &str = "\
Examples:
  ds4-weightd --base model.gguf              hold a model; workers: ds4-server --weights MANIFEST
  ds4-weightd --base model.gguf --dry-run    show the plan and whether memory suffices
  ds4-weightd --status                       ask the running owner how it is
  ds4-weightd --status --wait 600            the same, once it is ready or ten minutes have passed
  ds4-weightd --release                      stop it and free the memory
  ds4-weightd keep                           hold the memory while owners are restarted or upgraded

";

fn after_help() -> String {
    format!("{EXAMPLES}{}", Exit::help(EXITS))
}

/// A whole number between two bounds, both allowed.
fn number(min: u64, max: u64) -> impl TypedValueParser<Value = u64> {
    clap::builder::StringValueParser::new().try_map(move |text: String| {
        text.parse::<u64>()
            .ok()
            .filter(|value| (min..=max).contains(value))
            .ok_or_else(|| format!("must be a whole number from {min} to {max}"))
    })
}

/// An even number: ranges hold whole multiples of 2 MiB.
fn span(text: &str) -> Result<u64, String> {
    text.parse::<u64>()
        .ok()
        .filter(|value| (64..=4096).contains(value) && value % 2 == 0)
        .ok_or_else(|| "must be an even whole number from 64 to 4096".to_owned())
}

/// A user or group id.
fn id(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("must be a whole number from 0 to {}", u32::MAX))
}

/// Values of platform variables, read here and nowhere else.
#[derive(Debug, Default)]
pub struct Platform {
    /// `XDG_RUNTIME_DIR`.
    pub xdg_runtime_dir: Option<PathBuf>,
    /// `RUST_LOG`.
    pub log_filter: Option<String>,
    /// Whether a service manager wants to be told (`NOTIFY_SOCKET`).
    pub has_manager: bool,
    /// Names of the descriptors that the service manager gives back (`LISTEN_PID`, `LISTEN_FDS`, `LISTEN_FDNAMES`).
    pub listen_names: Vec<String>,
}

impl Platform {
    /// Reads the environment.
    pub fn read() -> Platform {
        Platform {
            xdg_runtime_dir: std::env::var_os("XDG_RUNTIME_DIR").filter(|value| !value.is_empty()).map(PathBuf::from),
            log_filter: std::env::var("RUST_LOG").ok(),
            has_manager: std::env::var_os("NOTIFY_SOCKET").is_some(),
            listen_names: listen_names(),
        }
    }
}

/// One name for each descriptor meant for this process; none when they are another's, or make no sense.
fn listen_names() -> Vec<String> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    if number("LISTEN_PID") != Some(std::process::id()) {
        return Vec::new();
    }
    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    let names: Vec<String> = names.split(':').map(str::to_owned).collect();
    if number("LISTEN_FDS") == Some(names.len() as u32) { names } else { Vec::new() }
}

#[derive(Debug, Parser)]
#[command(
    name = "ds4-weightd",
    version,
    about = "Loads a model once and lends it to workers",
    long_about = LONG_ABOUT,
    after_help = after_help(),
)]
pub(crate) struct Args {
    /// The model to hold: a GGUF file, or the first of its shards
    #[arg(long, value_name = "FILE", env = "DS4_BASE")]
    pub(crate) base: Option<PathBuf>,

    /// A multi-token-prediction model to hold as well
    #[arg(long, value_name = "FILE", env = "DS4_MTP")]
    pub(crate) mtp: Option<PathBuf>,

    /// Where the manifest goes, which tells workers what is held [default: NAME.json in the run directory]
    #[arg(long, value_name = "FILE", env = "DS4_MANIFEST")]
    pub(crate) manifest: Option<PathBuf>,

    /// The socket that workers connect to [default: the manifest's path with .sock]
    #[arg(long, value_name = "FILE", env = "DS4_BROKER_SOCKET")]
    pub(crate) broker_socket: Option<PathBuf>,

    /// Keeps a second owner of the same name away [default: NAME.lock in the run directory]
    #[arg(long, value_name = "FILE", env = "DS4_LOCK_FILE")]
    pub(crate) lock_file: Option<PathBuf>,

    /// Folder for manifest, socket and lock [default: /run/ds4 if it can be written, else $XDG_RUNTIME_DIR/ds4]
    #[arg(long, value_name = "DIR", env = "DS4_RUN_DIR")]
    pub(crate) run_dir: Option<PathBuf>,

    /// What a keeper is for this owner: it holds the weights while the owner is away
    #[arg(long, value_enum, value_name = "CHOICE", default_value = "use", env = "DS4_KEEPER")]
    pub(crate) keeper: KeeperChoice,

    /// The keeper's socket [default: keeper.sock in the manifest's folder]
    #[arg(long, value_name = "FILE", env = "DS4_KEEPER_SOCKET")]
    pub(crate) keeper_socket: Option<PathBuf>,

    /// Name of this owner where several run on one host
    #[arg(long, value_name = "NAME", default_value = "weights", env = "DS4_NAME")]
    pub(crate) name: String,

    /// Kind of memory [default: vmm where this program is built for GPUs and there is one, else memfd]
    #[arg(long, value_enum, env = "DS4_BACKEND")]
    pub(crate) backend: Option<Backend>,

    /// Number of the GPU, with --backend vmm; the driver counts those that CUDA_VISIBLE_DEVICES shows [default: 0]
    #[arg(long, value_name = "N", value_parser = id, env = "DS4_DEVICE", allow_negative_numbers = true)]
    pub(crate) device: Option<u32>,

    /// The GPU by its UUID (GPU-...), which stays when numbers change
    #[arg(long, value_name = "UUID", conflicts_with = "device", env = "DS4_DEVICE_UUID")]
    pub(crate) device_uuid: Option<String>,

    /// Size that shared ranges grow to, in MiB; a tensor is never cut
    #[arg(long, value_name = "MIB", default_value = "1024", value_parser = span, env = "DS4_SPAN_MB", allow_negative_numbers = true)]
    pub(crate) span_mb: u64,

    /// Memory that must stay free, in GiB; loading is refused if it would not [default: 1 for memfd, 4 on a GPU, 32 on
    /// a GPU that shares the host's memory]
    #[arg(long, value_name = "GIB", value_parser = number(0, 1 << 20), env = "DS4_RESERVE_GB", allow_negative_numbers = true)]
    pub(crate) reserve_gb: Option<u64>,

    /// Memory that must be left for a worker beside the weights, in GiB [default: 4 on a GPU, else 0]
    #[arg(long, value_name = "GIB", value_parser = number(0, 1 << 20), env = "DS4_WORKER_MIN_GB", allow_negative_numbers = true)]
    pub(crate) worker_min_gb: Option<u64>,

    /// How much of what was loaded is compared with the files once more before workers may have it
    #[arg(long, value_enum, value_name = "HOW", default_value = "sample", env = "DS4_VERIFY")]
    pub(crate) verify: VerifyChoice,

    /// Load even if the memory does not seem to suffice
    #[arg(long, env = "DS4_NO_PREFLIGHT", value_parser = BoolishValueParser::new())]
    pub(crate) no_preflight: bool,

    /// Show plan and memory table, then end: nothing is loaded
    #[arg(long, env = "DS4_DRY_RUN", value_parser = BoolishValueParser::new())]
    pub(crate) dry_run: bool,

    /// Print plan, memory table and settings with their origin, then end
    #[arg(long, value_enum, value_name = "FORMAT", env = "DS4_PRINT_PLAN")]
    pub(crate) print_plan: Option<PrintFormat>,

    /// A further user who may attach; repeatable
    #[arg(long, value_name = "UID", value_parser = id, value_delimiter = ',', env = "DS4_ALLOW_UID", allow_negative_numbers = true)]
    pub(crate) allow_uid: Vec<u32>,

    /// A group whose members may attach if it is their primary group; repeatable
    #[arg(long, value_name = "GID", value_parser = id, value_delimiter = ',', env = "DS4_ALLOW_GID", allow_negative_numbers = true)]
    pub(crate) allow_gid: Vec<u32>,

    /// On shutdown, seconds to wait for workers to leave; they keep what they have mapped
    #[arg(long, value_name = "SECS", default_value = "30", value_parser = number(0, 86_400), env = "DS4_DRAIN_TIMEOUT", allow_negative_numbers = true)]
    pub(crate) drain_timeout: u64,

    /// What to do with the manifest of an owner that is proved to be dead
    #[arg(long, value_enum, value_name = "CHOICE", default_value = "replace", env = "DS4_ON_STALE_MANIFEST")]
    pub(crate) on_stale_manifest: StaleChoice,

    /// Ask the running owner how it is
    #[arg(long, conflicts_with_all = ["release", "dry_run", "print_plan"])]
    pub(crate) status: bool,

    /// Tell the running owner, and the keeper, to free the weights, and wait until they have
    #[arg(long, conflicts_with_all = ["dry_run", "print_plan"])]
    pub(crate) release: bool,

    /// With --status: answer in JSON
    #[arg(long, requires = "status")]
    pub(crate) json: bool,

    /// With --status: wait up to this many seconds until the owner is ready
    #[arg(long, value_name = "SECS", value_parser = number(0, 86_400), requires = "status", allow_negative_numbers = true)]
    pub(crate) wait: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Backend {
    /// Host memory, for workers on the CPU
    Memfd,
    /// GPU memory, for workers on that GPU
    Vmm,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum KeeperChoice {
    /// Do without
    Off,
    /// Take weights back from a keeper that runs, and park them with it
    Use,
    /// The same, and start one if none runs
    Start,
}

#[derive(Debug, Parser)]
#[command(
    name = "ds4-weightd keep",
    version,
    about = "Holds the memory of weights while owners come and go",
    long_about = KEEP_ABOUT,
    after_help = Exit::help(KEEP_EXITS),
)]
pub(crate) struct KeepArgs {
    /// Folder for socket and lock [default: /run/ds4 if it can be written, else $XDG_RUNTIME_DIR/ds4]
    #[arg(long, value_name = "DIR", env = "DS4_RUN_DIR")]
    pub(crate) run_dir: Option<PathBuf>,

    /// The socket that owners connect to [default: keeper.sock in the run directory]
    #[arg(long, value_name = "FILE", env = "DS4_KEEPER_SOCKET")]
    pub(crate) keeper_socket: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum VerifyChoice {
    /// Nothing
    None,
    /// Leaves from all over the model, a fraction of a second
    Sample,
    /// Every byte, which takes about as long as loading
    Full,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PrintFormat {
    /// One JSON object on standard output
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StaleChoice {
    /// End with exit code 7
    Refuse,
    /// Take its place
    Replace,
}
