//! What is on disk, in memory: found by pieces, continued by tokens, evicted by value.

mod find;
mod victim;

pub(crate) use victim::Victim;

use crate::format::{Front, RememberedId};
use crate::keys::{Digest, Keys};
use crate::name::Name;
use ds4_units::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// An entry of the index; never given out twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EntryId(u64);

/// A conversation's file.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) name: Name,
    pub(crate) size: Bytes,
    pub(crate) tokens: u32,
    pub(crate) keys: Keys,
    pub(crate) parent: Option<EntryId>,
    pub(crate) chain: u32,
    pub(crate) first_block: u32,
    pub(crate) used: u64,
    pub(crate) hits: u32,
    /// Files that continue it.
    pub(crate) children: u32,
    /// Restores and saves that need it now.
    pub(crate) pins: u32,
    /// A later file holds all of its blocks again.
    pub(crate) superseded: bool,
    /// What its tool map remembers.
    pub(crate) remembered: Vec<RememberedId>,
}

/// A file of ours that this worker cannot use: of another identity, set aside, or not readable.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stray {
    pub(crate) used: u64,
    pub(crate) folder: String,
    pub(crate) file: String,
    pub(crate) size: Bytes,
}

/// All files of the store.
#[derive(Default)]
pub(crate) struct Index {
    entries: BTreeMap<EntryId, Entry>,
    next_id: u64,
    by_name: BTreeMap<Name, EntryId>,
    /// By digest of whole pieces and number of tokens after them.
    by_prefix: BTreeMap<(Digest, u32), Vec<(Digest, EntryId)>>,
    /// By number of tokens, then by their digest.
    by_tokens: BTreeMap<u32, BTreeMap<Digest, EntryId>>,
    /// Kept in order: set-aside files first, then the longest unused.
    pub(crate) bad: Vec<Stray>,
    pub(crate) others: Vec<Stray>,
    /// Files that could not be read when the folder was, and what may continue them: a later reading may find them.
    pub(crate) unread: Vec<Stray>,
    bytes: u64,
}

impl Index {
    /// An empty index that gives out none of the ids of an earlier one.
    pub(crate) fn after(earlier: &Index) -> Index {
        Index { next_id: earlier.next_id, ..Index::default() }
    }

    /// Enters a file. `parent` must be in the index if the front names one.
    pub(crate) fn insert(&mut self, new: NewEntry<'_>) -> EntryId {
        let NewEntry { name, size, front, parent, used, remembered } = new;
        let id = EntryId(self.next_id);
        self.next_id += 1;
        self.by_name.insert(name, id);
        self.unread.retain(|stray| stray.file != name.file());
        for key in front.keys.entries() {
            self.by_prefix.entry((key.pieces, key.extra)).or_default().push((key.tokens, id));
        }
        self.by_tokens.entry(front.tokens).or_default().insert(front.keys.all_tokens, id);
        if let Some(parent) = parent.and_then(|parent| self.entries.get_mut(&parent)) {
            parent.children += 1;
        }
        self.bytes += size.0;
        let entry = Entry {
            name,
            size,
            tokens: front.tokens,
            keys: front.keys,
            parent,
            chain: front.chain,
            first_block: front.first_block,
            used,
            hits: 0,
            children: 0,
            pins: 0,
            superseded: false,
            remembered,
        };
        self.entries.insert(id, entry);
        id
    }

    /// Forgets a file; its children must be gone.
    pub(crate) fn remove(&mut self, id: EntryId) -> Option<Entry> {
        let entry = self.entries.remove(&id)?;
        self.by_name.remove(&entry.name);
        for key in entry.keys.entries() {
            if let Some(held) = self.by_prefix.get_mut(&(key.pieces, key.extra)) {
                held.retain(|&(_, other)| other != id);
                if held.is_empty() {
                    self.by_prefix.remove(&(key.pieces, key.extra));
                }
            }
        }
        if let Some(held) = self.by_tokens.get_mut(&entry.tokens) {
            if held.get(&entry.keys.all_tokens) == Some(&id) {
                held.remove(&entry.keys.all_tokens);
            }
            if held.is_empty() {
                self.by_tokens.remove(&entry.tokens);
            }
        }
        if let Some(parent) = entry.parent.and_then(|parent| self.entries.get_mut(&parent)) {
            parent.children -= 1;
        }
        self.bytes -= entry.size.0;
        Some(entry)
    }

    pub(crate) fn get(&self, id: EntryId) -> Option<&Entry> {
        self.entries.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: EntryId) -> Option<&mut Entry> {
        self.entries.get_mut(&id)
    }

    pub(crate) fn named(&self, name: Name) -> Option<EntryId> {
        self.by_name.get(&name).copied()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (EntryId, &Entry)> {
        self.entries.iter().map(|(&id, entry)| (id, entry))
    }

    /// The files that a restore of `id` reads, the first one first.
    pub(crate) fn chain(&self, id: EntryId) -> Vec<EntryId> {
        let mut chain: Vec<EntryId> =
            std::iter::successors(Some(id), |id| self.entries.get(id).and_then(|entry| entry.parent)).collect();
        chain.reverse();
        chain
    }

    /// The entry and everything that continues it, children before parents.
    pub(crate) fn with_descendants(&self, id: EntryId) -> Vec<EntryId> {
        let mut found = vec![id];
        let mut next = 0;
        while let Some(&parent) = found.get(next) {
            found.extend(self.entries.iter().filter(|(_, entry)| entry.parent == Some(parent)).map(|(&id, _)| id));
            next += 1;
        }
        found.reverse();
        found
    }

    /// Bytes of every file of ours, of whatever identity.
    pub(crate) fn total(&self) -> Bytes {
        let strays = self.bad.iter().chain(&self.others).chain(&self.unread);
        Bytes(self.bytes + strays.map(|stray| stray.size.0).sum::<u64>())
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// What the tool maps of a file and of those it continues remember.
    pub(crate) fn remembered_before(&self, id: Option<EntryId>) -> BTreeSet<RememberedId> {
        let chain = id.map_or_else(Vec::new, |id| self.chain(id));
        chain.into_iter().filter_map(|id| self.get(id)).flat_map(|entry| entry.remembered.iter().copied()).collect()
    }
}

/// A file to enter.
pub(crate) struct NewEntry<'a> {
    pub(crate) name: Name,
    pub(crate) size: Bytes,
    pub(crate) front: &'a Front,
    pub(crate) parent: Option<EntryId>,
    pub(crate) used: u64,
    pub(crate) remembered: Vec<RememberedId>,
}
