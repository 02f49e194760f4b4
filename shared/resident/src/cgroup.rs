//! Memory limits of the control groups a process is in, of version 2 and of the older version 1.

use crate::memory::GroupLimit;
use ds4_units::Bytes;
use std::path::{Path, PathBuf};

/// Version 1 writes "no limit" as the largest multiple of the page size; anything near it is no limit.
const UNLIMITED: u64 = 1 << 62;

/// The names of the files of one version.
struct Version {
    limits: &'static [&'static str],
    used: &'static str,
    /// Entries of `memory.stat`: page cache of files, which the kernel drops before it refuses memory.
    droppable: [&'static str; 2],
}

const V1: Version = Version {
    limits: &["memory.limit_in_bytes"],
    used: "memory.usage_in_bytes",
    droppable: ["total_inactive_file ", "total_active_file "],
};
const V2: Version = Version {
    limits: &["memory.max", "memory.high"],
    used: "memory.current",
    droppable: ["inactive_file ", "active_file "],
};

/// Every limit that this process is under: of its group and of all groups above. A limit that cannot be read is left
/// out: without a mounted control-group file system there is none to find.
pub(crate) fn limits(proc: &Path, root: &Path) -> Vec<GroupLimit> {
    let Ok(text) = std::fs::read_to_string(proc.join("self/cgroup")) else { return Vec::new() };
    text.lines().flat_map(|line| limits_of_line(line, root)).collect()
}

/// The limits for one line `ID:CONTROLLERS:PATH`.
fn limits_of_line(line: &str, root: &Path) -> Vec<GroupLimit> {
    let mut fields = line.splitn(3, ':');
    let (Some(id), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else {
        return Vec::new();
    };
    let (version, mount) = match (id, controllers) {
        ("0", "") => (&V2, root.to_owned()),
        (_, list) if list.split(',').any(|controller| controller == "memory") => (&V1, root.join("memory")),
        _ => return Vec::new(),
    };
    folders(&mount, path).iter().flat_map(|folder| limits_of_folder(folder, version)).collect()
}

/// The group's folder and those above it, down to the mount. A container sees its own group as the mount itself,
/// whatever path the kernel prints.
fn folders(mount: &Path, path: &str) -> Vec<PathBuf> {
    let mut folders = vec![mount.to_owned()];
    for name in path.split('/').filter(|name| !matches!(*name, "" | "." | "..")) {
        let next = folders[folders.len() - 1].join(name);
        folders.push(next);
    }
    folders
}

fn limits_of_folder(folder: &Path, version: &Version) -> Vec<GroupLimit> {
    let Some(used) = number(&folder.join(version.used)) else { return Vec::new() };
    let stat = std::fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
    let entry = |key: &str| stat.lines().find_map(|line| line.strip_prefix(key)?.trim().parse::<u64>().ok());
    let droppable = version.droppable.iter().filter_map(|key| entry(key)).fold(0, u64::saturating_add);
    let limit = |name: &&str| {
        let file = folder.join(name);
        let limit = number(&file).filter(|&limit| limit < UNLIMITED)?;
        let file = file.display().to_string();
        Some(GroupLimit { file, limit: Bytes(limit), used: Bytes(used.saturating_sub(droppable)) })
    };
    version.limits.iter().filter_map(limit).collect()
}

/// The number in a file; `None` when there is no file or it says `max`.
fn number(path: &Path) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{create_dir_all, write};

    fn found(folder: &Path) -> Vec<(String, u64, u64)> {
        let limits = limits(&folder.join("proc"), &folder.join("cgroup"));
        let name = |limit: &GroupLimit| {
            Path::new(&limit.file).strip_prefix(folder.join("cgroup")).unwrap().display().to_string()
        };
        limits.iter().map(|limit| (name(limit), limit.limit.0, limit.used.0)).collect()
    }

    fn folder(cgroup_line: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        create_dir_all(folder.path().join("proc/self")).unwrap();
        write(folder.path().join("proc/self/cgroup"), cgroup_line).unwrap();
        folder
    }

    #[test]
    fn limits_of_all_levels_count_and_page_cache_does_not() {
        let folder = folder("0::/ds4.slice/owner\n");
        let group = folder.path().join("cgroup/ds4.slice/owner");
        create_dir_all(&group).unwrap();
        write(group.join("memory.max"), "max\n").unwrap();
        write(group.join("memory.high"), "5000\n").unwrap();
        write(group.join("memory.current"), "3000\n").unwrap();
        write(group.join("memory.stat"), "anon 400\nfile 2600\ninactive_file 2000\nactive_file 500\n").unwrap();
        let parent = folder.path().join("cgroup/ds4.slice");
        write(parent.join("memory.max"), "9000\n").unwrap();
        write(parent.join("memory.current"), "3500\n").unwrap();
        let expected =
            [("ds4.slice/memory.max".to_owned(), 9000, 3500), ("ds4.slice/owner/memory.high".to_owned(), 5000, 500)];
        assert_eq!(found(folder.path()), expected);
    }

    #[test]
    fn the_older_version_is_read_too() {
        let folder = folder("4:memory:/box\n0::/\n");
        let memory = folder.path().join("cgroup/memory");
        create_dir_all(memory.join("box")).unwrap();
        write(memory.join("memory.limit_in_bytes"), "9223372036854771712\n").unwrap();
        write(memory.join("memory.usage_in_bytes"), "100\n").unwrap();
        write(memory.join("box/memory.limit_in_bytes"), "800\n").unwrap();
        write(memory.join("box/memory.usage_in_bytes"), "100\n").unwrap();
        write(memory.join("box/memory.stat"), "inactive_file 1\ntotal_inactive_file 30\ntotal_active_file 20\n")
            .unwrap();
        assert_eq!(found(folder.path()), [("memory/box/memory.limit_in_bytes".to_owned(), 800, 50)]);
    }

    #[test]
    fn a_container_whose_path_is_outside_its_view_has_the_limit_of_the_mount() {
        let folder = folder("0::/../../elsewhere\n");
        create_dir_all(folder.path().join("cgroup")).unwrap();
        write(folder.path().join("cgroup/memory.max"), "700\n").unwrap();
        write(folder.path().join("cgroup/memory.current"), "20\n").unwrap();
        assert_eq!(found(folder.path()), [("memory.max".to_owned(), 700, 20)]);
    }
}
