//! The store: one folder, one identity, one budget. Every call but [`Store::find`], [`Store::plan`] and
//! [`Store::stats`] blocks on the disk.

mod load;
mod obstacle;
mod part;
mod room;
mod save;
mod scan;

pub use load::LoadError;
pub(crate) use part::{Part, Wanted, read_part};
pub use save::{NotSaved, Saved};
pub(crate) use scan::{DESCRIPTION, read_front};

use crate::disk::{Disk, SyncMode};
use crate::format::{FileFault, Remembered, SaveReason};
use crate::identity::{Geometry, Identity, IdentityDigest};
use crate::index::{Entry, EntryId, Index, Stray};
use crate::limits::{CHAIN_MAX, QUARANTINED_MAX};
use crate::name::Name;
use crate::snapshot::{Found, SavePlan};
use crate::stats::{Counters, HitKind, Miss, Quarantine, Stats};
use crate::transcript::Piece;
use ds4_units::{Bytes, TokenId};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{fmt, io};
use tracing::warn;

/// The operator's choices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// Bytes that all files of the folder may take.
    pub budget: Bytes,
    /// Shorter conversations are neither saved nor looked for.
    pub min_tokens: u32,
    /// What a save waits for.
    pub sync: SyncMode,
}

/// Conversations of one identity in a folder.
pub struct Store {
    disk: Box<dyn Disk>,
    folder: String,
    identity: IdentityDigest,
    geometry: Geometry,
    options: StoreOptions,
    index: Mutex<Index>,
    writing: Writing,
    counters: Counters,
    remembered: Mutex<Vec<Remembered>>,
}

/// Who may write, and when. Saves change it; anybody may read it while one goes on.
#[derive(Default)]
struct Writing {
    turn: Mutex<()>,
    claimed: AtomicBool,
    /// Nothing is written before this time: the disk was full.
    paused_until: AtomicU64,
    /// Nothing is copied for a save before this time: the disk failed one.
    failing_until: AtomicU64,
}

/// Keeps a file, and those it continues, from being given up.
pub(crate) struct Pin {
    store: Arc<Store>,
    id: EntryId,
    pub(crate) name: Name,
}

impl Drop for Pin {
    fn drop(&mut self) {
        if let Some(entry) = self.store.index().get_mut(self.id) {
            entry.pins -= 1;
        }
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Store").field(&self.identity).finish()
    }
}

impl Store {
    /// Opens the identity's subfolder, making it if need be, and reads what is there. Leftovers of interrupted saves
    /// are removed, damaged files set aside.
    pub fn open(
        disk: Box<dyn Disk>,
        identity: &Identity,
        geometry: Geometry,
        options: StoreOptions,
    ) -> io::Result<Arc<Store>> {
        let store = Store::new(disk, identity, geometry, options);
        let began = Instant::now();
        store.disk.make_folder(&store.folder)?;
        let turn = store.turn();
        let claimed = store.disk.claim()?;
        store.writing.claimed.store(claimed, Relaxed);
        if claimed {
            store.describe(identity)?;
        }
        store.scan(claimed)?;
        store.counters.indexed(began.elapsed());
        drop(turn);
        Ok(store)
    }

    /// Reads what is there and changes nothing: to look for conversations beside the process that writes.
    pub fn look_into(
        disk: Box<dyn Disk>,
        identity: &Identity,
        geometry: Geometry,
        options: StoreOptions,
    ) -> io::Result<Arc<Store>> {
        let store = Store::new(disk, identity, geometry, options);
        store.scan(false)?;
        Ok(store)
    }

    fn new(disk: Box<dyn Disk>, identity: &Identity, geometry: Geometry, options: StoreOptions) -> Arc<Store> {
        let digest = identity.digest();
        Arc::new(Store {
            disk,
            folder: digest.folder(),
            identity: digest,
            geometry,
            options,
            index: Mutex::default(),
            writing: Writing::default(),
            counters: Counters::default(),
            remembered: Mutex::default(),
        })
    }

