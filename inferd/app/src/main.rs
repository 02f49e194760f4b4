//! `ds4-server`: a worker that serves a model over HTTP and can be restarted at any time.
//!
//! It listens first, then attaches or loads, then answers. A stop signal lets running answers end; a second one cuts
//! them.

mod config;
mod refused;
mod serve;

use config::{Config, ConfigError, Task};
use ds4_boot::{ModelFile, Platform};
use ds4_host::{Exit, StopSignals, check_cpu, init_logging, printable};
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

fn main() -> ExitCode {
    match start() {
        Ok(exit) => exit.into(),
        Err((exit, message)) => {
            eprintln!("ds4-server: {}", printable(&message));
            exit.into()
        }
    }
}

fn start() -> Result<Exit, (Exit, String)> {
    check_cpu().map_err(|error| (Exit::Usage, error.to_string()))?;
    // Before the first allocation of size: a signal at any later point is handled.
    let signals = StopSignals::install().map_err(|error| (Exit::Failed, format!("cannot handle signals: {error}")))?;
    let platform = Platform::read();
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let config = match Config::read(&arguments) {
        Ok(config) => config,
        Err(ConfigError::Args(error)) => error.exit(),
        Err(error) => return Err((Exit::Usage, error.to_string())),
    };
    init_logging(platform.log_filter.as_deref()).map_err(|error| (Exit::Usage, error.to_string()))?;
    match config.task {
        Task::Serve => serve::serve(config, &signals),
        Task::PrintPlan => check(&config).map(|lines| {
            config.plan.iter().chain(&lines).for_each(|line| println!("{line}"));
            Exit::Ok
        }),
        Task::CheckConfig => check(&config).map(|_| {
            println!("configuration ok");
            Exit::Ok
        }),
    }
}

/// Opens the model file, reads its header and says what it is.
fn check(config: &Config) -> Result<Vec<String>, (Exit, String)> {
    let never = AtomicBool::new(false);
    let file = ModelFile::open(&config.model, &never).map_err(|error| (error.exit(), error.to_string()))?;
    let context = file.context(config.model.ctx).map_err(|error| (error.exit(), error.to_string()))?;
    let (_, codec) = file.prompt_side(&config.model).map_err(|error| (error.exit(), error.to_string()))?;
    let id = config.model_id.clone().unwrap_or_else(|| file.default_id());
    let line = |name: &str, value: &str, origin: &str| format!("{name:<26} {value:<24} {origin}");
    Ok(vec![
        line("file", &file.path().display().to_string(), "model"),
        line("shape", file.shape(), "model"),
        line("id", &id, if config.model_id.is_some() { "flag" } else { "model" }),
        line("prompt wording", codec.renderer_version(), "model"),
        line("context", &context.0.to_string(), if config.model.ctx.is_some() { "flag" } else { "model" }),
    ])
}
