//! Saving: a new file, whole and lasting before it has its name. Files never change afterwards.

use super::Store;
use super::scan::parent_of;
use crate::disk::SyncMode;
use crate::format::{
    FRONT_LEN, Front, HEAD_LEN, Header, Parent, Remembered, RememberedId, SaveReason, SectionKind, encode_record,
    encode_table, encode_tools,
};
use crate::index::{EntryId, NewEntry};
use crate::keys::Keys;
use crate::limits::{FAILING_DISK_PAUSE, FULL_DISK_PAUSE, TOOL_CALLS_MAX, TOOL_ID_MAX, TOOLS_BYTES_MAX};
use crate::name::Name;
use crate::snapshot::Snapshot;
use crate::stats::Eviction;
use ds4_units::Bytes;
use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;
use thiserror::Error;
use tracing::warn;

/// A conversation that was saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Saved {
    /// Bytes written.
    pub written: Bytes,
    /// Whether it continues another file.
    pub continued: bool,
}

/// Why a conversation was not saved.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum NotSaved {
    #[error("it is on disk already")]
    Stored,
    #[error("another conversation has the same text in other tokens, and is in use")]
    SameText,
    #[error("the conversation it continues is gone")]
    ParentGone,
    #[error("it would take {size}, the whole budget is {budget}")]
    LargerThanBudget { size: Bytes, budget: Bytes },
    #[error("{used} of {budget} are used by conversations that are needed now")]
    NoRoom { used: Bytes, budget: Bytes },
    #[error("the file system has {free} left, {needed} are needed")]
    DiskFull { free: Bytes, needed: Bytes },
    #[error("the disk was full a moment ago")]
    Paused,
    #[error("the disk failed a moment ago")]
    Failing,
    #[error("another process writes to the folder")]
    ReadOnly,
    #[error("{waiting} conversations wait for the disk already")]
    QueueFull { waiting: usize },
    #[error("cannot write: {0}")]
    Io(#[from] io::Error),
}

/// A file ready to be written.
struct Encoded {
    name: Name,
    header: Header,
    front: Front,
    head: [u8; HEAD_LEN],
    table: Vec<u8>,
    record: Vec<u8>,
    tools: Vec<u8>,
    remembered: Vec<RememberedId>,
    size: Bytes,
}

impl Store {
    /// Writes a snapshot. Returns once it would survive a power loss.
    pub fn save(&self, snapshot: &Snapshot) -> Result<Saved, NotSaved> {
        let began = Instant::now();
        let result = self.try_save(snapshot);
        match &result {
            Ok(_) => self.writing.failing_until.store(0, Relaxed),
            Err(NotSaved::Io(_)) => {
                self.writing.failing_until.store(self.disk.now() + FAILING_DISK_PAUSE.as_secs(), Relaxed);
            }
            Err(_) => {}
        }
        self.counters.saved(snapshot.reason, &result, began.elapsed());
        result
    }

    fn try_save(&self, snapshot: &Snapshot) -> Result<Saved, NotSaved> {
        let _turn = self.turn();
        if !self.claim()? {
            return Err(NotSaved::ReadOnly);
        }
        if self.disk.now() < self.writing.paused_until.load(Relaxed) {
            return Err(NotSaved::Paused);
        }
        let encoded = self.encode(snapshot)?;
        let result = match self.place(&encoded, snapshot) {
            Err(full @ NotSaved::DiskFull { .. }) => match self.give_up_one(Eviction::DiskFull) {
                Ok(()) => self.place(&encoded, snapshot),
                // What fills the disk is others' or needed now.
                Err(NotSaved::NoRoom { .. }) => Err(full),
                Err(error) => Err(error),
            },
            result => result,
        };
        if let Err(full @ NotSaved::DiskFull { .. }) = &result {
            warn!(%full, "conversations are not saved for {} s", FULL_DISK_PAUSE.as_secs());
            self.writing.paused_until.store(self.disk.now() + FULL_DISK_PAUSE.as_secs(), Relaxed);
        }
        result
    }

