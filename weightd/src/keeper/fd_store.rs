//! The service manager's store of descriptors, where a keeper's own end is outlived.
//!
//! Every descriptor of a set goes there under a name of its own, `ID.NUMBER`; last comes `ID.set`, sealed memory that says
//! what the set is. A set without it, or without all its descriptors, is not believed: the keeper was killed while it
//! stored the set. Without a service manager nothing is stored.

use ds4_gpu::{HostRange, SealedRange};
use ds4_host::service;
use ds4_units::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;
use tracing::{info, warn};

/// How the name of a description ends.
const DESCRIPTION: &str = "set";
/// The longest description; names of sets are short.
const DESCRIPTION_MAX: u64 = 4096;

/// The store of this process's service manager, or none.
#[derive(Debug)]
pub(super) struct FdStore {
    has_manager: bool,
}

/// A set as it is stored.
#[derive(Debug)]
pub(super) struct StoredSet {
    pub(super) id: String,
    pub(super) what: Description,
    pub(super) fds: Vec<OwnedFd>,
}

/// What a set is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Description {
    pub(super) set: String,
    pub(super) generation: u64,
    pub(super) fingerprint: [u8; 32],
    pub(super) orphaned_ms: Option<u64>,
    pub(super) fds: usize,
}

impl Description {
    pub(super) fn orphaned(&self) -> Option<Duration> {
        self.orphaned_ms.map(Duration::from_millis)
    }
}

impl FdStore {
    pub(super) fn new(has_manager: bool) -> FdStore {
        FdStore { has_manager }
    }

    /// Stores a set under an id that no other has. False when it is not stored, or not whole: then a new start of the
    /// keeper begins without it.
    pub(super) fn store(&self, id: &str, what: &Description, fds: &[OwnedFd]) -> bool {
        if !self.has_manager {
            return false;
        }
        let stored = || -> io::Result<()> {
            for (number, fd) in fds.iter().enumerate() {
                service::store_fd(&format!("{id}.{number}"), fd.as_fd())?;
            }
            let text = serde_json::to_vec(what)?;
            let note = HostRange::create("ds4-kept-set", Bytes(text.len() as u64)).map_err(io::Error::other)?;
            note.write_at(0, &text).map_err(io::Error::other)?;
            let note = note.seal().map_err(io::Error::other)?;
            service::store_fd(&format!("{id}.{DESCRIPTION}"), note.fd())
        };
        stored()
            .inspect_err(|error| {
                warn!(set = what.set, %error, "the service manager does not store it");
                self.remove(id, fds.len());
            })
            .is_ok()
    }

    /// Removes a set, its description first.
    pub(super) fn remove(&self, id: &str, fds: usize) {
        let numbers = (0..fds).map(|number| number.to_string());
        self.remove_parts(id, std::iter::once(DESCRIPTION.to_owned()).chain(numbers));
    }

    fn remove_parts(&self, id: &str, parts: impl IntoIterator<Item = String>) {
        if !self.has_manager {
            return;
        }
        for part in parts {
            if let Err(error) = service::remove_fd(&format!("{id}.{part}")) {
                warn!(id, %error, "the service manager does not let go of it");
                return;
            }
        }
    }

    /// The whole sets among descriptors that the manager has given back, and removes the rest from its store.
    pub(super) fn take_back(&self, fds: Vec<OwnedFd>, names: &[String]) -> Vec<StoredSet> {
        let mut parts: BTreeMap<String, BTreeMap<String, OwnedFd>> = BTreeMap::new();
        for (fd, name) in fds.into_iter().zip(names) {
            match name.rsplit_once('.') {
                Some((id, part)) => drop(parts.entry(id.to_owned()).or_default().insert(part.to_owned(), fd)),
                None => warn!(name, "a descriptor of the service manager's store is none of ours"),
            }
        }
        parts.into_iter().filter_map(|(id, parts)| self.whole(id, parts)).collect()
    }

    fn whole(&self, id: String, mut parts: BTreeMap<String, OwnedFd>) -> Option<StoredSet> {
        let names: Vec<String> = parts.keys().cloned().collect();
        let what = parts.remove(DESCRIPTION).and_then(read);
        let fds: Vec<OwnedFd> = (0..).map_while(|number: usize| parts.remove(&number.to_string())).collect();
        match what {
            Some(what) if what.fds == fds.len() && parts.is_empty() => {
                info!(set = what.set, generation = what.generation, fds = fds.len(), "back from the service manager");
                Some(StoredSet { id, what, fds })
            }
            _ => {
                warn!(id, fds = names.len(), "a set of the service manager's store is not whole, and is not kept");
                // Its numbers may have gaps.
                self.remove_parts(&id, names);
                None
            }
        }
    }
}

fn read(fd: OwnedFd) -> Option<Description> {
    let file = File::from(fd);
    let len = file.metadata().ok()?.len();
    let note = SealedRange::import(file.into(), Bytes(len)).ok().filter(|_| len <= DESCRIPTION_MAX)?;
    let mut text = vec![0; len as usize];
    note.read_at(0, &mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(text: &[u8]) -> OwnedFd {
        let range = HostRange::create("m", Bytes(text.len() as u64)).unwrap();
        range.write_at(0, text).unwrap();
        range.seal().unwrap().export().unwrap()
    }

    fn description(fds: usize) -> Description {
        Description { set: "s".into(), generation: 7, fingerprint: [9; 32], orphaned_ms: Some(5), fds }
    }

    #[test]
    fn only_whole_sets_are_believed_in_whatever_order_they_come() {
        let store = FdStore::new(false);
        let said = serde_json::to_vec(&description(2)).unwrap();
        let fds = |texts: &[&[u8]]| texts.iter().map(|text| memory(text)).collect::<Vec<_>>();
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let whole = store.take_back(fds(&[b"b", &said, b"x", b"a"]), &names(&["1.1", "1.set", "2.0", "1.0"]));
        assert_eq!(whole.len(), 1, "the second has no description");
        assert_eq!((whole[0].id.as_str(), &whole[0].what, whole[0].fds.len()), ("1", &description(2), 2));
        let mut first = [0];
        SealedRange::import(whole[0].fds[0].try_clone().unwrap(), Bytes(1)).unwrap().read_at(0, &mut first).unwrap();
        assert_eq!(&first, b"a");
        for broken in [
            store.take_back(fds(&[b"a", &said]), &names(&["1.0", "1.set"])),
            store.take_back(fds(&[b"a", b"b", b"c", &said]), &names(&["1.0", "1.1", "1.2", "1.set"])),
            store.take_back(fds(&[b"a", b"b", b"nonsense"]), &names(&["1.0", "1.1", "1.set"])),
            store.take_back(fds(&[b"a"]), &names(&["odd"])),
        ] {
            assert!(broken.is_empty());
        }
    }
}