    /// The longest stored conversation that the prompt begins with and that leaves at least one of its tokens.
    pub fn find<'a>(self: &Arc<Store>, prompt: impl Iterator<Item = Piece<'a>>) -> Option<Found> {
        let mut index = self.index();
        let most = self.geometry.context.saturating_sub(1);
        let found = index.find(prompt, self.options.min_tokens, most)?;
        let pin = self.pin(&mut index, found.id)?;
        Some(Found { tokens: found.tokens, covered: found.covered, kind: found.kind, pin })
    }

    /// What saving a conversation with these tokens takes: the whole bank, or the blocks after those of the file it
    /// continues. A file that nothing continues and whose blocks take less than its recurrent part is not continued
    /// but written again with the new ones, so that short turns do not fill the disk with recurrent parts.
    pub fn plan(self: &Arc<Store>, tokens: &[TokenId]) -> SavePlan {
        let mut index = self.index();
        let mut plan = SavePlan { stored: false, first_block: 0, parent: None, superseded: Vec::new() };
        let mut next = index.longest_prefix(tokens);
        while let Some((id, entry)) = next.and_then(|id| Some((id, index.get(id)?.clone()))) {
            if entry.tokens as usize == tokens.len() {
                plan.stored = true;
                return plan;
            }
            if entry.chain < CHAIN_MAX && !self.is_slight(&entry) {
                plan.first_block = entry.tokens / self.geometry.block_tokens;
                plan.parent = self.pin(&mut index, id);
                return plan;
            }
            plan.superseded.extend(self.pin(&mut index, id));
            next = entry.parent.filter(|_| entry.chain < CHAIN_MAX);
        }
        plan
    }

    /// Whether a file is better written again than continued.
    fn is_slight(&self, entry: &Entry) -> bool {
        let blocks = self.geometry.blocks(entry.tokens) - entry.first_block;
        let bytes = blocks as usize * self.geometry.block_bytes;
        entry.children == 0 && bytes < self.geometry.recurrent_bytes
    }

    /// How many of a conversation's first tokens are on disk.
    pub fn stored(&self, tokens: &[TokenId]) -> u32 {
        let index = self.index();
        index.longest_prefix(tokens).and_then(|id| index.get(id)).map_or(0, |entry| entry.tokens)
    }

    /// What the stored conversations' answers said exactly, the longest unused first, as it was when the folder was
    /// read; given out once.
    pub fn take_remembered(&self) -> Vec<Remembered> {
        std::mem::take(&mut *self.remembered.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts a prompt that is restored.
    pub fn count_hit(&self, kind: HitKind) {
        self.counters.hit(kind);
    }

    /// Counts a prompt for which nothing is restored.
    pub fn count_miss(&self, why: Miss) {
        self.counters.missed(why);
    }

    /// Counts.
    pub fn stats(&self) -> Stats {
        let index = self.index();
        self.counters.read(index.len() as u64, index.total(), self.options.budget)
    }

    /// Counts a conversation that waits to be written.
    pub(crate) fn count_waiting(&self) {
        self.counters.waits();
    }

    /// Counts one less.
    pub(crate) fn count_written(&self) {
        self.counters.waits_no_more();
    }

    /// How many conversations wait to be written, or are being.
    pub(crate) fn waiting(&self) -> u64 {
        self.counters.waiting()
    }

    /// Counts a save that was refused before it reached the store.
    pub(crate) fn count_save(&self, reason: SaveReason, result: &Result<Saved, NotSaved>) {
        self.counters.saved(reason, result, Duration::ZERO);
    }

    /// Sets a file aside whose contents turned out bad, with everything that continues it. Nothing happens to files
    /// that are gone already.
    fn set_aside(&self, id: EntryId, fault: &FileFault, when: Quarantine) {
        let mut index = self.index();
        let Some(name) = index.get(id).map(|entry| entry.name) else { return };
        warn!(file = %name, %fault, "a stored conversation is damaged and set aside");
        let Some(entry) = self.take_out(&mut index, id) else { return };
        self.counters.quarantined(when);
        if self.writing_is_ours() {
            self.rename_to_bad(&mut index, entry.name.file(), entry.name.bad_file(), entry.size);
        }
    }

    /// Forgets a file that is gone, with everything that continues it: a shorter conversation may serve instead, and
    /// what it held can be saved again.
    fn forget(&self, id: EntryId) {
        self.take_out(&mut self.index(), id);
    }

    /// Takes an entry out of the index, and what continues it off the disk, too: it is of no use without it.
    fn take_out(&self, index: &mut Index, id: EntryId) -> Option<Entry> {
        let mut lost = index.with_descendants(id);
        lost.pop();
        let orphans: Vec<Entry> = lost.into_iter().filter_map(|orphan| index.remove(orphan)).collect();
        let entry = index.remove(id)?;
        if self.writing_is_ours() {
            orphans.iter().for_each(|orphan| self.remove_file(&orphan.name.file()));
        }
        Some(entry)
    }

    /// Renames a file so that it is not looked at again, and drops the oldest such file beyond their number.
    fn rename_to_bad(&self, index: &mut Index, file: String, bad: String, size: Bytes) {
        if let Err(error) = self.disk.rename(&self.folder, &file, &bad) {
            warn!(file, %error, "cannot set a damaged file aside");
            return;
        }
        index.bad.retain(|stray| stray.file != bad);
        index.bad.push(Stray { used: self.disk.now(), folder: self.folder.clone(), file: bad, size });
        while index.bad.len() > QUARANTINED_MAX {
            let oldest = index.bad.remove(0);
            if let Err(error) = self.disk.remove(&oldest.folder, &oldest.file) {
                warn!(file = oldest.file, %error, "cannot remove a file");
            }
        }
    }

    fn remove_file(&self, file: &str) {
        match self.disk.remove(&self.folder, file) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => warn!(file, %error, "cannot remove a file"),
        }
    }

    fn writing_is_ours(&self) -> bool {
        self.disk.claim().unwrap_or(false)
    }

    fn pin(self: &Arc<Store>, index: &mut Index, id: EntryId) -> Option<Pin> {
        let entry = index.get_mut(id)?;
        entry.pins += 1;
        Some(Pin { store: self.clone(), id, name: entry.name })
    }

    /// Whoever panicked while holding it left it whole: every change is one call.
    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Held by the one that writes, or reads the folder.
    fn turn(&self) -> MutexGuard<'_, ()> {
        self.writing.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