    /// Makes this the process that writes if no other one is. Blocks on the disk.
    pub(crate) fn take_over(&self) -> io::Result<bool> {
        let _turn = self.turn();
        self.claim()
    }

    /// The same for whoever has the turn.
    fn claim(&self) -> io::Result<bool> {
        if self.writing.claimed.load(Relaxed) {
            return Ok(true);
        }
        if !self.disk.claim()? {
            return Ok(false);
        }
        // The one who wrote until now may have changed everything.
        self.writing.claimed.store(true, Relaxed);
        self.scan(true)?;
        Ok(true)
    }

    /// Lays the file out.
    fn encode(&self, snapshot: &Snapshot) -> Result<Encoded, NotSaved> {
        let transcript = &snapshot.transcript;
        let (parent, known) = {
            let index = self.index();
            let parent = snapshot.plan.parent.as_ref().map(|pin| pin.id);
            let entry = parent.map(|id| index.get(id).cloned().ok_or(NotSaved::ParentGone)).transpose()?;
            (entry, index.remembered_before(parent))
        };
        let (tools, remembered) = encode_new(&(snapshot.remembered)(), known);
        let record = encode_record(transcript);
        let first_block = snapshot.plan.first_block;
        let mut sections =
            vec![(SectionKind::Record, &record[..]), (SectionKind::Recurrent, snapshot.bank.recurrent())];
        let blocks = first_block..self.geometry.blocks(transcript.len());
        sections.extend(blocks.map(|index| (SectionKind::Block, snapshot.bank.block(index))));
        if !tools.is_empty() {
            sections.push((SectionKind::Tools, &tools));
        }
        let table = encode_table(&sections);
        let contents: usize = sections.iter().map(|(_, content)| content.len()).sum();
        let payload_bytes = (FRONT_LEN + table.len() + contents - tools.len()) as u64;
        let header = Header {
            reason: snapshot.reason,
            has_tools: !tools.is_empty(),
            tokens: transcript.len(),
            context: self.geometry.context,
            created: self.disk.now(),
            payload_bytes,
            text_bytes: transcript.text().len() as u32,
        };
        let head = header.encode();
        let front = Front {
            sections: sections.len() as u32,
            table_crc: crc32fast::hash(&table),
            head_crc: crc32fast::hash(&head),
            identity: self.identity,
            keys: Keys::of(transcript),
            tokens: transcript.len(),
            parent: parent.as_ref().map(|parent| Parent { name: parent.name, tokens: parent.keys.all_tokens }),
            chain: parent.as_ref().map_or(0, |parent| parent.chain + 1),
            first_block,
            block_tokens: self.geometry.block_tokens,
            block_bytes: self.geometry.block_bytes as u64,
            recurrent_bytes: self.geometry.recurrent_bytes as u64,
            tools_bytes: tools.len() as u64,
        };
        let size = HEAD_LEN as u64 + u64::from(header.text_bytes) + payload_bytes + tools.len() as u64;
        let name = Name::of_text(transcript.text());
        Ok(Encoded { name, header, front, head, table, record, tools, remembered, size: Bytes(size) })
    }

    /// Makes room, writes the file and enters it.
    fn place(&self, encoded: &Encoded, snapshot: &Snapshot) -> Result<Saved, NotSaved> {
        self.clear_name(encoded)?;
        self.make_room(encoded.size)?;
        self.write(encoded, snapshot)?;
        let mut index = self.index();
        let parent = parent_of(&index, &encoded.front, self.geometry.block_tokens);
        if encoded.front.parent.is_some() && parent.is_none() {
            // What it continues turned out bad meanwhile.
            drop(index);
            self.remove_file(&encoded.name.file());
            return Err(NotSaved::ParentGone);
        }
        index.insert(NewEntry {
            name: encoded.name,
            size: encoded.size,
            front: &encoded.front,
            parent,
            used: encoded.header.created,
            remembered: encoded.remembered.clone(),
        });
        for pin in &snapshot.plan.superseded {
            if let Some(entry) = index.get_mut(pin.id) {
                entry.superseded = true;
            }
        }
        Ok(Saved { written: encoded.size, continued: parent.is_some() })
    }

