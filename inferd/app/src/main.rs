//! `ds4-server`: a worker that serves a model over HTTP and can be restarted at any time.
//!
//! It listens first, then attaches or loads, then answers. A stop signal lets running answers end; a second one cuts
//! them.

mod config;
mod plan;
mod refused;
mod serve;

use config::{Config, ConfigError, Task};
use ds4_boot::Platform;
use ds4_host::{Exit, StopSignals, check_cpu, init_logging, printable};
use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    match start() {
        Ok(exit) => exit.into(),
        Err((exit, message)) => {
            eprintln!("ds4-server: {}", printable(&message));
            exit.into()
        }
    }
}

fn start() -> Result<Exit, Failure> {
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
        Task::PrintPlan => {
            let (lines, kept) = plan::check(&config)?;
            config.plan.iter().chain(&lines).for_each(|line| println!("{line}"));
            kept.map(|()| Exit::Ok)
        }
        Task::CheckConfig => {
            plan::check(&config)?.1?;
            println!("configuration ok");
            Ok(Exit::Ok)
        }
    }
}

type Failure = (Exit, String);
