//! Every flag with its help text, its environment fallback, and what the values mean together.

mod disk;
mod limits;
mod parked;
mod protocol;

use crate::refused;
use clap::builder::{BoolishValueParser, RangedU64ValueParser, TypedValueParser};
use clap::parser::ValueSource;
use clap::{ArgMatches, Command, CommandFactory, FromArgMatches, Parser, ValueEnum};
use disk::DiskArgs;
use ds4_api::{ApiKey, Hosts, Origins, Settings};
use ds4_boot::ModelArgs;
use ds4_engine::{DiskOptions, EngineOptions, ParkedOptions, STEP_TARGET, SpeculationOptions};
use ds4_host::Exit;
use ds4_model::{Effort, ThinkingMode};
use ds4_units::{Bytes, Tokens};
use http::HeaderValue;
use limits::LimitArgs;
use parked::ParkedArgs;
use protocol::ProtocolArgs;
use std::ffi::OsString;
use std::net::{IpAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::Duration;

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
    Exit::Listen,
    Exit::Engine,
];

const LONG_ABOUT: &str = "\
Serves a model over the HTTP APIs that agents speak: OpenAI's chat completions, completions and responses, and \
Anthropic's messages.

With --weights it takes the weights from a running ds4-weightd in milliseconds, so it can be stopped, crashed and \
upgraded freely. Without, it loads the file itself, and every restart loads it again.

It listens at once: /health says 503 \"loading\" until the model is there, then 200 \"ok\".

Every flag can also be set by the environment variable shown with it; a flag wins.";

const EXAMPLES: &str = "\
Examples:
  ds4-server -m model.gguf                           load and serve on http://127.0.0.1:8000
  ds4-weightd --base model.gguf                      hold the weights once ...
  ds4-server --weights /run/ds4/weights.json         ... and serve them, as often as you like
  ds4-server -m model.gguf --print-plan              show every setting and where it comes from
  curl localhost:8000/v1/chat/completions -d '{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}'

";

/// How much an answer reasons when a request does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum EffortArg {
    /// Answer at once
    Off,
    /// Less than usual
    Low,
    /// Thorough
    High,
    /// As much as the model can
    Max,
}

/// Flags of `ds4-server`.
#[derive(Debug, Parser)]
#[command(name = "ds4-server", version, allow_negative_numbers = true, about = "Serves a model over OpenAI- and Anthropic-compatible HTTP APIs",
    long_about = LONG_ABOUT, after_help = format!("{EXAMPLES}{}", Exit::help(EXITS)))]
struct Args {
    #[command(flatten)]
    model: ModelArgs,

    /// Name under which the model is offered [default: the file's name]
    #[arg(long, value_name = "ID", env = "DS4_MODEL_ID", help_heading = "Model")]
    model_id: Option<String>,

