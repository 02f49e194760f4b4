//! What memory the machine has left, and for whom: the observation that preflight and loading decide on.

#[cfg(feature = "cuda")]
mod device;

#[cfg(feature = "cuda")]
pub(crate) use device::DeviceSource;

use crate::cgroup;
use ds4_units::Bytes;
use serde::Serialize;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The budget source that is the whole machine: the entry of `/proc/meminfo`.
pub(crate) const MEM_AVAILABLE: &str = "MemAvailable";

/// Where observations come from. Tests bring their own.
pub trait MemorySource: Sync {
    /// What is available now. Reads a few small files; does not wait.
    fn observe(&self) -> Result<Observation, MemoryError>;

    /// The processes that hold the most memory, largest first, for messages. Empty when that cannot be told.
    fn largest_processes(&self) -> Vec<ProcessMemory>;

    /// The host's memory, where weights go into another: whoever loads needs that as well.
    fn beside(&self) -> Option<&dyn MemorySource> {
        None
    }
}

/// Memory at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// Who says what is available.
    pub source: &'static str,
    /// What can be had. Of host memory, what the kernel says can be had without swapping: free memory, and page cache
    /// that it can drop.
    pub available: Bytes,
    /// All there is of it, free or not; nothing where nobody says.
    pub total: Option<Bytes>,
    /// Swap in use by anyone.
    pub swap_used: Bytes,
    /// Limits of the control groups that this process is in.
    pub groups: Vec<GroupLimit>,
}

/// One limit of a control group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupLimit {
    /// The file that sets it.
    pub file: String,
    /// The limit.
    pub limit: Bytes,
    /// What the group uses and the kernel could not drop.
    pub used: Bytes,
}

/// What may be used, and by whose word.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Budget {
    /// The smallest of all sources.
    pub chosen: BudgetSource,
    /// The others.
    pub rejected: Vec<BudgetSource>,
}

/// One answer to the question how much memory may be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BudgetSource {
    /// Who says so.
    pub source: String,
    /// How much.
    pub bytes: Bytes,
}

/// A process and what it holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProcessMemory {
    /// Its id.
    pub pid: u32,
    /// Its name, without control characters.
    pub name: String,
    /// Its resident memory.
    pub resident: Bytes,
}

impl fmt::Display for ProcessMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pid {} ({}) {}", self.pid, self.name, self.resident)
    }
}

/// Why memory cannot be observed.
#[derive(Debug, Error)]
pub enum MemoryError {
    /// A file of the kernel cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The device does not say.
    #[cfg(feature = "cuda")]
    #[error(transparent)]
    Cuda(#[from] ds4_gpu::cuda::CudaError),
    /// A file of the kernel does not say what it should.
    #[error("{} has no usable {wanted:?}", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// The entry.
        wanted: &'static str,
    },
}

impl Default for Observation {
    /// Host memory without limits, and none left.
    fn default() -> Observation {
        Observation {
            source: MEM_AVAILABLE,
            available: Bytes::ZERO,
            total: None,
            swap_used: Bytes::ZERO,
            groups: Vec::new(),
        }
    }
}

impl Observation {
    /// How much may be used: the smallest of available memory and the room left in every control group.
    pub fn budget(&self) -> Budget {
        let available = BudgetSource { source: self.source.to_owned(), bytes: self.available };
        let groups = self.groups.iter().map(|group| BudgetSource {
            source: group.file.clone(),
            bytes: Bytes(group.limit.0.saturating_sub(group.used.0)),
        });
        let mut sources: Vec<BudgetSource> = std::iter::once(available).chain(groups).collect();
        sources.sort_by_key(|source| source.bytes);
        let chosen = sources.remove(0);
        Budget { chosen, rejected: sources }
    }
}

/// The machine this process runs on.
#[derive(Clone, Debug)]
pub struct SystemMemory {
    proc: PathBuf,
    cgroup: PathBuf,
}

impl SystemMemory {
    /// Observes through `/proc` and `/sys/fs/cgroup`.
    pub fn new() -> SystemMemory {
        SystemMemory::at(Path::new("/proc"), Path::new("/sys/fs/cgroup"))
    }

    /// Observes through recorded copies of these folders.
    pub fn at(proc: &Path, cgroup: &Path) -> SystemMemory {
        SystemMemory { proc: proc.to_owned(), cgroup: cgroup.to_owned() }
    }
}

