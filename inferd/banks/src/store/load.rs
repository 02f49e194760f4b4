//! Restoring: everything is read and checked before anybody uses any of it.

use super::Store;
use super::part::{Part, read_part};
use crate::format::FileFault;
use crate::index::{Entry, EntryId};
use crate::snapshot::{Found, Kept, Loaded};
use ds4_units::Bytes;
use std::io;
use std::sync::Arc;
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
    /// Reads a found conversation. Files that are damaged are set aside.
    pub fn load(self: &Arc<Store>, found: Found) -> Result<Loaded, LoadError> {
        let chain: Vec<(EntryId, Entry)> = {
            let index = self.index();
            index.chain(found.pin.id).into_iter().filter_map(|id| Some((id, index.get(id)?.clone()))).collect()
        };
        let mut read = 0;
        let mut whole: Option<Part> = None;
        for (id, entry) in &chain {
            let part = self.load_part(entry).and_then(|part| match whole.take() {
                None => Ok(part),
                Some(before) => before.continued_by(part).map_err(LoadError::Damaged),
            });
            match part {
                Ok(part) => whole = Some(part),
                Err(error) => {
                    self.counters.load_failed();
                    if let LoadError::Damaged(fault) = &error {
                        self.set_aside(*id, fault);
                    }
                    return Err(error);
                }
            }
            read += entry.size.0;
        }
        let Part { transcript, blocks, recurrent, tools, .. } = whole.ok_or(LoadError::Gone)?;
        self.used(&chain);
        self.counters.loaded(transcript.len(), Bytes(read));
        Ok(Loaded { transcript, blocks, recurrent, tools, read: Bytes(read), kept: Kept(found.pin) })
    }

    /// The model refused a restored conversation, or could not compute with it: its file is set aside.
    pub fn refuse(&self, kept: &Kept, why: &str) {
        self.set_aside(kept.0.id, &FileFault::Contents(why.to_owned()));
    }

    /// Reads and checks everything of one file.
    fn load_part(&self, entry: &Entry) -> Result<Part, LoadError> {
        let file = self.disk.open(&self.folder, &entry.name.file())?;
        let part = read_part(&*file, entry.name, self.identity, &self.geometry)?.map_err(LoadError::Damaged)?;
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