    /// Conversations that run or are kept warm at the same time, or `auto`: 32 of up to 16,384 tokens, of longer ones as
    /// many as fit at full length, 4 to 32
    #[arg(long, value_name = "N|auto", default_value = "auto", env = "DS4_MAX_SEQS", value_parser = max_seqs,
        help_heading = "Engine")]
    max_seqs: MaxSeqs,

    /// Memory, in GiB, that conversations never take [default: 0.5 in main memory, 2 on a GPU]
    #[arg(long, value_name = "GIB", env = "DS4_MEM_FLOOR_GB", value_parser = gibibytes, help_heading = "Engine")]
    mem_floor_gb: Option<Bytes>,

    /// Tokens of an answer when the request names no budget; what does not fit the context is cut
    #[arg(short = 'n', long, value_name = "N", default_value_t = 393_216, env = "DS4_TOKENS", help_heading = "Engine")]
    tokens: u32,

    /// Prompt tokens computed in one step while no answer is being written [default: 512 on a CPU; 4096 on a GPU, or as
    /// many as leave room for a conversation of full length]
    #[arg(long, value_name = "N", env = "DS4_PREFILL_CHUNK", value_parser = count(), help_heading = "Engine")]
    prefill_chunk: Option<usize>,

    /// How long a step may take while answers are being written, in milliseconds: it computes as many prompt tokens as
    /// that allows, and a smaller value keeps answers smoother
    #[arg(long, value_name = "MS", default_value_t = STEP_TARGET.as_millis() as u64, env = "DS4_STEP_MS",
        value_parser = RangedU64ValueParser::<u64>::new().range(1..=60_000), help_heading = "Engine")]
    step_ms: u64,

    /// Reasoning of answers to requests that do not say [default: the model reasons, at its usual effort]
    #[arg(long, value_enum, value_name = "LEVEL", env = "DS4_REASONING_EFFORT", help_heading = "Engine")]
    reasoning_effort: Option<EffortArg>,

    /// Address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1", env = "DS4_HOST", help_heading = "HTTP")]
    host: String,

    /// Port to listen on; 0 takes a free one and logs it
    #[arg(long, value_name = "PORT", default_value_t = 8000, env = "DS4_PORT", help_heading = "HTTP")]
    port: u16,

    /// Key that requests must show; may be given several times. All keys open everything
    #[arg(
        long,
        value_name = "KEY",
        env = "DS4_API_KEY",
        hide_env_values = true,
        value_delimiter = ',',
        help_heading = "HTTP"
    )]
    api_key: Vec<String>,

    /// File with one key a line
    #[arg(long, value_name = "FILE", env = "DS4_API_KEY_FILE", help_heading = "HTTP")]
    api_key_file: Option<PathBuf>,

    /// Let pages of every origin call from a browser
    #[arg(long, env = "DS4_CORS", value_parser = BoolishValueParser::new(), help_heading = "HTTP")]
    cors: bool,

    /// Let pages of this origin call, for instance `https://example.org`; may be given several times
    #[arg(
        long,
        value_name = "ORIGIN",
        env = "DS4_CORS_ORIGIN",
        value_delimiter = ',',
        conflicts_with = "cors",
        help_heading = "HTTP"
    )]
    cors_origin: Vec<String>,

    /// Serve requests that name this host, beside loopback names; may be given several times
    #[arg(long, value_name = "NAME", env = "DS4_ALLOWED_HOST", value_delimiter = ',', help_heading = "HTTP")]
    allowed_host: Vec<String>,

    #[command(flatten)]
    disk: DiskArgs,

    #[command(flatten)]
    parked: ParkedArgs,

    #[command(flatten)]
    limits: LimitArgs,

    #[command(flatten)]
    protocol: ProtocolArgs,

    /// Show every setting and where it comes from, and what the model file is, then end
    #[arg(long)]
    print_plan: bool,

    /// Check settings and model file, then end
    #[arg(long)]
    check_config: bool,
}

/// How many conversations the operator wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MaxSeqs {
    /// As many as the machine carries well.
    Auto,
    /// So many.
    Exactly(usize),
}

impl MaxSeqs {
    /// The number, if one was named.
    pub(crate) fn asked(self) -> Option<usize> {
        match self {
            MaxSeqs::Auto => None,
            MaxSeqs::Exactly(count) => Some(count),
        }
    }
}

fn max_seqs(text: &str) -> Result<MaxSeqs, String> {
    match text.parse() {
        Ok(count @ 1..=65_536) => Ok(MaxSeqs::Exactly(count)),
        _ if text == "auto" => Ok(MaxSeqs::Auto),
        _ => Err("it is a number from 1 to 65536, or `auto`".into()),
    }
}

fn gibibytes(text: &str) -> Result<Bytes, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.0..=65_536.0).contains(&value) => Ok(Bytes((value * (1u64 << 30) as f64) as u64)),
        _ => Err("it is a number of GiB from 0 to 65536".into()),
    }
}

fn count() -> impl TypedValueParser<Value = usize> {
    RangedU64ValueParser::<usize>::new().range(1..=65_536)
}

/// What the process is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    Serve,
    PrintPlan,
    CheckConfig,
}

/// All settings, checked.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) task: Task,
    pub(crate) model: ModelArgs,
    pub(crate) model_id: Option<String>,
    /// Conversations at the same time.
    pub(crate) max_seqs: MaxSeqs,
    /// Memory that conversations never take, if the operator says.
    pub(crate) memory_floor: Option<Bytes>,
    /// The engine's settings but for the number of conversations.
    pub(crate) engine: EngineOptions,
    /// Where conversations are kept, if anywhere.
    pub(crate) disk: Option<DiskOptions>,
    /// With which keeper they are parked, if with any.
    pub(crate) parked: Option<ParkedOptions>,
    pub(crate) http: Settings,
    /// Where requests are written, prompts in clear.
    pub(crate) trace: Option<PathBuf>,
    /// The folder where tool slips are written, prompts in clear.
    pub(crate) tool_slip_dump: Option<PathBuf>,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Every setting as text, with its origin.
    pub(crate) plan: Vec<String>,
}

