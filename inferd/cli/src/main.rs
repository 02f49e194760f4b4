//! `ds4`: one question on the command line, by the same engine and the same import as the server; and a look at the
//! conversations that a server keeps on disk.

mod answer;
mod config;
mod dump;
mod error;
mod interrupt;
mod kv;
mod prompt;
mod screen;
mod why_miss;

use clap::Parser;
use config::{Args, Command};
use ds4_boot::{ModelFile, Platform};
use ds4_host::{Exit, check_cpu, init_logging, printable};
use error::CliError;
use interrupt::Interrupt;
use std::io::ErrorKind;
use std::process::ExitCode;

/// Log lines that interrupt an answer are for when something is wrong.
const LOG_FILTER: &str = "warn";

fn main() -> ExitCode {
    match run() {
        Ok(exit) => exit.into(),
        // Whoever read the answer has had enough of it, as in `ds4 ... | head`.
        Err(CliError::Output(error)) if error.kind() == ErrorKind::BrokenPipe => Exit::Ok.into(),
        Err(error) => {
            eprintln!("ds4: {}", printable(&error.to_string()));
            error.exit().into()
        }
    }
}

fn run() -> Result<Exit, CliError> {
    check_cpu()?;
    let interrupt = Interrupt::install()?;
    let args = Args::parse();
    let platform = Platform::read();
    init_logging(platform.log_filter.as_deref().or(Some(LOG_FILTER)))?;
    match &args.command {
        Some(Command::Kv(kv)) => return kv::run(kv),
        Some(Command::WhyMiss(why)) => return why_miss::run(why, &interrupt),
        None => {}
    }
    let question = prompt::question(&args)?;
    let file = ModelFile::open(&args.model, interrupt.flag())?;
    if args.dump_tokens {
        let (tokenizer, codec) = file.prompt_side(&args.model)?;
        let asked = prompt::render(&args, &question, codec.as_ref())?;
        dump::tokens(&asked.prompt, &tokenizer)?;
        return Ok(Exit::Ok);
    }
    let worker = format!("ds4-{}", std::process::id());
    let booted = file.load(&args.model, &worker, interrupt.flag())?;
    answer::answer(&args, &question, booted.loaded, &interrupt)
}
