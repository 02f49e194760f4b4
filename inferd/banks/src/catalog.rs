//! A folder as people look at it: every file of ours, without a model and without changing anything.

use crate::disk::{Disk, FileFacts};
use crate::format::FileFault;
use crate::identity::{Identity, is_identity_folder};
use crate::inspect::{Summary, summarize};
use crate::name::{FileKind, Name};
use crate::store::DESCRIPTION;
use ds4_units::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// Longest description of an identity that is read.
const DESCRIPTION_MAX: u64 = 64 << 10;

/// What a file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listed {
    /// A conversation, or why its beginning cannot be read.
    Conversation(Name, Result<Summary, FileFault>),
    /// A save that did not end.
    Unfinished,
    /// A file that was set aside as damaged.
    SetAside,
}

/// A file of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The identity's subfolder.
    pub folder: String,
    /// Its name, length and last use.
    pub facts: FileFacts,
    /// What it is.
    pub listed: Listed,
}

/// What a subfolder says it is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Described {
    /// Content root of the weights, in hexadecimal.
    pub weights: String,
    /// Version of the prompt's rendering.
    pub renderer: String,
    /// How banks are laid out.
    pub layout: String,
}

/// All files of ours in a folder, in order of subfolder and name.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// Identities and what they say they are for.
    pub identities: BTreeMap<String, Described>,
    /// The files.
    pub entries: Vec<Entry>,
}

impl Catalog {
    /// Reads the beginnings of all files. Blocks.
    pub fn read(disk: &dyn Disk) -> io::Result<Catalog> {
        let mut catalog = Catalog::default();
        for folder in disk.folders()?.into_iter().filter(|folder| is_identity_folder(folder)) {
            for facts in disk.files(&folder)? {
                let listed = match FileKind::of(&facts.name) {
                    FileKind::Stored(name) => {
                        let read = disk.open(&folder, &facts.name).and_then(|file| summarize(&*file));
                        match read {
                            Ok(summary) => Listed::Conversation(name, summary),
                            // Gone since it was listed.
                            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                            Err(error) => return Err(error),
                        }
                    }
                    FileKind::Temporary => Listed::Unfinished,
                    FileKind::Bad => Listed::SetAside,
                    FileKind::Other => continue,
                };
                catalog.entries.push(Entry { folder: folder.clone(), facts, listed });
            }
            let described = describe(disk, &folder)?;
            catalog.identities.insert(folder, described);
        }
        Ok(catalog)
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> Bytes {
        Bytes(self.entries.iter().map(|entry| entry.facts.len).sum())
    }

    /// The files to remove so that what is left matches: those that `unwanted` names, with everything that continues
    /// them, and then the longest unused that nothing continues until at most `most` bytes are left. What continues a
    /// file comes before it. `unwanted` is told when a file, or one that continues it, was used last.
    pub fn to_prune(&self, unwanted: impl Fn(&Entry, u64) -> bool, most: Option<Bytes>) -> Vec<&Entry> {
        let mut pruning = Pruning::new(&self.entries);
        for (index, used) in pruning.last_uses().into_iter().enumerate() {
            if unwanted(&self.entries[index], used) {
                pruning.remove_with_descendants(index);
            }
        }
        if let Some(most) = most {
            pruning.remove_oldest_until(most);
        }
        pruning.order.into_iter().map(|index| &self.entries[index]).collect()
    }
}

impl Described {
    /// The identity that it describes; `None` when it describes none.
    pub fn identity(&self) -> Option<Identity> {
        let mut weights = [0; 32];
        hex::decode_to_slice(&self.weights, &mut weights).ok()?;
        Some(Identity { weights, renderer: self.renderer.clone(), layout: self.layout.clone() })
    }
}

impl Entry {
    /// The file that it continues.
    pub fn continues(&self) -> Option<Name> {
        match &self.listed {
            Listed::Conversation(_, Ok(summary)) => summary.continues,
            _ => None,
        }
    }

