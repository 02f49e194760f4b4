//! `ds4-weightd`: see the library for what it does.

use ds4_host::{Exit, StopSignals, check_cpu, init_logging, printable};
use ds4_weightd::{Command, CommandError, Platform, run};
use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    match start() {
        Ok(exit) => exit.into(),
        Err((exit, message)) => {
            eprintln!("ds4-weightd: {}", printable(&message));
            exit.into()
        }
    }
}

fn start() -> Result<Exit, (Exit, String)> {
    check_cpu().map_err(|error| (Exit::Usage, error.to_string()))?;
    // Before the first allocation of size: a signal at any later point is handled.
    let signals = StopSignals::install().map_err(|error| (Exit::Failed, format!("cannot handle signals: {error}")))?;
    let platform = Platform::read();
    init_logging(platform.log_filter.as_deref()).map_err(|error| (Exit::Usage, error.to_string()))?;
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let command = match Command::parse(&arguments, &platform) {
        Ok(command) => command,
        Err(CommandError::Args(error)) => error.exit(),
        Err(error) => return Err((Exit::Usage, error.to_string())),
    };
    run(command, &signals).map_err(|error| (error.exit(), error.to_string()))
}
