//! What a process or a run leaves on the host.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::unistd::Pid;

/// What each open descriptor of a process points to, sorted, as `/proc` names it.
pub fn open_files(pid: Pid) -> Result<Vec<String>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).with_context(|| format!("descriptors of {pid}"))? {
        // A descriptor may close between being listed and being read.
        if let Ok(target) = fs::read_link(entry?.path()) {
            files.push(target.to_string_lossy().into_owned());
        }
    }
    files.sort();
    Ok(files)
}

/// Every path below `folder`, sorted.
pub fn paths_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            paths.extend(paths_below(&entry.path())?);
        }
        paths.push(entry.path());
    }
    paths.sort();
    Ok(paths)
}

/// The most memory a process has held so far, in bytes.
pub fn peak_memory(pid: Pid) -> Result<usize> {
    memory(pid, "VmHWM:")
}

/// The memory that a process holds now, in bytes.
pub fn memory_now(pid: Pid) -> Result<usize> {
    memory(pid, "VmRSS:")
}

fn memory(pid: Pid, field: &str) -> Result<usize> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).with_context(|| format!("status of {pid}"))?;
    let line =
        status.lines().find_map(|line| line.strip_prefix(field)).with_context(|| format!("{field} is missing"))?;
    let kib: usize = line.trim().trim_end_matches(" kB").parse().with_context(|| format!("a number: {line}"))?;
    Ok(kib << 10)
}