/// Settings that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error(transparent)]
    Args(#[from] clap::Error),
    #[error("{flag} {problem}")]
    Refused { flag: String, problem: &'static str },
    #[error("--api-key-file {}: {reason}", .path.display())]
    KeyFile { path: PathBuf, reason: String },
    #[error("--kv-cache-cold-max-tokens {cold_max} is below --kv-cache-min-tokens {min}: give 0, or {min} or more")]
    ColdMax { cold_max: u32, min: u32 },
    #[error("an API key must not be empty and may hold only visible ASCII characters")]
    Key,
    #[error("--cors-origin {origin:?} is not an origin: write it as browsers send it, https://example.org")]
    Origin { origin: String },
    #[error("--host {host}: {reason}")]
    Host { host: String, reason: String },
}

impl Config {
    /// Reads arguments and environment.
    pub(crate) fn read(arguments: &[OsString]) -> Result<Config, ConfigError> {
        if let Some((flag, problem)) = refused::find(arguments) {
            return Err(ConfigError::Refused { flag, problem });
        }
        let matches = Args::command().try_get_matches_from(arguments)?;
        let args = Args::from_arg_matches(&matches)?;
        let plan = plan(&Args::command(), &matches);
        args.checked(plan)
    }
}

impl Args {
    fn checked(self, plan: Vec<String>) -> Result<Config, ConfigError> {
        let task = match (self.print_plan, self.check_config) {
            (true, _) => Task::PrintPlan,
            (_, true) => Task::CheckConfig,
            _ => Task::Serve,
        };
        let (thinking, effort) = match self.reasoning_effort {
            None => (ThinkingMode::On, None),
            Some(EffortArg::Off) => (ThinkingMode::Off, None),
            Some(EffortArg::Low) => (ThinkingMode::On, Some(Effort::Low)),
            Some(EffortArg::High) => (ThinkingMode::On, Some(Effort::High)),
            Some(EffortArg::Max) => (ThinkingMode::On, Some(Effort::Max)),
        };
        let hosts = if is_loopback(&self.host)? { Hosts::LoopbackAnd(self.allowed_host) } else { Hosts::Any };
        let grace = self.protocol.grace();
        let draft = &self.model.draft;
        let speculation = Some(SpeculationOptions { ahead: draft.ahead(), margin: draft.mtp_margin });
        Ok(Config {
            task,
            http: self.protocol.applied_to(self.limits.of_http(Settings {
                max_tokens: Tokens(self.tokens),
                api_keys: keys(&self.api_key, self.api_key_file.as_deref())?,
                origins: origins(self.cors, &self.cors_origin)?,
                hosts,
                thinking,
                effort,
                ..Settings::default()
            })),
            trace: self.protocol.trace,
            tool_slip_dump: self.protocol.tool_slip_dump,
            parked: self.parked.checked(self.model.manifest().map(PathBuf::as_path)),
            model: self.model,
            model_id: self.model_id,
            max_seqs: self.max_seqs,
            memory_floor: self.mem_floor_gb,
            disk: self.disk.checked()?,
            engine: self.limits.of_engine(EngineOptions {
                prefill_rows: self.prefill_chunk,
                step_target: Duration::from_millis(self.step_ms),
                grace,
                speculation,
                ..EngineOptions::default()
            }),
            host: self.host,
            port: self.port,
            plan,
        })
    }
}

/// Whether other machines cannot reach this address.
fn is_loopback(host: &str) -> Result<bool, ConfigError> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(address.is_loopback());
    }
    let wrong = |reason: String| ConfigError::Host { host: host.to_owned(), reason };
    let mut addresses = (host, 0).to_socket_addrs().map_err(|error| wrong(error.to_string()))?;
    Ok(addresses.all(|address| address.ip().is_loopback()))
}

