//! `ds4-server`: a worker that serves a model over HTTP and can be restarted at any time.
//!
//! It listens first, then attaches or loads, then answers. A stop signal lets running answers end; a second one cuts
//! them.

mod config;
mod refused;
mod serve;

use config::{Config, ConfigError, Task};
use ds4_boot::{BootError, ModelFile, Platform, default_floor, observer};
use ds4_governor::{Floors, plan_banks};
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
            let (lines, kept) = check(&config)?;
            config.plan.iter().chain(&lines).for_each(|line| println!("{line}"));
            kept.map(|()| Exit::Ok)
        }
        Task::CheckConfig => {
            check(&config)?.1?;
            println!("configuration ok");
            Ok(Exit::Ok)
        }
    }
}

type Failure = (Exit, String);

/// Opens the model file, reads its header and says what it is, what conversations would cost and how many fit; then
/// whether what was asked for can be had on this machine now.
fn check(config: &Config) -> Result<(Vec<String>, Result<(), Failure>), Failure> {
    let failed = |error: BootError| (error.exit(), error.to_string());
    let never = AtomicBool::new(false);
    let file = ModelFile::open(&config.model, &never).map_err(failed)?;
    let context = file.context(config.model.ctx).map_err(failed)?;
    let (_, codec) = file.prompt_side(&config.model).map_err(failed)?;
    let prospect = file.prospect(&config.model, &never).map_err(failed)?;
    let id = config.model_id.clone().unwrap_or_else(|| file.default_id());
    let line = |name: &str, value: &str, origin: &str| format!("{name:<26} {value:<24} {origin}");
    let mut lines = vec![
        line("file", &file.path().display().to_string(), "model"),
        line("shape", file.shape(), "model"),
        line("id", &id, if config.model_id.is_some() { "flag" } else { "model" }),
        line("prompt wording", codec.renderer_version(), "model"),
        line("context", &context.0.to_string(), if config.model.ctx.is_some() { "flag" } else { "model" }),
    ];
    let floor = config.memory_floor.unwrap_or(default_floor(&prospect.device));
    let floors = Floors { floor, substrate_outstanding: prospect.to_load };
    let observation = observer(&prospect.device)();
    let plan = plan_banks(&observation, &floors, context, &prospect.price, config.max_seqs.asked());
    lines.push(line("memory free", &observation.free.to_string(), observation.source.name()));
    lines.push(line("memory floor", &floor.to_string(), "never promised"));
    lines.push(line("weights to load", &prospect.to_load.to_string(), "model"));
    lines.push(line("for conversations", &plan.budget.to_string(), "free - floor - weights"));
    lines.push(line("banks", &plan.banks.to_string(), if plan.asked { "flag" } else { "plan" }));
    for length in &plan.lengths {
        let name = format!("{} tokens", length.tokens.0);
        lines.push(line(&name, &format!("{} fit", length.fit), &format!("{} each", length.price)));
    }
    lines.push(line("one more at full length", &plan.next_needs.to_string(), "more would be needed"));
    Ok((lines, plan.check().map_err(|error| (Exit::Usage, error.to_string()))))
}