    /// Decides what happens to a file that has the name already.
    fn clear_name(&self, encoded: &Encoded) -> Result<(), NotSaved> {
        let mut index = self.index();
        let Some(id) = index.named(encoded.name) else { return Ok(()) };
        let Some(entry) = index.get(id) else { return Ok(()) };
        if entry.keys.all_tokens == encoded.front.keys.all_tokens {
            return Err(NotSaved::Stored);
        }
        if entry.children > 0 || entry.pins > 0 || Some(id) == self.parent_id(&index, encoded) {
            return Err(NotSaved::SameText);
        }
        index.remove(id);
        Ok(())
    }

    fn parent_id(&self, index: &crate::index::Index, encoded: &Encoded) -> Option<EntryId> {
        encoded.front.parent.and_then(|parent| index.named(parent.name))
    }

    /// Makes everything last that was saved without waiting for it. For a worker that stops; blocks on the disk.
    pub(crate) fn make_last(&self) {
        if self.options.sync == SyncMode::None
            && let Err(error) = self.disk.sync_everything()
        {
            warn!(%error, "a power loss may cost conversations that were saved");
        }
    }

    /// Writes, syncs, renames, syncs the folder. On an error nothing is left behind, as far as the disk lets us.
    fn write(&self, encoded: &Encoded, snapshot: &Snapshot) -> Result<(), NotSaved> {
        let (temporary, file) = (encoded.name.temporary_file(), encoded.name.file());
        let written = self.write_temporary(&temporary, encoded, snapshot);
        let result = written.and_then(|()| self.disk.rename(&self.folder, &temporary, &file)).inspect_err(|_| {
            self.remove_file(&temporary);
        });
        let result = result.and_then(|()| {
            if self.options.sync == SyncMode::None {
                return Ok(());
            }
            self.disk.sync(&self.folder).inspect_err(|_| {
                // Whether the name would last is not known: without it, nobody relies on it.
                self.remove_file(&file);
            })
        });
        result.map_err(|error| match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                NotSaved::DiskFull { free: Bytes::ZERO, needed: encoded.size }
            }
            _ => error.into(),
        })
    }

    fn write_temporary(&self, temporary: &str, encoded: &Encoded, snapshot: &Snapshot) -> io::Result<()> {
        let mut file = match self.disk.create(&self.folder, temporary) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // An earlier attempt could not even remove it.
                self.disk.remove(&self.folder, temporary)?;
                self.disk.create(&self.folder, temporary)?
            }
            created => created?,
        };
        let parts: [&[u8]; 6] = [
            &encoded.head,
            snapshot.transcript.text(),
            &encoded.front.encode(),
            &encoded.table,
            &encoded.record,
            snapshot.bank.recurrent(),
        ];
        parts.iter().try_for_each(|part| file.write_all(part))?;
        for index in encoded.front.first_block..self.geometry.blocks(encoded.front.tokens) {
            file.write_all(snapshot.bank.block(index))?;
        }
        file.write_all(&encoded.tools)?;
        match (self.options.sync, snapshot.reason) {
            (SyncMode::None, _) => Ok(()),
            (_, SaveReason::Shutdown) => file.sync(SyncMode::Full),
            (mode, _) => file.sync(mode),
        }
    }
}

/// The tool map of what is not known yet, and what it has; what would make a file unreadable is left out.
fn encode_new(remembered: &[Remembered], mut known: BTreeSet<RememberedId>) -> (Vec<u8>, Vec<RememberedId>) {
    let (mut new, mut ids, mut bytes) = (Vec::new(), Vec::new(), 0);
    for part in remembered {
        // Its head in the map has eight bytes.
        let more = part.bytes() + 8;
        let fits =
            part.id.len() <= TOOL_ID_MAX && new.len() < TOOL_CALLS_MAX && bytes + more + 8 <= TOOLS_BYTES_MAX.index();
        let id = part.digest();
        if fits && known.insert(id) {
            bytes += more;
            new.push(part);
            ids.push(id);
        }
    }
    (encode_tools(&new), ids)
}
