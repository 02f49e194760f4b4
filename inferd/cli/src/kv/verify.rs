//! `ds4 kv verify`.

use super::{conversation, list, named, open, print, unreadable};
use crate::config::FolderArgs;
use crate::error::CliError;
use ds4_banks::{Disk, Entry, FileFault, Folder, Name, verify};
use ds4_host::Exit;
use ds4_units::Bytes;
use serde_json::{Value, json};
use std::io;
use std::time::Instant;

/// What came of a file.
struct Checked<'a> {
    entry: &'a Entry,
    fault: Option<FileFault>,
}

pub(super) fn run(names: &[String], args: &FolderArgs) -> Result<Exit, CliError> {
    let (folder, catalog) = open(args)?;
    let wanted: Vec<&Entry> = match names {
        [] => catalog.entries.iter().collect(),
        names => names.iter().map(|name| named(&catalog, name)).collect::<Result<_, _>>()?,
    };
    let began = Instant::now();
    let mut checked = Vec::new();
    for entry in wanted {
        let Some((name, _)) = conversation(entry) else { continue };
        match check(&folder, entry, name) {
            Ok(fault) => checked.push(Checked { entry, fault }),
            // Given up by a server that runs.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(unreadable(args, error)),
        }
    }
    let damaged = checked.iter().filter(|checked| checked.is_damaged()).count();
    let bytes = Bytes(checked.iter().map(|checked| checked.entry.facts.len).sum());
    let mut lines: Vec<String> = checked.iter().filter_map(Checked::line).collect();
    lines.push(format!(
        "{} files, {bytes}, checked in {} ms: {damaged} damaged",
        checked.len(),
        began.elapsed().as_millis()
    ));
    let value = json!({
        "checked": checked.len(),
        "bytes": bytes.0,
        "damaged": damaged,
        "files": checked.iter().map(Checked::to_json).collect::<Value>(),
    });
    print(args, &value, &lines)?;
    Ok(if damaged > 0 { Exit::KvDamaged } else { Exit::Ok })
}

/// What is wrong with a file, if anything.
fn check(folder: &Folder, entry: &Entry, name: Name) -> io::Result<Option<FileFault>> {
    Ok(verify(&*folder.open(&entry.folder, &entry.facts.name)?, name)?.err())
}

impl Checked<'_> {
    fn is_damaged(&self) -> bool {
        self.fault.as_ref().is_some_and(|fault| !fault.is_foreign())
    }

    fn line(&self) -> Option<String> {
        let fault = self.fault.as_ref()?;
        let what = if fault.is_foreign() { "not ours" } else { "damaged" };
        Some(format!("{}/{}: {what}: {fault}", self.entry.folder, self.entry.facts.name))
    }

    fn to_json(&self) -> Value {
        let mut value = list::to_json(self.entry);
        value["damaged"] = self.is_damaged().into();
        value["fault"] = self.fault.as_ref().map(ToString::to_string).into();
        value
    }
}
