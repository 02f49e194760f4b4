//! `ds4-loadgen`: many streaming clients at once against an OpenAI-compatible server, and what they felt.

mod client;
mod config;
mod error;
mod plot;
mod prompts;
mod report;
mod run;
mod sse;
mod summary;

use clap::Parser;
use config::Args;
use ds4_host::{Exit, printable};
use error::LoadgenError;
use std::process::ExitCode;

fn main() -> ExitCode {
    match measure(&Args::parse()) {
        Ok(exit) => exit.into(),
        Err(error) => {
            eprintln!("ds4-loadgen: {}", printable(&error.to_string()));
            error.exit().into()
        }
    }
}

fn measure(args: &Args) -> Result<Exit, LoadgenError> {
    let server = client::Server::new(&args.url, args.api_key.as_deref(), args.timeout());
    let prompts = prompts::Prompts::prepare(&server, args)?;
    let outcome = run::run(&server, &prompts, args);
    let summary = summary::Summary::of(&outcome);
    print!("{}", report::table(&summary));
    if let Some(path) = &args.csv {
        report::write_csv(path, &outcome.requests)?;
    }
    if let Some(path) = &args.plot {
        plot::write(path, &summary)?;
    }
    Ok(if summary.failed() > 0 { Exit::Failed } else { Exit::Ok })
}
