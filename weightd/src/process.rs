//! Processes as the kernel knows them: this one, and the one a manifest names.

use ds4_manifest::Owner;
use std::fs;
use std::io;

/// What became of a process id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessState {
    /// No such process.
    Gone,
    /// It has ended and waits to be collected.
    Zombie,
    /// It runs, and started at this time in clock ticks after boot.
    Running {
        /// Field 22 of its stat file.
        start_time_ticks: u64,
    },
}

/// The kernel's boot id.
pub(crate) fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// This process, as a manifest names it.
pub(crate) fn this_process() -> io::Result<Owner> {
    let pid = std::process::id();
    let ProcessState::Running { start_time_ticks } = process_state(pid)? else {
        return Err(io::Error::other("/proc does not show this process"));
    };
    Ok(Owner {
        pid,
        start_time_ticks,
        boot_id: boot_id()?,
        uid: nix::unistd::geteuid().as_raw(),
        exe_version: env!("CARGO_PKG_VERSION").to_owned(),
    })
}

/// What became of `pid`, as far as this process's namespace shows it.
pub(crate) fn process_state(pid: u32) -> io::Result<ProcessState> {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => parse_stat(&stat).ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat cannot be understood"))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(ProcessState::Gone),
        // The process ended between opening and reading.
        Err(error) if error.raw_os_error() == Some(nix::libc::ESRCH) => Ok(ProcessState::Gone),
        Err(error) => Err(error),
    }
}

fn parse_stat(stat: &str) -> Option<ProcessState> {
    // The name may hold anything, parentheses too: what follows its last one is plain.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X" | "x") {
        return Some(ProcessState::Zombie);
    }
    // The state is field 3, the start time field 22.
    fields.nth(22 - 3 - 1)?.parse().ok().map(|start_time_ticks| ProcessState::Running { start_time_ticks })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_runs_and_another_does_not() {
        let owner = this_process().unwrap();
        let state = ProcessState::Running { start_time_ticks: owner.start_time_ticks };
        assert_eq!(process_state(owner.pid).unwrap(), state);
        assert_eq!(process_state(u32::MAX).unwrap(), ProcessState::Gone);
    }

    #[test]
    fn a_name_with_parentheses_does_not_confuse() {
        let stat = "7 (a) Z 1) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 1 1 1";
        assert_eq!(parse_stat(stat), Some(ProcessState::Running { start_time_ticks: 4242 }));
        assert_eq!(parse_stat("7 (x) Z 1 7"), Some(ProcessState::Zombie));
        assert_eq!(parse_stat("7 x"), None);
    }

    #[test]
    fn a_child_that_was_not_collected_is_a_zombie() {
        let mut child = std::process::Command::new("true").stdin(std::process::Stdio::null()).spawn().unwrap();
        while process_state(child.id()).unwrap() != ProcessState::Zombie {
            std::thread::yield_now();
        }
        child.wait().unwrap();
    }
}
