//! What the command line asks for, checked.

use crate::access::Access;
use crate::config::{Args, Backend, KeepArgs, KeeperChoice, Platform, PrintFormat, StaleChoice, VerifyChoice};
use crate::replaced::replaced_flag;
use clap::parser::ValueSource;
use clap::{CommandFactory, FromArgMatches, Parser};
use ds4_host::{RunDirError, choose_run_dir, printable, run_dir_candidates};
use ds4_manifest::{Trust, TrustError, check_folder};
use ds4_resident::{Role, Verify};
use ds4_units::Bytes;
use serde::Serialize;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;
use thiserror::Error;

/// A Unix socket's longest path.
const SOCKET_PATH_MAX: usize = 107;
/// Name of a keeper's socket.
const KEEPER_SOCKET: &str = "keeper.sock";

/// What the command line asks for.
#[derive(Debug)]
pub enum Command {
    /// Load weights and lend them until told to stop.
    Serve(ServeConfig),
    /// Show what serving would do, and end.
    Plan(PlanConfig),
    /// Ask a running owner how it is.
    Status(StatusConfig),
    /// Tell a running owner to shut down, and a keeper to let go.
    Release(StatusConfig),
    /// Hold what owners park.
    Keep(KeepConfig),
}

/// The models and how to lay them out.
#[derive(Debug)]
pub struct LoadConfig {
    /// The models, base first.
    pub models: Vec<(Role, PathBuf)>,
    /// Ranges grow to about this size.
    pub span: Bytes,
    /// The kind of memory, and which device.
    pub backend: BackendChoice,
    /// What must stay free; `None` for what the backend wants.
    pub reserve: Option<Bytes>,
    /// What must be left for a worker; `None` for what the backend wants.
    pub worker_min: Option<Bytes>,
    /// How much is compared with the files once more.
    pub verify: Verify,
    /// Whether too little memory is a refusal, and not only a warning.
    pub preflight: bool,
}

/// The kind of memory asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackendChoice {
    /// A GPU's memory where there is one, else the host's.
    Best,
    /// The host's.
    Memfd,
    /// A GPU's.
    Vmm(DeviceChoice),
}

/// A GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceChoice {
    /// By the driver's number.
    Number(u32),
    /// By what it is.
    Uuid(String),
}

/// How to show a plan.
#[derive(Debug)]
pub struct PlanConfig {
    /// What to plan.
    pub load: LoadConfig,
    /// Whether the plan goes to standard output as JSON.
    pub json: bool,
    /// Every setting with its origin.
    pub settings: Vec<Setting>,
}

/// How to serve.
#[derive(Debug)]
pub struct ServeConfig {
    /// What to load.
    pub load: LoadConfig,
    /// This owner's name.
    pub name: String,
    /// Where things go.
    pub paths: Paths,
    /// Who may attach.
    pub access: Access,
    /// How long to wait for workers when shutting down.
    pub drain_timeout: Duration,
    /// Whether a dead owner's manifest is replaced or left to an operator.
    pub replace_stale: bool,
    /// Its keeper, unless it does without.
    pub keeper: Option<KeeperConfig>,
}

/// How to keep.
#[derive(Debug)]
pub struct KeepConfig {
    /// The socket.
    pub socket: PathBuf,
    /// The lock.
    pub lock: PathBuf,
    /// Whether a service manager stores descriptors.
    pub has_manager: bool,
    /// Names of those that it gives back.
    pub stored: Vec<String>,
}

/// Whether and where an owner has a keeper.
#[derive(Clone, Debug)]
pub struct KeeperConfig {
    /// Its socket.
    pub socket: PathBuf,
    /// Whether to start one if none runs.
    pub start: bool,
}

/// Files of a running owner.
#[derive(Clone, Debug)]
pub struct Paths {
    /// The manifest.
    pub manifest: PathBuf,
    /// The broker's socket.
    pub socket: PathBuf,
    /// The lock.
    pub lock: PathBuf,
}

