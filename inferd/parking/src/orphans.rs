//! Taking over what dead workers have left.

use ds4_wire::{Keeper, KeeperError, KeeperRefusal, KeptSet};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;
use tracing::{info, warn};

/// How long the lease of a worker that has just died may still be open.
const PATIENCE: Duration = Duration::from_secs(2);

/// A set that a dead worker has left. Its lease is this process's now.
#[derive(Debug)]
pub struct Orphan {
    /// Its name with the keeper.
    pub set: String,
    /// What was parked last: the number that came with it.
    pub generation: u64,
    /// Its descriptors.
    pub fds: Vec<OwnedFd>,
}

/// Takes over every set of this content whose worker is gone. Blocks.
pub(crate) fn take_over(keeper: &Keeper, prefix: &str, fingerprint: [u8; 32]) -> Result<Vec<Orphan>, KeeperError> {
    let mut orphans = Vec::new();
    for (set, listed) in keeper.list(prefix)? {
        if listed.fingerprint != fingerprint || listed.leased_by.is_some_and(is_alive) {
            continue;
        }
        let Some(kept) = keeper.find(&set, PATIENCE)? else { continue };
        match keeper.adopt(&set, &kept) {
            Ok(fds) => orphans.push(Orphan { set, generation: kept.generation, fds }),
            // Another worker was quicker, or what is kept has changed under our eyes.
            Err(KeeperError::Refused(refusal)) => log_refused(&set, &kept, &refusal),
            Err(error) => return Err(error),
        }
    }
    Ok(orphans)
}

fn log_refused(set: &str, kept: &KeptSet, refusal: &KeeperRefusal) {
    match refusal {
        KeeperRefusal::Leased { pid } => info!(set, pid, "another worker has taken it over"),
        refusal => warn!(set, fds = kept.fds, %refusal, "not taken over"),
    }
}

/// Whether the holder of a lease still runs, as far as this process can see. One that does not has a lease that is about
/// to close.
fn is_alive(pid: u32) -> bool {
    let stat = match std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")) {
        Ok(stat) => stat,
        Err(_) => return false,
    };
    // The name may hold anything; the state follows its closing parenthesis. A zombie is dead.
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_alive_and_one_that_ended_is_not() {
        assert!(is_alive(std::process::id()));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        // Until it is waited for it is a zombie, afterwards nothing.
        while is_alive(pid) {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(!is_alive(pid));
    }
}
