//! Restoring: everything is read and checked before anybody uses any of it.

use super::Store;
use super::part::{Part, Wanted, read_part};
use crate::format::FileFault;
use crate::index::{Entry, EntryId};
use crate::snapshot::{Found, Kept, Loaded};
use crate::stats::Quarantine;
use ds4_units::Bytes;
use std::io;
use std::sync::Arc;
use std::time::Instant;
use thiserror::Error;

/// Why a conversation was not restored. The prompt is computed instead.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum LoadError {
    #[error("the file is damaged and was set aside: {0}")]
    Damaged(FileFault),
    #[error("cannot read the file: {0}")]
    Io(#[from] io::Error),
    #[error("the file is gone")]
    Gone,
}

impl Store {
    /// Reads a found conversation. Files that are damaged are set aside, files that are gone forgotten.
    pub fn load(self: &Arc<Store>, found: Found) -> Result<Loaded, LoadError> {
        let chain: Vec<(EntryId, Entry)> = {
            let index = self.index();
            index.chain(found.pin.id).into_iter().filter_map(|id| Some((id, index.get(id)?.clone()))).collect()
        };
        let began = Instant::now();
        let mut read = 0;
        let mut whole: Option<Part> = None;
        for (place, (id, entry)) in chain.iter().enumerate() {
            // Only the last file's recurrent part tells the state.
            let wanted = if place + 1 == chain.len() { Wanted::All } else { Wanted::Blocks };
            let part = self.load_part(entry, wanted).and_then(|part| match whole.take() {
                None => Ok(part),
                Some(before) => before.continued_by(part).map_err(LoadError::Damaged),
            });
            match part {
                Ok(part) => whole = Some(part),
                Err(error) => {
                    self.counters.load_failed(began.elapsed());
                    match &error {
                        LoadError::Damaged(fault) => self.set_aside(*id, fault, Quarantine::Restore),
                        LoadError::Gone => self.forget(*id),
                        LoadError::Io(_) => {}
                    }
                    return Err(error);
                }
            }
            read += entry.size.0 - if wanted == Wanted::All { 0 } else { self.geometry.recurrent_bytes as u64 };
        }
        let Part { transcript, blocks, recurrent, remembered, .. } = whole.ok_or(LoadError::Gone)?;
        self.used(&chain);
        self.counters.loaded(transcript.len(), Bytes(read), began.elapsed());
        Ok(Loaded { transcript, blocks, recurrent, remembered, read: Bytes(read), kept: Kept(found.pin) })
    }

    /// The model refused a restored conversation, or could not compute with it: its file is set aside.
    pub fn refuse(&self, kept: &Kept, why: &str) {
        self.set_aside(kept.0.id, &FileFault::Contents(why.to_owned()), Quarantine::Model);
    }

    /// Reads and checks everything of one file.
    fn load_part(&self, entry: &Entry, wanted: Wanted) -> Result<Part, LoadError> {
        let file = self.disk.open(&self.folder, &entry.name.file()).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => LoadError::Gone,
            _ => error.into(),
        })?;
        let part = read_part(&*file, entry.name, self.identity, &self.geometry, wanted)?.map_err(LoadError::Damaged)?;
        // The file was replaced since it was indexed.
        if part.keys != entry.keys || part.first_block != entry.first_block {
            return Err(LoadError::Damaged(FileFault::Keys));
        }
        Ok(part)
    }

    /// Remembers that the files of a chain were of use.
    fn used(&self, chain: &[(EntryId, Entry)]) {
        let now = self.disk.now();
        let mut index = self.index();
        for (id, _) in chain {
            if let Some(entry) = index.get_mut(*id) {
                entry.used = now;
            }
        }
        if let Some(entry) = chain.last().and_then(|(id, _)| index.get_mut(*id)) {
            entry.hits += 1;
        }
        drop(index);
        // Only for the order of eviction after a restart: a failure costs nothing else.
        for (_, entry) in chain {
            let _ = self.disk.touch(&self.folder, &entry.name.file());
        }
    }
}
