//! A disk in memory that can stop at any call, and what could be left of it after a power loss.

use ds4_banks::{Disk, FileFacts, ReadFile, SyncMode, WriteFile};
use ds4_units::Bytes;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

#[derive(Clone, Default)]
struct Inode {
    data: Vec<u8>,
    /// What survives a power loss for certain; `None`: never synced.
    synced: Option<Vec<u8>>,
    used: u64,
}

/// A change of names that was not synced.
#[derive(Clone)]
enum Change {
    Link { folder: String, file: String, inode: usize },
    Rename { folder: String, from: String, to: String, inode: usize },
    Unlink { folder: String, file: String },
}

const UNLIMITED: u64 = 1 << 40;

type Names = BTreeMap<(String, String), usize>;

#[derive(Clone, Default)]
struct State {
    inodes: Vec<Inode>,
    names: Names,
    durable: Names,
    pending: Vec<Change>,
    folders: Vec<String>,
    calls: usize,
    /// Calls from this one on fail.
    stops_at: Option<usize>,
    /// This call fails, once.
    fails_at: Option<(usize, io::ErrorKind)>,
    now: u64,
    capacity: u64,
}

/// The disk; clones are the same disk.
#[derive(Clone)]
pub struct MemDisk(Arc<Mutex<State>>);

impl MemDisk {
    pub fn new() -> MemDisk {
        MemDisk::from(State { now: 1_000_000, capacity: UNLIMITED, ..State::default() })
    }

    fn from(state: State) -> MemDisk {
        MemDisk(Arc::new(Mutex::new(state)))
    }

    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.0.lock().unwrap())
    }

    /// A disk of its own with the same contents.
    pub fn copy(&self) -> MemDisk {
        MemDisk::from(self.with(|state| state.clone()))
    }

    /// The process dies at call `call` from now, counted from 0.
    pub fn stop_at(&self, call: usize) {
        self.with(|state| state.stops_at = Some(state.calls + call));
    }

    /// Call `call` from now fails with `kind`.
    pub fn fail_at(&self, call: usize, kind: io::ErrorKind) {
        self.with(|state| state.fails_at = Some((state.calls + call, kind)));
    }

    pub fn calls(&self) -> usize {
        self.with(|state| state.calls)
    }

    pub fn later(&self, seconds: u64) {
        self.with(|state| state.now += seconds);
    }

    pub fn set_capacity(&self, bytes: u64) {
        self.with(|state| state.capacity = bytes);
    }

    /// Every file's name and bytes.
    pub fn contents(&self) -> Vec<(String, Vec<u8>)> {
        self.with(|state| {
            let inodes = &state.inodes;
            state.names.iter().map(|((_, file), &inode)| (file.clone(), inodes[inode].data.clone())).collect()
        })
    }

    /// Changes a file's bytes in place.
    pub fn edit(&self, file: &str, change: impl FnOnce(&mut Vec<u8>)) {
        self.with(|state| {
            let (_, &inode) = state.names.iter().find(|((_, name), _)| name == file).expect("the file is there");
            change(&mut state.inodes[inode].data);
        });
    }

    /// What could be on the disk after a power loss: any part of the names' changes that were not synced, and for files
    /// that were not, nothing, all, half, or zeros.
    pub fn after_power_loss(&self) -> Vec<MemDisk> {
        let state = self.with(|state| state.clone());
        assert!(state.pending.len() < 8, "too many unsynced changes to try all");
        let mut disks = Vec::new();
        for kept in 0..1_u32 << state.pending.len() {
            for torn in [Torn::Lost, Torn::Whole, Torn::Half, Torn::Zeros] {
                disks.push(MemDisk::from(state.rebooted(kept, torn)));
            }
        }
        disks
    }
}

#[derive(Clone, Copy)]
enum Torn {
    Lost,
    Whole,
    Half,
    Zeros,
}

impl State {
    fn rebooted(&self, kept: u32, torn: Torn) -> State {
        let mut names = self.durable.clone();
        for (index, change) in self.pending.iter().enumerate() {
            if kept & (1 << index) != 0 {
                apply(&mut names, change);
            }
        }
        let inodes = self.inodes.iter().map(|inode| {
            let data = match (&inode.synced, torn) {
                (Some(synced), _) => synced.clone(),
                (None, Torn::Lost) => Vec::new(),
                (None, Torn::Whole) => inode.data.clone(),
                (None, Torn::Half) => inode.data[..inode.data.len() / 2].to_vec(),
                (None, Torn::Zeros) => vec![0; inode.data.len()],
            };
            Inode { synced: Some(data.clone()), data, used: inode.used }
        });
        State {
            inodes: inodes.collect(),
            names: names.clone(),
            durable: names,
            pending: Vec::new(),
            stops_at: None,
            fails_at: None,
            ..self.clone()
        }
    }

    /// Counts a call; an error when it is not to happen.
    fn call(&mut self) -> io::Result<()> {
        let call = self.calls;
        self.calls += 1;
        if self.stops_at.is_some_and(|stop| call >= stop) {
            return Err(io::Error::other("the process is dead"));
        }
        match self.fails_at {
            Some((at, kind)) if at == call => Err(kind.into()),
            _ => Ok(()),
        }
    }

    fn change(&mut self, change: Change) {
        apply(&mut self.names, &change);
        self.pending.push(change);
    }

