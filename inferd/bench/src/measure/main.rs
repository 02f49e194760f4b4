//! `ds4-bench`: how fast a model reads prompts and writes answers in this process, by the same engine as the server.

mod ceilings;
mod config;
mod crowd;
mod endless;
mod error;
mod plot;
mod request;
mod sweep;
mod table;
mod text;

use clap::Parser;
use config::Args;
use ds4_boot::{ModelFile, Platform};
use ds4_engine::{Account, Engine, EngineOptions, SpeculationOptions};
use ds4_host::{Exit, check_cpu, init_logging, printable};
use ds4_model::LoadedModel;
use endless::Endless;
use error::BenchError;
use request::Requests;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Log lines between the lines of a table are for when something is wrong.
const LOG_FILTER: &str = "warn";

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => Exit::Ok.into(),
        Err(error) => {
            eprintln!("ds4-bench: {}", printable(&error.to_string()));
            error.exit().into()
        }
    }
}

fn run(args: &Args) -> Result<(), BenchError> {
    if let (Some(plot), false) = (&args.plot, args.from.is_empty()) {
        return plot::write(plot, &table::read_all(&args.from)?);
    }
    args.check()?;
    check_cpu()?;
    init_logging(Platform::read().log_filter.as_deref().or(Some(LOG_FILTER)))?;
    let model = args.model();
    // Ctrl-C ends a measurement as it ends any program.
    let cancel = AtomicBool::new(false);
    let file = ModelFile::open(&model, &cancel)?;
    let shape = file.shape().to_owned();
    let booted = file.load(&model, &format!("ds4-bench-{}", std::process::id()), &cancel)?;
    let loaded = booted.loaded;
    let ceilings = args.ceilings.then(|| ceilings::measure(&booted.device)).transpose()?;
    let shares = ceilings::Shares { ceilings, work: loaded.model.token_work() };
    eprintln!("ds4-bench: {} on {}", printable(&shape), ceilings::name(&booted.device));
    shares.print();

    let tokens = text::tokens(args, &loaded.tokenizer)?;
    // What banks of these lengths take has to be asked before the engine owns the model.
    let prices: Vec<u64> = args.frontiers().iter().map(|&tokens| loaded.model.price(tokens).0).collect();
    let loaded = LoadedModel { codec: Arc::new(Endless(loaded.codec)), ..loaded };
    let (codec, tokenizer) = (loaded.codec.clone(), loaded.tokenizer.clone());
    let speculation = Some(SpeculationOptions { ahead: model.draft.ahead(), margin: model.draft.mtp_margin });
    let options = EngineOptions { banks: args.banks(), speculation, ..EngineOptions::default() };
    let engine = Engine::start(loaded, options, Account::unlimited()).map_err(BenchError::Thread)?;
    let requests = Requests { engine: engine.handle(), codec, tokenizer, tokens };
    requests.warm_up()?;
    let table = match &args.concurrency[..] {
        [] => sweep::run(args, &requests, &prices, &shares)?,
        crowds => crowd::run(args, crowds, &requests, &shares)?,
    };
    let stats = requests.engine.observatory().stats();
    if stats.guesses > 0 {
        let (guesses, right, quenched) = (stats.guesses, stats.guesses_right, stats.guesses_quenched);
        eprintln!(
            "ds4-bench: {guesses} guesses, {right} right ({:.1} %); given up for an answer {quenched} times",
            100.0 * right as f64 / guesses as f64
        );
    }
    if let Some(path) = &args.csv {
        table.write(path)?;
    }
    if let Some(path) = &args.plot {
        plot::write(path, &[("this run".to_owned(), table)])?;
    }
    // Its end is the process's end; a panic was heard as an event.
    let _ = engine.stop();
    Ok(())
}