fn keys(given: &[String], file: Option<&Path>) -> Result<Vec<ApiKey>, ConfigError> {
    let mut keys: Vec<String> = given.to_vec();
    if let Some(path) = file {
        let wrong = |reason: String| ConfigError::KeyFile { path: path.to_owned(), reason };
        let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        let before = keys.len();
        keys.extend(text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned));
        if keys.len() == before {
            return Err(wrong("it holds no key".into()));
        }
    }
    keys.iter().map(|key| ApiKey::new(key).ok_or(ConfigError::Key)).collect()
}

fn origins(any: bool, listed: &[String]) -> Result<Origins, ConfigError> {
    if any {
        return Ok(Origins::Any);
    }
    let origin = |text: &String| {
        let wrong = || ConfigError::Origin { origin: text.clone() };
        let sound = text.contains("://") && !text.ends_with('/');
        HeaderValue::from_str(text).ok().filter(|_| sound).ok_or_else(wrong)
    };
    let listed: Vec<HeaderValue> = listed.iter().map(origin).collect::<Result<_, _>>()?;
    Ok(if listed.is_empty() { Origins::None } else { Origins::Listed(listed) })
}

/// One line per setting: name, value, origin. Keys show as hidden.
fn plan(command: &Command, matches: &ArgMatches) -> Vec<String> {
    let shown = command.get_arguments().filter(|arg| {
        let id = arg.get_id().as_str();
        !matches!(id, "help" | "version" | "print_plan" | "check_config")
    });
    shown
        .map(|arg| {
            let id = arg.get_id().as_str();
            let values = matches
                .get_raw(id)
                .map(|values| values.map(|value| value.to_string_lossy().into_owned()).collect::<Vec<_>>().join(","));
            let value = match values {
                Some(_) if id == "api_key" => "(hidden)".to_owned(),
                Some(values) => values,
                None => "-".to_owned(),
            };
            let origin = match matches.value_source(id) {
                Some(ValueSource::CommandLine) => "flag".to_owned(),
                Some(ValueSource::EnvVariable) => {
                    format!("environment {}", arg.get_env().unwrap_or_default().to_string_lossy())
                }
                _ => "default".to_owned(),
            };
            format!("{:<26} {value:<24} {origin}", id.replace('_', "-"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ds4_engine::SyncMode;

    fn read(arguments: &[&str]) -> Result<Config, ConfigError> {
        let arguments: Vec<OsString> =
            std::iter::once("ds4-server").chain(arguments.iter().copied()).map(OsString::from).collect();
        Config::read(&arguments)
    }

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn what_does_not_work_yet_is_refused_by_name() {
        for flag in ["--kv-cache-reject-different-quant", "--prefill-chunk-live", "--dspark", "--preset=spark"] {
            let error = read(&["-m", "x.gguf", flag, "value"]).unwrap_err().to_string();
            let name = flag.split('=').next().unwrap();
            assert!(error.starts_with(&format!("{name} ")), "{error}");
        }
    }

    #[test]
    fn wrong_values_name_their_flag() {
        for (arguments, flag) in [
            (&["--max-seqs", "0"][..], "--max-seqs"),
            (&["--max-seqs", "many"], "--max-seqs"),
            (&["--ctx", "-5"], "--ctx"),
            (&["--port", "65536"], "--port"),
            (&["--prefill-chunk", "0"], "--prefill-chunk"),
            (&["--step-ms", "0"], "--step-ms"),
            (&["--max-clients", "-1"], "--max-clients"),
            (&["--max-queue", "few"], "--max-queue"),
            (&["--max-queue-bytes", "1M"], "--max-queue-bytes"),
            (&["--max-queue-age-s", "soon"], "--max-queue-age-s"),
            (&["--wait", "soon"], "--wait"),
            (&["--kv-rounding", "maybe"], "--kv-rounding"),
            (&["--mtp-draft", "0"], "--mtp-draft"),
            (&["--mtp-draft", "8"], "--mtp-draft"),
            (&["--mtp-margin", "-1"], "--mtp-margin"),
            (&["--mtp-margin", "wide"], "--mtp-margin"),
            (&["--mtp", "m.gguf", "--no-mtp"], "--no-mtp"),
            (&["--frobnicate"], "--frobnicate"),
            (&["--kv-disk-space-mb", "5"], "--kv-disk-dir"),
            (&["--kv-sync", "full"], "--kv-disk-dir"),
            (&["--kv-disk-dir", "d", "--kv-sync", "twice"], "--kv-sync"),
            (&["--kv-disk-dir", "d", "--kv-cache-cold-max-tokens", "5"], "--kv-cache-cold-max-tokens 5"),
            (&["--cors-origin", "example.org"], "--cors-origin"),
            (&["--cors-origin", "https://example.org/"], "--cors-origin"),
            (&["--api-key-file", "/nonexistent/keys"], "--api-key-file"),
        ] {
            let error = read(arguments).unwrap_err().to_string();
            assert!(error.contains(flag), "{error}");
        }
    }

    #[test]
    fn conversations_are_kept_where_the_operator_says() {
        assert_eq!(read(&[]).unwrap().disk, None);
        let disk = read(&["--kv-disk-dir", "d", "--kv-disk-space-mb", "0"]).unwrap().disk.unwrap();
        assert_eq!((disk.folder.to_str(), disk.budget, disk.min_tokens.0), (Some("d"), Bytes::gib(4), 512));
        assert_eq!((disk.cold_max_tokens.0, disk.interval_tokens.0), (30_000, 2048));
        assert_eq!((disk.trim_tokens.0, disk.align_tokens.0, disk.sync), (32, 128, SyncMode::Data));
        let modes =
            ["full", "none"].map(|mode| read(&["--kv-disk-dir", "d", "--kv-sync", mode]).unwrap().disk.unwrap().sync);
        assert_eq!(modes, [SyncMode::Full, SyncMode::None]);
    }

    #[test]
    fn conversations_are_parked_beside_the_owner_s_manifest_unless_they_are_not_to_be() {
        assert_eq!(read(&[]).unwrap().parked, None);
        let parked = read(&["--weights", "run/weights.json"]).unwrap().parked.unwrap();
        assert_eq!((parked.socket.to_str(), parked.orphaned.as_secs()), (Some("run/keeper.sock"), 600));
        assert_eq!(read(&["--weights", "run/weights.json", "--keeper", "off"]).unwrap().parked, None);
        let named = read(&["--keeper-socket", "k.sock", "--keeper-grace", "5"]).unwrap().parked.unwrap();
        assert_eq!((named.socket.to_str(), named.orphaned.as_secs()), (Some("k.sock"), 5));
    }

    #[test]
    fn every_limit_has_its_flag_a_default_and_an_off() {
        let limits = |config: &Config| {
            let (http, engine) = (&config.http, &config.engine);
            (
                (http.clients_max, http.bodies_max.0),
                (engine.queued_max, engine.queued_bytes_max.0, engine.queue_age_max.as_secs()),
            )
        };
        assert_eq!(limits(&read(&[]).unwrap()), ((256, 256 << 20), (256, 256 << 20, 600)));
        let flags = ["--max-clients", "3", "--max-queue", "2", "--max-queue-bytes", "7", "--max-queue-age-s", "1"];
        assert_eq!(limits(&read(&flags).unwrap()), ((3, 7), (2, 7, 1)));
        let off = flags.map(|word| if word.starts_with("--") { word } else { "0" });
        assert_eq!(limits(&read(&off).unwrap()), ((0, 0), (0, 0, 0)));
    }

    #[test]
    fn only_a_loopback_address_checks_the_host_of_requests() {
        assert_eq!(read(&[]).unwrap().http.hosts, Hosts::LoopbackAnd(vec![]));
        let lan = read(&["--allowed-host", "box.lan", "--host", "::1"]).unwrap();
        assert_eq!(lan.http.hosts, Hosts::LoopbackAnd(vec!["box.lan".into()]));
        assert_eq!(read(&["--host", "0.0.0.0"]).unwrap().http.hosts, Hosts::Any);
    }

    #[test]
    fn the_plan_names_value_and_origin_and_hides_keys() {
        let config = read(&["--port", "0", "--api-key", "secret"]).unwrap();
        let line = |name: &str| config.plan.iter().find(|line| line.starts_with(&format!("{name} "))).unwrap();
        assert_eq!(line("port").split_whitespace().collect::<Vec<_>>(), ["port", "0", "flag"]);
        assert_eq!(line("max-seqs").split_whitespace().collect::<Vec<_>>(), ["max-seqs", "auto", "default"]);
        assert!(!config.plan.iter().any(|line| line.contains("secret")));
        assert!(!format!("{config:?}").contains("\"secret\""));
    }
}