    /// Whether nothing can be restored from it, whoever asks.
    pub fn is_useless(&self) -> bool {
        match &self.listed {
            Listed::Conversation(_, Err(fault)) => !fault.is_foreign(),
            Listed::Conversation(_, Ok(_)) => false,
            Listed::Unfinished | Listed::SetAside => true,
        }
    }
}

/// What a subfolder says it is for; empty where it says nothing readable.
fn describe(disk: &dyn Disk, folder: &str) -> io::Result<Described> {
    let file = match disk.open(folder, DESCRIPTION) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Described::default()),
        opened => opened?,
    };
    let mut bytes = vec![0; file.len()?.min(DESCRIPTION_MAX) as usize];
    file.read_exact_at(&mut bytes, 0)?;
    let text = String::from_utf8_lossy(&bytes);
    let line = |name: &str| {
        let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        found.unwrap_or_default().to_owned()
    };
    Ok(Described { weights: line("weights"), renderer: line("renderer"), layout: line("layout") })
}

/// Which files go, by index.
struct Pruning<'a> {
    entries: &'a [Entry],
    parents: Vec<Option<usize>>,
    children: Vec<Vec<usize>>,
    gone: BTreeSet<usize>,
    order: Vec<usize>,
    left: u64,
}

impl Pruning<'_> {
    fn new(entries: &[Entry]) -> Pruning<'_> {
        let named = entries.iter().enumerate().filter_map(|(index, entry)| match &entry.listed {
            Listed::Conversation(name, _) => Some(((entry.folder.as_str(), *name), index)),
            _ => None,
        });
        let named: BTreeMap<(&str, Name), usize> = named.collect();
        let parent = |entry: &Entry| named.get(&(entry.folder.as_str(), entry.continues()?)).copied();
        let parents: Vec<Option<usize>> = entries.iter().map(parent).collect();
        let mut children = vec![Vec::new(); entries.len()];
        for (index, parent) in parents.iter().enumerate() {
            parent.iter().for_each(|&parent| children[parent].push(index));
        }
        let left = entries.iter().map(|entry| entry.facts.len).sum();
        Pruning { entries, parents, children, gone: BTreeSet::new(), order: Vec::new(), left }
    }

    /// When each file, or one that continues it, was used last: a save does not touch the files that it continues.
    fn last_uses(&self) -> Vec<u64> {
        let mut uses: Vec<u64> = self.entries.iter().map(|entry| entry.facts.used).collect();
        for (index, entry) in self.entries.iter().enumerate() {
            let mut next = self.parents[index];
            while let Some(parent) = next.filter(|&parent| uses[parent] < entry.facts.used) {
                uses[parent] = entry.facts.used;
                next = self.parents[parent];
            }
        }
        uses
    }

    fn remove(&mut self, index: usize) {
        if self.gone.insert(index) {
            self.order.push(index);
            self.left -= self.entries[index].facts.len;
        }
    }

    fn remove_with_descendants(&mut self, index: usize) {
        let mut found = vec![index];
        let mut next = 0;
        // A damaged file may name itself.
        while let Some(&parent) = found.get(next) {
            let more: Vec<usize> =
                self.children[parent].iter().copied().filter(|child| !found.contains(child)).collect();
            found.extend(more);
            next += 1;
        }
        found.into_iter().rev().for_each(|index| self.remove(index));
    }

    fn remove_oldest_until(&mut self, most: Bytes) {
        let is_end = |pruning: &Self, index: usize| {
            !pruning.gone.contains(&index) && pruning.children[index].iter().all(|child| pruning.gone.contains(child))
        };
        let key = |index: usize| (self.entries[index].facts.used, index);
        let mut ends: BTreeSet<(u64, usize)> =
            (0..self.entries.len()).filter(|&index| is_end(self, index)).map(key).collect();
        while self.left > most.0 {
            let Some((_, index)) = ends.pop_first() else { return };
            self.remove(index);
            if let Some(parent) = self.parents[index].filter(|&parent| is_end(self, parent)) {
                ends.insert((self.entries[parent].facts.used, parent));
            }
        }
    }
}
