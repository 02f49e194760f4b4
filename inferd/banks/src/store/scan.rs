//! Reading what a folder holds: fronts only, two reads a file.

use super::Store;
use super::part::read_remembered;
use crate::disk::{FileFacts, ReadFile};
use crate::format::{FRONT_LEN, FileFault, Front, HEAD_LEN, Header, Remembered, RememberedId, check_crc, expect};
use crate::identity::{Identity, is_identity_folder};
use crate::index::{EntryId, Index, NewEntry, Stray};
use crate::limits::REMEMBERED_BYTES_MAX;
use crate::name::{FileKind, Name};
use crate::stats::Quarantine;
use ds4_units::Bytes;
use std::io;
use std::sync::PoisonError;
use tracing::{debug, warn};

/// What a person may read beside the files.
pub(crate) const DESCRIPTION: &str = "identity";

/// A file whose beginning was read.
struct Scanned {
    name: Name,
    facts: FileFacts,
    header: Header,
    front: Front,
    remembered: Vec<RememberedId>,
}

impl Store {
    /// Writes down what the subfolder is for, once.
    pub(super) fn describe(&self, identity: &Identity) -> io::Result<()> {
        match self.disk.create(&self.folder, DESCRIPTION) {
            Ok(mut file) => file.write_all(identity.describe().as_bytes()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Fills the index from the disk. Only the process that writes cleans up.
    pub(super) fn scan(&self, clean: bool) -> io::Result<()> {
        let mut index = Index::after(&self.index());
        self.scan_others(&mut index)?;
        let mut scanned = Vec::new();
        for facts in self.disk.files(&self.folder)? {
            match FileKind::of(&facts.name) {
                FileKind::Stored(name) => match self.scan_file(name, &facts) {
                    Ok(Some(file)) => scanned.push(file),
                    Ok(None) => index.unread.push(stray(&self.folder, facts)),
                    Err(fault) if fault.is_foreign() => debug!(file = facts.name, %fault, "left alone"),
                    Err(fault) => self.found_damaged(&mut index, name, &facts, &fault, clean),
                },
                FileKind::Temporary if clean => self.remove_file(&facts.name),
                FileKind::Bad => index.bad.push(stray(&self.folder, facts)),
                FileKind::Temporary | FileKind::Other => {}
            }
        }
        let scanned = self.scan_remembered(&mut index, scanned, clean);
        index.bad.sort_unstable();
        // A file continues a shorter one.
        let mut scanned = scanned;
        scanned.sort_unstable_by_key(|file| (file.front.tokens, file.name));
        // What an orphan continues may be among those that could not be read.
        let all_were_read = index.unread.is_empty();
        for file in scanned {
            if enter(&mut index, &file, self.geometry.block_tokens) {
                continue;
            }
            if !all_were_read {
                index.unread.push(stray(&self.folder, file.facts));
            } else if clean {
                debug!(file = %file.name, "what it continues is gone: removed");
                self.remove_file(&file.name.file());
            }
        }
        *self.index() = index;
        Ok(())
    }

    fn found_damaged(&self, index: &mut Index, name: Name, facts: &FileFacts, fault: &FileFault, clean: bool) {
        warn!(file = facts.name, %fault, "a stored conversation is damaged and set aside");
        self.counters.quarantined(Quarantine::Index);
        if clean {
            self.rename_to_bad(index, name.file(), name.bad_file(), Bytes(facts.len));
        }
    }

    /// Reads what the files remember of their answers, the last used ones first, as far as memory for it goes. Damaged
    /// files are left out.
    fn scan_remembered(&self, index: &mut Index, mut scanned: Vec<Scanned>, clean: bool) -> Vec<Scanned> {
        scanned.sort_unstable_by_key(|file| (std::cmp::Reverse(file.facts.used), file.name));
        let (mut all, mut bytes) = (Vec::new(), 0);
        scanned.retain_mut(|file| {
            let wanted = file.front.tools_bytes;
            if wanted == 0 || bytes + wanted > REMEMBERED_BYTES_MAX.0 {
                return true;
            }
            let read = self.disk.open(&self.folder, &file.facts.name);
            match read.and_then(|open| read_remembered(&*open, &file.header, &file.front, file.facts.len)) {
                Ok(Ok(remembered)) => {
                    bytes += wanted;
                    file.remembered = remembered.iter().map(Remembered::digest).collect();
                    all.extend(remembered.into_iter().rev());
                    true
                }
                Ok(Err(fault)) => {
                    self.found_damaged(index, file.name, &file.facts, &fault, clean);
                    false
                }
                Err(error) => {
                    warn!(file = file.facts.name, %error, "cannot read a stored conversation");
                    true
                }
            }
        });
        all.reverse();
        *self.remembered.lock().unwrap_or_else(PoisonError::into_inner) = all;
        scanned
    }

    /// Files of other identities count towards the budget.
    fn scan_others(&self, index: &mut Index) -> io::Result<()> {
        let folders = self.disk.folders()?;
        for folder in folders.into_iter().filter(|folder| is_identity_folder(folder) && *folder != self.folder) {
            for facts in self.disk.files(&folder)? {
                if FileKind::of(&facts.name) != FileKind::Other {
                    index.others.push(stray(&folder, facts));
                }
            }
        }
        Ok(())
    }

    /// Reads a file's beginning; `None` when it cannot be read now.
    fn scan_file(&self, name: Name, facts: &FileFacts) -> Result<Option<Scanned>, FileFault> {
        let read = self.disk.open(&self.folder, &facts.name).and_then(|file| read_front(&*file));
        match read {
            Ok(read) => {
                let (header, front) = read?;
                front.check(self.identity, &self.geometry)?;
                let least = HEAD_LEN as u64 + u64::from(header.text_bytes) + header.payload_bytes;
                let wanted = least.saturating_add(front.tools_bytes);
                expect("length of the file", facts.len, wanted)?;
                Ok(Some(Scanned { name, facts: facts.clone(), header, front, remembered: Vec::new() }))
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(FileFault::Cut { what: "file" }),
            Err(error) => {
                warn!(file = facts.name, %error, "cannot read a stored conversation");
                Ok(None)
            }
        }
    }
}

fn stray(folder: &str, facts: FileFacts) -> Stray {
    Stray { used: facts.used, folder: folder.to_owned(), file: facts.name, size: Bytes(facts.len) }
}

/// Enters a file; `false` when the one it continues is not there.
fn enter(index: &mut Index, file: &Scanned, block_tokens: u32) -> bool {
    let parent = match &file.front.parent {
        None => None,
        Some(_) => match parent_of(index, &file.front, block_tokens) {
            None => return false,
            found => found,
        },
    };
    index.insert(NewEntry {
        name: file.name,
        size: Bytes(file.facts.len),
        front: &file.front,
        parent,
        used: file.facts.used,
        remembered: file.remembered.clone(),
    });
    true
}

/// The entry that a file continues, if it is the very one: same tokens, one place earlier in the chain, and with all
/// blocks that the file lacks.
pub(super) fn parent_of(index: &Index, front: &Front, block_tokens: u32) -> Option<EntryId> {
    let stated = front.parent?;
    let id = index.named(stated.name)?;
    let parent = index.get(id)?;
    let fits = parent.keys.all_tokens == stated.tokens
        && parent.tokens < front.tokens
        && Some(front.chain) == parent.chain.checked_add(1)
        && front.first_block <= parent.tokens / block_tokens;
    fits.then_some(id)
}

/// Header and front of a file. The outer error is the disk's, the inner one the file's.
pub(crate) fn read_front(file: &dyn ReadFile) -> io::Result<Result<(Header, Front), FileFault>> {
    let mut head = [0; HEAD_LEN];
    file.read_exact_at(&mut head, 0)?;
    let header = match Header::decode(&head) {
        Ok(header) => header,
        Err(fault) => return Ok(Err(fault)),
    };
    let mut front = [0; FRONT_LEN];
    file.read_exact_at(&mut front, HEAD_LEN as u64 + u64::from(header.text_bytes))?;
    Ok(Front::decode(&front).and_then(|front| {
        check_crc("header", &head, front.head_crc)?;
        let same = header.tokens == front.tokens && header.has_tools == (front.tools_bytes > 0);
        if same { Ok((header, front)) } else { Err(FileFault::Keys) }
    }))
}
