//! `ds4 kv`: conversations on disk, looked at from outside.

mod list;
mod prune;
mod show;
mod verify;

use crate::config::{FolderArgs, KvAction, KvArgs};
use crate::error::CliError;
use ds4_banks::{Catalog, Entry, FileFault, Folder, Listed, Name, Summary};
use ds4_host::{Exit, printable};
use serde_json::Value;
use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

/// Runs a subcommand.
pub(crate) fn run(args: &KvArgs) -> Result<Exit, CliError> {
    match &args.action {
        KvAction::List { folder } => list::run(folder),
        KvAction::Show { name, folder } => show::run(name, folder),
        KvAction::Verify { names, folder } => verify::run(names, folder),
        KvAction::Prune { which, folder } => prune::run(which, folder),
    }
}

/// The folder and what is in it.
pub(crate) fn open(args: &FolderArgs) -> Result<(Folder, Catalog), CliError> {
    let folder = Folder::existing(&args.kv_disk_dir)?;
    let catalog = Catalog::read(&folder).map_err(|source| unreadable(args, source))?;
    Ok((folder, catalog))
}

fn unreadable(args: &FolderArgs, source: io::Error) -> CliError {
    CliError::KvFolder { path: args.kv_disk_dir.clone(), source }
}

/// The conversation whose file's name begins so.
fn named<'a>(catalog: &'a Catalog, beginning: &str) -> Result<&'a Entry, CliError> {
    let mut found = catalog
        .entries
        .iter()
        .filter(|entry| matches!(entry.listed, Listed::Conversation(..)) && entry.facts.name.starts_with(beginning));
    let wrong = |problem| CliError::KvName { name: beginning.to_owned(), problem };
    let first = found.next().ok_or_else(|| wrong("no conversation has a name that begins so"))?;
    match found.next() {
        None => Ok(first),
        Some(_) => Err(wrong("several conversations have names that begin so")),
    }
}

/// A conversation's name and what its beginning says.
fn conversation(entry: &Entry) -> Option<(Name, &Result<Summary, FileFault>)> {
    match &entry.listed {
        Listed::Conversation(name, summary) => Some((*name, summary)),
        _ => None,
    }
}

/// Prints lines for people or one JSON value for programs.
fn print(args: &FolderArgs, value: &Value, lines: &[String]) -> Result<(), CliError> {
    let mut output = io::stdout().lock();
    let written = if args.json {
        writeln!(output, "{value:#}")
    } else {
        lines.iter().try_for_each(|line| writeln!(output, "{}", printable(line)))
    };
    written.and_then(|()| output.flush()).map_err(CliError::Output)
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// How long ago, in the largest whole unit.
fn age(then: u64) -> String {
    match now().saturating_sub(then) {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} days", seconds / 86_400),
    }
}
