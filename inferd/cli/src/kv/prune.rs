//! `ds4 kv prune`.

use super::{list, now, open, print, unreadable};
use crate::config::{FolderArgs, PruneArgs};
use crate::error::CliError;
use ds4_banks::{Disk, Entry};
use ds4_host::Exit;
use ds4_units::Bytes;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io;

pub(super) fn run(which: &PruneArgs, args: &FolderArgs) -> Result<Exit, CliError> {
    let (folder, catalog) = open(args)?;
    if !which.dry_run && !folder.claim().map_err(|source| unreadable(args, source))? {
        return Err(CliError::KvInUse { path: args.kv_disk_dir.clone() });
    }
    let oldest = which.age().map(|age| now().saturating_sub(age.as_secs()));
    let unwanted =
        |entry: &Entry, used: u64| which.all || entry.is_useless() || oldest.is_some_and(|oldest| used < oldest);
    let pruned = catalog.to_prune(unwanted, which.most());
    if !which.dry_run {
        remove(&folder, &pruned).map_err(|source| unreadable(args, source))?;
    }
    let bytes = Bytes(pruned.iter().map(|entry| entry.facts.len).sum());
    let left = Bytes(catalog.bytes().0 - bytes.0);
    let verb = if which.dry_run { "would be removed" } else { "removed" };
    let mut lines: Vec<String> =
        pruned.iter().map(|entry| format!("{}/{}: {}", entry.folder, entry.facts.name, list::state(entry))).collect();
    lines.push(format!("{} files, {bytes}, {verb}; {left} left", pruned.len()));
    let value = json!({
        "removed": !which.dry_run,
        "bytes": bytes.0,
        "bytes_left": left.0,
        "files": pruned.iter().map(|entry| list::to_json(entry)).collect::<Value>(),
    });
    print(args, &value, &lines)?;
    Ok(Exit::Ok)
}

/// Removes files in this order, and makes that last.
fn remove(folder: &dyn Disk, pruned: &[&Entry]) -> io::Result<()> {
    for entry in pruned {
        match folder.remove(&entry.folder, &entry.facts.name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    let touched: BTreeSet<&str> = pruned.iter().map(|entry| entry.folder.as_str()).collect();
    touched.into_iter().try_for_each(|name| folder.sync(name))
}