impl Default for SystemMemory {
    fn default() -> SystemMemory {
        SystemMemory::new()
    }
}

impl MemorySource for SystemMemory {
    fn observe(&self) -> Result<Observation, MemoryError> {
        let path = self.proc.join("meminfo");
        let text = std::fs::read_to_string(&path).map_err(|source| MemoryError::Read { path: path.clone(), source })?;
        let entry = |wanted| kib(&text, wanted).ok_or(MemoryError::Missing { path: path.clone(), wanted });
        let swap_total = entry("SwapTotal:")?;
        let swap_free = entry("SwapFree:")?;
        Ok(Observation {
            source: MEM_AVAILABLE,
            available: entry("MemAvailable:")?,
            total: entry("MemTotal:").ok(),
            swap_used: Bytes(swap_total.0.saturating_sub(swap_free.0)),
            groups: cgroup::limits(&self.proc, &self.cgroup),
        })
    }

    fn largest_processes(&self) -> Vec<ProcessMemory> {
        let Ok(entries) = std::fs::read_dir(&self.proc) else { return Vec::new() };
        let mut processes: Vec<ProcessMemory> =
            entries.filter_map(|entry| process(&entry.ok()?.path())).filter(|p| p.resident > Bytes::ZERO).collect();
        processes.sort_by_key(|process| (std::cmp::Reverse(process.resident), process.pid));
        processes.truncate(3);
        processes
    }
}

/// The process with this folder in `/proc`; `None` for other folders and for a process that has just gone.
fn process(folder: &Path) -> Option<ProcessMemory> {
    let pid = folder.file_name()?.to_str()?.parse().ok()?;
    let status = std::fs::read_to_string(folder.join("status")).ok()?;
    let name = status.lines().find_map(|line| line.strip_prefix("Name:"))?.trim();
    let name = name.replace(char::is_control, "\u{fffd}");
    Some(ProcessMemory { pid, name, resident: kib(&status, "VmRSS:")? })
}

/// The value of a line like `MemFree:  1234 kB`.
fn kib(text: &str, key: &str) -> Option<Bytes> {
    let value = text.lines().find_map(|line| line.strip_prefix(key))?;
    let number: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    number.checked_mul(1024).map(Bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(file: &str, limit: u64, used: u64) -> GroupLimit {
        GroupLimit { file: file.to_owned(), limit: Bytes(limit), used: Bytes(used) }
    }

    #[test]
    fn the_budget_is_the_smallest_source_and_the_others_are_named() {
        let groups = vec![group("a/memory.max", 100, 30), group("memory.high", 90, 95)];
        let budget = Observation { available: Bytes(80), groups, ..Observation::default() }.budget();
        assert_eq!(budget.chosen, BudgetSource { source: "memory.high".into(), bytes: Bytes(0) });
        let rejected: Vec<_> = budget.rejected.iter().map(|source| (source.source.as_str(), source.bytes.0)).collect();
        assert_eq!(rejected, [("a/memory.max", 70), ("MemAvailable", 80)]);
    }

    #[test]
    fn this_machine_can_be_observed() {
        let observation = SystemMemory::new().observe().unwrap();
        assert!(observation.available > Bytes::ZERO);
        assert!(!SystemMemory::new().largest_processes().is_empty());
    }

    #[test]
    fn available_memory_is_not_free_memory() {
        let folder = tempfile::tempdir().unwrap();
        // Page cache fills this machine: little is free, much is available.
        let meminfo =
            "MemTotal: 1000 kB\nMemFree: 10 kB\nMemAvailable:     700 kB\nSwapTotal: 50 kB\nSwapFree: 20 kB\n";
        std::fs::write(folder.path().join("meminfo"), meminfo).unwrap();
        let observation = SystemMemory::at(folder.path(), folder.path()).observe().unwrap();
        assert_eq!(observation.available, Bytes::kib(700));
        assert_eq!(observation.swap_used, Bytes::kib(30));
    }

    #[test]
    fn a_kernel_without_the_entry_is_an_error_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("meminfo"), "MemAvailable: lots\nSwapTotal: 0 kB\nSwapFree: 0 kB\n").unwrap();
        let error = SystemMemory::at(folder.path(), folder.path()).observe().unwrap_err();
        assert!(error.to_string().ends_with("meminfo has no usable \"MemAvailable:\""), "{error}");
    }
}