/// How to look for a running owner.
#[derive(Debug)]
pub struct StatusConfig {
    /// Manifests to look at, best first.
    pub manifests: Vec<PathBuf>,
    /// The socket, if it was named.
    pub socket: Option<PathBuf>,
    /// Sockets of keepers to look at, best first.
    pub keepers: Vec<PathBuf>,
    /// The owner's name.
    pub name: String,
    /// Whether the answer is JSON.
    pub json: bool,
    /// How long to wait until the owner is ready.
    pub wait: Duration,
    /// Whose manifests are believed.
    pub trust: Trust,
}

/// One setting, for `--print-plan`.
#[derive(Debug, Serialize)]
pub struct Setting {
    /// The flag.
    pub flag: String,
    /// Its value.
    pub value: String,
    /// `command line`, `default`, or the variable's name.
    pub origin: String,
}

/// A command line that cannot be followed.
#[derive(Debug, Error)]
pub enum CommandError {
    /// A flag or value is wrong, or help was asked for.
    #[error(transparent)]
    Args(#[from] clap::Error),
    /// A published flag that is not taken.
    #[error("{flag} is not taken: {instead}")]
    Replaced {
        /// The flag.
        flag: String,
        /// What does its job.
        instead: &'static str,
    },
    /// No model was named.
    #[error("name the model to hold with --base FILE (see ds4-weightd --help)")]
    NoModel,
    /// A GPU was named for memory that is not on one.
    #[error("{flag} names a GPU, and --backend memfd holds weights in host memory: leave {flag} out")]
    Device {
        /// The flag given.
        flag: &'static str,
    },
    /// A name that cannot be part of a file name.
    #[error("--name {name:?} must be 1 to 64 letters, digits, dots, dashes or underscores, and not begin with a dot")]
    Name {
        /// The name given.
        name: String,
    },
    /// No run directory.
    #[error(transparent)]
    RunDir(#[from] RunDirError),
    /// A path that cannot be a socket's.
    #[error(
        "the socket path {} has {len} bytes, more than the {SOCKET_PATH_MAX} a socket may have: name a shorter one, \
         such as --broker-socket /run/ds4/weights.sock", .path.display()
    )]
    SocketPath {
        /// The path.
        path: PathBuf,
        /// Its length.
        len: usize,
    },
    /// A path that a manifest cannot hold.
    #[error("the path {} is not UTF-8: name one that is", .path.display())]
    NotUtf8 {
        /// The path.
        path: PathBuf,
    },
    /// A path whose folder cannot be found.
    #[error("cannot use {}: {reason}", .path.display())]
    Path {
        /// The path.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A folder in which workers would not believe a manifest.
    #[error("no worker would believe a manifest there: {0}")]
    Untrusted(#[from] TrustError),
}

impl Command {
    /// Checks a command line, program name first. Makes the run directory when the owner is to serve.
    pub fn parse(arguments: &[OsString], platform: &Platform) -> Result<Command, CommandError> {
        if let Some((flag, instead)) = arguments.iter().skip(1).find_map(|argument| replaced_flag(argument)) {
            return Err(CommandError::Replaced { flag: flag.to_owned(), instead });
        }
        if arguments.get(1).is_some_and(|argument| argument == "keep") {
            return keep_config(arguments, platform).map(Command::Keep);
        }
        let command = Args::command();
        let matches = command.clone().try_get_matches_from(arguments)?;
        let args = Args::from_arg_matches(&matches)?;
        check_name(&args.name)?;
        if args.status || args.release {
            let config = status_config(&args, platform)?;
            return Ok(if args.status { Command::Status(config) } else { Command::Release(config) });
        }
        let settings = settings(&command, &matches);
        let load = load_config(&args)?;
        if args.dry_run || args.print_plan.is_some() {
            let json = args.print_plan == Some(PrintFormat::Json);
            return Ok(Command::Plan(PlanConfig { load, json, settings }));
        }
        let paths = Paths::choose(&args, platform)?;
        Ok(Command::Serve(ServeConfig {
            load,
            keeper: keeper_config(&args, &paths)?,
            paths,
            name: args.name,
            access: Access { uids: args.allow_uid, gids: args.allow_gid },
            drain_timeout: Duration::from_secs(args.drain_timeout),
            replace_stale: args.on_stale_manifest == StaleChoice::Replace,
        }))
    }
}

fn load_config(args: &Args) -> Result<LoadConfig, CommandError> {
    let base = args.base.clone().ok_or(CommandError::NoModel)?;
    let mtp = args.mtp.clone().map(|path| (Role::Mtp, path));
    Ok(LoadConfig {
        models: std::iter::once((Role::Base, base)).chain(mtp).collect(),
        span: Bytes::mib(args.span_mb),
        backend: backend(args)?,
        reserve: args.reserve_gb.map(Bytes::gib),
        worker_min: args.worker_min_gb.map(Bytes::gib),
        verify: match args.verify {
            VerifyChoice::None => Verify::None,
            VerifyChoice::Sample => Verify::Sample,
            VerifyChoice::Full => Verify::Full,
        },
        preflight: !args.no_preflight,
    })
}

/// A GPU that is named is meant.
fn backend(args: &Args) -> Result<BackendChoice, CommandError> {
    let device = match (&args.device_uuid, args.device) {
        (Some(uuid), _) => Some((DeviceChoice::Uuid(uuid.clone()), "--device-uuid")),
        (None, Some(number)) => Some((DeviceChoice::Number(number), "--device")),
        (None, None) => None,
    };
    match (args.backend, device) {
        (Some(Backend::Memfd), Some((_, flag))) => Err(CommandError::Device { flag }),
        (Some(Backend::Memfd), None) => Ok(BackendChoice::Memfd),
        (None, None) => Ok(BackendChoice::Best),
        (_, Some((device, _))) => Ok(BackendChoice::Vmm(device)),
        (Some(Backend::Vmm), None) => Ok(BackendChoice::Vmm(DeviceChoice::Number(0))),
    }
}

/// Everything after `keep`.
fn keep_config(arguments: &[OsString], platform: &Platform) -> Result<KeepConfig, CommandError> {
    let rest = arguments.iter().enumerate().filter(|(position, _)| *position != 1).map(|(_, argument)| argument);
    let args = KeepArgs::try_parse_from(rest)?;
    let socket = match &args.keeper_socket {
        Some(path) => absolute(path)?,
        None => {
            let dir = choose_run_dir(args.run_dir.as_deref(), platform.xdg_runtime_dir.as_deref())?;
            absolute(&dir.join(KEEPER_SOCKET))?
        }
    };
    check_socket(&socket)?;
    let (has_manager, stored) = (platform.has_manager, platform.listen_names.clone());
    Ok(KeepConfig { lock: socket.with_extension("lock"), socket, has_manager, stored })
}

fn keeper_config(args: &Args, paths: &Paths) -> Result<Option<KeeperConfig>, CommandError> {
    let start = match args.keeper {
        KeeperChoice::Off => return Ok(None),
        KeeperChoice::Use => false,
        KeeperChoice::Start => true,
    };
    let socket = match &args.keeper_socket {
        Some(path) => absolute(path)?,
        None => keeper_beside(&paths.manifest),
    };
    check_socket(&socket)?;
    Ok(Some(KeeperConfig { socket, start }))
}

/// The keeper's socket for an owner whose manifest is here, unless it was named.
fn keeper_beside(manifest: &Path) -> PathBuf {
    manifest.with_file_name(KEEPER_SOCKET)
}

fn check_socket(path: &Path) -> Result<(), CommandError> {
    let len = path.as_os_str().len();
    if len > SOCKET_PATH_MAX { Err(CommandError::SocketPath { path: path.to_owned(), len }) } else { Ok(()) }
}

fn status_config(args: &Args, platform: &Platform) -> Result<StatusConfig, CommandError> {
    let manifests = match &args.manifest {
        Some(path) => vec![absolute(path)?],
        None => run_dir_candidates(args.run_dir.as_deref(), platform.xdg_runtime_dir.as_deref())
            .iter()
            .map(|dir| dir.join(format!("{}.json", args.name)))
            .collect(),
    };
    let keepers = match &args.keeper_socket {
        Some(path) => vec![absolute(path)?],
        None => manifests.iter().map(|manifest| keeper_beside(manifest)).collect(),
    };
    Ok(StatusConfig {
        manifests,
        keepers,
        name: args.name.clone(),
        socket: args.broker_socket.as_deref().map(absolute).transpose()?,
        json: args.json,
        wait: Duration::from_secs(args.wait.unwrap_or(0)),
        trust: Trust::own_and(args.allow_uid.iter().copied()),
    })
}

impl Paths {
    fn choose(args: &Args, platform: &Platform) -> Result<Paths, CommandError> {
        let in_run_dir = |extension: &str| -> Result<PathBuf, CommandError> {
            let dir = choose_run_dir(args.run_dir.as_deref(), platform.xdg_runtime_dir.as_deref())?;
            absolute(&dir.join(format!("{}.{extension}", args.name)))
        };
        let named = |path: &Option<PathBuf>, extension| match path {
            Some(path) => absolute(path),
            None => in_run_dir(extension),
        };
        let manifest = named(&args.manifest, "json")?;
        let lock = named(&args.lock_file, "lock")?;
        let socket = match &args.broker_socket {
            Some(path) => absolute(path)?,
            None => socket_beside(&manifest),
        };
        for path in [&manifest, &socket] {
            if path.to_str().is_none() {
                return Err(CommandError::NotUtf8 { path: path.clone() });
            }
        }
        check_socket(&socket)?;
        check_folder(&manifest, &Trust::own_and([]))?;
        Ok(Paths { manifest, socket, lock })
    }
}

/// The socket of an owner whose manifest is here, unless it was named.
pub(crate) fn socket_beside(manifest: &Path) -> PathBuf {
    let mut socket = manifest.as_os_str().to_owned();
    socket.push(".sock");
    PathBuf::from(socket)
}

/// The path from the root: a manifest is read by processes with other working directories.
fn absolute(path: &Path) -> Result<PathBuf, CommandError> {
    std::path::absolute(path).map_err(|error| CommandError::Path { path: path.to_owned(), reason: error.to_string() })
}

fn check_name(name: &str) -> Result<(), CommandError> {
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    if plain && !name.starts_with('.') && (1..=64).contains(&name.len()) {
        return Ok(());
    }
    Err(CommandError::Name { name: printable(name).into_owned() })
}

/// Every flag that has a value, with where the value comes from.
fn settings(command: &clap::Command, matches: &clap::ArgMatches) -> Vec<Setting> {
    let mut settings = Vec::new();
    for arg in command.get_arguments() {
        let id = arg.get_id().as_str();
        let Some(long) = arg.get_long() else { continue };
        let origin = match matches.value_source(id) {
            Some(ValueSource::CommandLine) => "command line".to_owned(),
            Some(ValueSource::EnvVariable) => {
                arg.get_env().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
            }
            Some(_) => "default".to_owned(),
            None => continue,
        };
        let Some(values) = matches.get_raw(id) else { continue };
        let values: Vec<_> = values.map(|value| printable(&value.to_string_lossy()).into_owned()).collect();
        settings.push(Setting { flag: format!("--{long}"), value: values.join(" "), origin });
    }
    settings
}

#[cfg(test)]
#[path = "command_tests.rs"]
mod tests;