    fn inode(&self, folder: &str, file: &str) -> io::Result<usize> {
        self.names.get(&(folder.into(), file.into())).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

fn apply(names: &mut Names, change: &Change) {
    let key = |folder: &String, file: &String| (folder.clone(), file.clone());
    match change {
        Change::Link { folder, file, inode } => {
            names.insert(key(folder, file), *inode);
        }
        Change::Rename { folder, from, to, inode } => {
            names.remove(&key(folder, from));
            names.insert(key(folder, to), *inode);
        }
        Change::Unlink { folder, file } => {
            names.remove(&key(folder, file));
        }
    }
}

impl Disk for MemDisk {
    fn claim(&self) -> io::Result<bool> {
        Ok(true)
    }

    fn folders(&self) -> io::Result<Vec<String>> {
        self.with(|state| state.call().map(|()| state.folders.clone()))
    }

    fn make_folder(&self, folder: &str) -> io::Result<()> {
        self.with(|state| {
            state.call()?;
            if !state.folders.iter().any(|held| held == folder) {
                state.folders.push(folder.into());
            }
            Ok(())
        })
    }

    fn files(&self, folder: &str) -> io::Result<Vec<FileFacts>> {
        self.with(|state| {
            state.call()?;
            let files = state.names.iter().filter(|((held, _), _)| held == folder);
            let facts = files.map(|((_, name), &inode)| {
                let Inode { data, used, .. } = &state.inodes[inode];
                FileFacts { name: name.clone(), len: data.len() as u64, used: *used }
            });
            Ok(facts.collect())
        })
    }

    fn create(&self, folder: &str, file: &str) -> io::Result<Box<dyn WriteFile>> {
        self.with(|state| {
            state.call()?;
            if state.inode(folder, file).is_ok() {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            let inode = state.inodes.len();
            state.inodes.push(Inode { used: state.now, ..Inode::default() });
            state.change(Change::Link { folder: folder.into(), file: file.into(), inode });
            Ok(Box::new(Open { disk: self.clone(), inode }) as Box<dyn WriteFile>)
        })
    }

    fn open(&self, folder: &str, file: &str) -> io::Result<Box<dyn ReadFile>> {
        self.with(|state| {
            state.call()?;
            let inode = state.inode(folder, file)?;
            Ok(Box::new(Open { disk: self.clone(), inode }) as Box<dyn ReadFile>)
        })
    }

    fn rename(&self, folder: &str, from: &str, to: &str) -> io::Result<()> {
        self.with(|state| {
            state.call()?;
            let inode = state.inode(folder, from)?;
            state.change(Change::Rename { folder: folder.into(), from: from.into(), to: to.into(), inode });
            Ok(())
        })
    }

    fn remove(&self, folder: &str, file: &str) -> io::Result<()> {
        self.with(|state| {
            state.call()?;
            state.inode(folder, file)?;
            state.change(Change::Unlink { folder: folder.into(), file: file.into() });
            Ok(())
        })
    }

    fn sync(&self, _: &str) -> io::Result<()> {
        self.with(|state| {
            state.call()?;
            for change in std::mem::take(&mut state.pending) {
                apply(&mut state.durable, &change);
            }
            Ok(())
        })
    }

    fn sync_everything(&self) -> io::Result<()> {
        self.sync("")?;
        self.with(|state| {
            for inode in &mut state.inodes {
                inode.synced = Some(inode.data.clone());
            }
            Ok(())
        })
    }

    fn touch(&self, folder: &str, file: &str) -> io::Result<()> {
        self.with(|state| {
            state.call()?;
            let inode = state.inode(folder, file)?;
            state.inodes[inode].used = state.now;
            Ok(())
        })
    }

    fn free(&self) -> io::Result<(Bytes, Bytes)> {
        self.with(|state| {
            state.call()?;
            // Not full unless a test says so: counting ten thousand files at every save takes its time.
            let counted = if state.capacity < UNLIMITED { &state.names } else { &Names::new() };
            let used: u64 = counted.values().map(|&inode| state.inodes[inode].data.len() as u64).sum();
            Ok((Bytes(state.capacity.saturating_sub(used)), Bytes(state.capacity)))
        })
    }

    fn now(&self) -> u64 {
        self.with(|state| state.now)
    }
}

struct Open {
    disk: MemDisk,
    inode: usize,
}

impl WriteFile for Open {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.disk.with(|state| {
            let result = state.call();
            // A write that fails may have written a part.
            let written = if result.is_ok() { bytes } else { &bytes[..bytes.len() / 2] };
            state.inodes[self.inode].data.extend_from_slice(written);
            result
        })
    }

    fn sync(&mut self, mode: SyncMode) -> io::Result<()> {
        assert_ne!(mode, SyncMode::None, "a call that does nothing");
        self.disk.with(|state| {
            state.call()?;
            let inode = &mut state.inodes[self.inode];
            inode.synced = Some(inode.data.clone());
            Ok(())
        })
    }
}

impl ReadFile for Open {
    fn len(&self) -> io::Result<u64> {
        self.disk.with(|state| state.call().map(|()| state.inodes[self.inode].data.len() as u64))
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.disk.with(|state| {
            state.call()?;
            let data = &state.inodes[self.inode].data;
            let end = (offset as usize).saturating_add(buffer.len());
            let held = data.get(offset as usize..end).ok_or(io::ErrorKind::UnexpectedEof)?;
            buffer.copy_from_slice(held);
            Ok(())
        })
    }
}
