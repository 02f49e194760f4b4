//! `scripts/check kill`: real processes are killed with SIGKILL in every phase of their lives, and what survives is
//! compared with what has to. A greedy answer that is not the undisturbed one fails the run, whatever else survived.

mod blow;
mod cell;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};
use blow::{Script, Stage};
use cell::{PHASES, VICTIMS, expected};
use clap::Parser;
use ds4_tests::{demo_model, take_programs_from};

/// Kills workers, owners and keepers in every phase, and shows what survived.
#[derive(Parser)]
#[command(name = "kill")]
struct Options {
    /// The model [default: the one in the repository]
    #[arg(long)]
    model: Option<PathBuf>,
    /// The kind of memory of the owners: `memfd`, or `vmm` for a GPU
    #[arg(long, default_value = "memfd")]
    backend: String,
    /// The folder with the programs [default: where cargo builds them]
    #[arg(long)]
    programs: Option<PathBuf>,
    /// Only this cell, as `decode/worker`
    #[arg(long)]
    only: Option<String>,
    /// Write the table to this file
    #[arg(long)]
    write: Option<PathBuf>,
}

fn main() -> Result<ExitCode> {
    let options = Options::parse();
    if let Some(programs) = options.programs {
        take_programs_from(programs);
    }
    let model = options.model.unwrap_or_else(demo_model);
    let owner_arguments: Vec<OsString> =
        vec!["--backend".into(), (&options.backend).into(), "--worker-min-gb".into(), "0".into()];
    let stage = Stage { model: &model, owner_arguments: &owner_arguments };
    let began = Instant::now();
    let script = Script::undisturbed(&stage.site(None)?).context("an undisturbed run")?;
    println!("{}", HEADING.trim_end());
    let (mut table, mut wrong) = (HEADING.to_owned(), 0);
    for phase in PHASES {
        for victim in VICTIMS {
            if options.only.as_ref().is_some_and(|only| *only != format!("{phase}/{victim}")) {
                continue;
            }
            let struck = Instant::now();
            let line = match stage.strike(&script, phase, victim) {
                Ok(found) if found == expected(phase, victim) => format!("| {phase:<8} | {victim:<17} | {found} |"),
                Ok(found) => {
                    wrong += 1;
                    format!("| {phase:<8} | {victim:<17} | {found} | WRONG, expected: {}", expected(phase, victim))
                }
                Err(error) => {
                    wrong += 1;
                    format!("| {phase:<8} | {victim:<17} | WRONG: {error:#}")
                }
            };
            println!("{line}  ({} ms)", struck.elapsed().as_millis());
            writeln!(table, "{line}")?;
        }
    }
    if let Some(path) = options.write {
        std::fs::write(&path, about(&options.backend) + &table).with_context(|| path.display().to_string())?;
    }
    let cells = table.lines().count() - HEADING.lines().count();
    println!("kill: {} passed, {wrong} failed, {:.0} s", cells - wrong, began.elapsed().as_secs_f64());
    Ok(if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

const HEADING: &str = "\
| phase    | killed            | weights      | conversation   | running answer |
|----------|-------------------|--------------|----------------|---------|
";

fn about(backend: &str) -> String {
    format!(
        "# What survives SIGKILL\n\n\
        Written by `scripts/check kill` with the weights in {backend}; `tests/kill/cell.rs` holds what is expected, and the \
        lane fails where something else is found or an answer is not the undisturbed one, token for token.\n\n\
        A running answer is cut only when its own worker dies; asked again, it is the same. What was said before goes on \
        in the worker (live), in the dead worker's memory (adopted), or from disk when worker and keeper die together. A \
        worker whose owner dies while it attaches ends with exit code 21 and is started again.\n\n"
    )
}
