//! Parking weights with a keeper, and taking them back without reading a file.
//!
//! A set's first descriptor is sealed memory with the manifest's text, the others are the ranges in order. The set's
//! fingerprint covers the plan, the device and the files as they are on the disk: whoever would lay out the same files
//! in the same way may have the set, anybody else loads.

use crate::backend::described;
use crate::command::KeeperConfig;
use crate::error::OwnerError;
use crate::loading::Prepared;
use ds4_gpu::{HostRange, RangeError, SealedRange, SharedRange};
use ds4_manifest::{Digest, ManifestError, WeightsManifest};
use ds4_resident::{Destination, LoadError, Verify, check_kept};
use ds4_units::Bytes;
use ds4_wire::{BANK_SETS, Keeper, KeeperError, KeptSet};
use serde_json::json;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use thiserror::Error;
use tracing::{debug, info, warn};

/// How long the lease of an owner that has just died may still be open.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a keeper that was started has until it listens.
const STARTING: Duration = Duration::from_secs(5);
/// Between two looks whether there is a keeper again.
const LOOK: Duration = Duration::from_secs(1);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(10);

/// The place of one owner with its keeper, if there is one.
pub(crate) struct Parking {
    config: Option<KeeperConfig>,
    keeper: Option<Keeper>,
    set: String,
    /// What was parked, to park it again with another keeper.
    deposit: Option<Deposit>,
}

/// A set as it is parked, but for its ranges.
struct Deposit {
    generation: u64,
    fingerprint: Digest,
    /// The manifest's text.
    note: SealedRange,
}

/// What was taken back.
pub(crate) struct TakenBack {
    /// As its last owner published it.
    pub(crate) manifest: WeightsManifest,
    pub(crate) ranges: Vec<SharedRange>,
}

/// Why kept weights are not taken back.
#[derive(Debug, Error)]
enum NotTaken {
    #[error(transparent)]
    Keeper(#[from] KeeperError),
    #[error("the manifest that was kept with them cannot be read: {0}")]
    Manifest(#[from] ManifestError),
    #[error(transparent)]
    Range(#[from] RangeError),
    #[error("{found} ranges were kept and their manifest names {named}")]
    Count { found: usize, named: usize },
    #[error(transparent)]
    Damaged(#[from] LoadError),
    #[error("they are of other files, another layout or another device")]
    Other,
    #[error("pid {0} holds them")]
    Leased(u32),
    #[error("cannot look at the kept manifest: {0}")]
    Io(#[from] std::io::Error),
}

impl Parking {
    /// Finds the keeper, or starts one if that was asked for. An owner without one serves all the same.
    pub(crate) fn find(config: Option<&KeeperConfig>, name: &str) -> Parking {
        let keeper = config.and_then(|config| match connect(config) {
            Ok(keeper) => keeper,
            Err(error) => {
                warn!(%error, socket = %config.socket.display(), "no keeper: an owner's crash will free the weights");
                None
            }
        });
        if let Some(keeper) = &keeper {
            info!(pid = keeper.pid(), "keeper found");
        }
        Parking { config: config.cloned(), keeper, set: name.to_owned(), deposit: None }
    }

    /// Readable when the keeper is gone; `None` without one.
    pub(crate) fn keeper_fd(&self) -> Option<BorrowedFd<'_>> {
        self.keeper.as_ref().map(Keeper::as_fd)
    }

    /// When to look for a keeper again; `None` if there is to be none.
    pub(crate) fn look_again(&self) -> Option<Duration> {
        self.config.as_ref().map(|_| LOOK)
    }

    /// The keeper is gone, and with it what it held.
    pub(crate) fn lose_keeper(&mut self) {
        if let Some(keeper) = self.keeper.take() {
            warn!(
                pid = keeper.pid(),
                "the keeper is gone: until there is another, this owner's crash frees the weights"
            );
        }
    }

    /// Parks with the keeper that is there now, if one is.
    pub(crate) fn park_again(&mut self, ranges: &[SharedRange]) {
        let Some(config) = &self.config else { return };
        match connect(config) {
            Ok(None) => {}
            Ok(keeper) => {
                self.keeper = keeper;
                self.hand_over(ranges);
            }
            Err(error) => debug!(%error, "no keeper yet"),
        }
    }

    /// What is kept under this owner's name. Waits a moment for a dead owner's lease to close.
    pub(crate) fn kept(&self) -> Option<KeptSet> {
        let keeper = self.keeper.as_ref()?;
        keeper.find(&self.set, PATIENCE).unwrap_or_else(|error| {
            warn!(%error, "cannot ask the keeper");
            None
        })
    }

    /// Takes kept weights back, if they are what `prepared` would load. What cannot be used is forgotten, because the
    /// memory is needed to load anew.
    pub(crate) fn take_back(&self, kept: &KeptSet, prepared: &Prepared, how: Verify) -> Option<TakenBack> {
        let keeper = self.keeper.as_ref()?;
        let started = Instant::now();
        match take_back(keeper, &self.set, kept, prepared, how) {
            Ok(taken) => {
                let (ranges, bytes) = (taken.ranges.len(), taken.manifest.totals.allocated.0);
                let ms = started.elapsed().as_millis() as u64;
                info!(ranges, bytes, ms, generation = kept.generation, keeper = keeper.pid(), "weights taken back");
                Some(taken)
            }
            Err(why @ NotTaken::Leased(_)) => {
                warn!(%why, "kept weights are not taken back");
                None
            }
            Err(why) => {
                warn!(%why, "kept weights are not taken back, but freed");
                if let Err(error) = keeper.forget(&self.set) {
                    warn!(%error, "the keeper did not let go");
                }
                None
            }
        }
    }

    /// Parks what this owner holds. Without a keeper, or if it refuses, an owner's crash frees the weights.
    pub(crate) fn park(&mut self, manifest: &WeightsManifest, ranges: &[SharedRange], prepared: &Prepared) {
        if self.config.is_none() {
            return;
        }
        let noted = || -> Result<SealedRange, NotTaken> {
            let text = manifest.to_text()?;
            let note = HostRange::create("ds4-parked-manifest", Bytes(text.len() as u64))?;
            note.write_at(0, text.as_bytes())?;
            Ok(note.seal()?)
        };
        match noted() {
            Ok(note) => {
                let (generation, fingerprint) = (manifest.generation, fingerprint(prepared));
                self.deposit = Some(Deposit { generation, fingerprint, note });
                self.hand_over(ranges);
            }
            Err(error) => warn!(%error, "not parked: an owner's crash will free the weights"),
        }
    }

    fn hand_over(&self, ranges: &[SharedRange]) {
        let (Some(keeper), Some(deposit)) = (&self.keeper, &self.deposit) else { return };
        let fds = std::iter::once(deposit.note.fd()).chain(ranges.iter().map(SharedRange::fd));
        let fds: Vec<BorrowedFd<'_>> = fds.collect();
        match keeper.park(&self.set, (deposit.generation, deposit.fingerprint.0), None, &fds) {
            Ok(()) => info!(keeper = keeper.pid(), ranges = ranges.len(), "weights parked with the keeper"),
            Err(error) => warn!(%error, "not parked: an owner's crash will free the weights"),
        }
    }

    /// The keeper that holds what was parked, for the last line of an owner.
    pub(crate) fn keeper_pid(&self) -> Option<u32> {
        let keeper = self.keeper.as_ref()?;
        let kept = keeper.find(&self.set, Duration::ZERO).ok()??;
        (kept.leased_by == Some(std::process::id())).then(|| keeper.pid())
    }

    /// Lets the keeper free what it has of this owner, and conversations that no worker has come back for.
    pub(crate) fn forget(&self) {
        if let Some(keeper) = &self.keeper
            && let Err(error) = keeper.forget(&self.set).and_then(|_| keeper.forget_orphans(BANK_SETS))
        {
            warn!(%error, "the keeper did not let go");
        }
    }
}

fn connect(config: &KeeperConfig) -> Result<Option<Keeper>, OwnerError> {
    let found = Keeper::connect(&config.socket)?;
    if found.is_some() || !config.start {
        return Ok(found);
    }
    let failed = |source| OwnerError::System { action: "start a keeper", source };
    let program = std::env::current_exe().map_err(failed)?;
    let log = File::create(config.socket.with_extension("log")).map_err(failed)?;
    let mut command = Command::new(program);
    // A process group of its own: Ctrl-C at the owner's terminal is not meant for it.
    command.arg("keep").arg("--keeper-socket").arg(&config.socket).process_group(0);
    // The service manager, if there is one, hears from the owner alone.
    command.env_remove("NOTIFY_SOCKET");
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().map_err(failed)?;
    let began = Instant::now();
    loop {
        if let Some(keeper) = Keeper::connect(&config.socket)? {
            return Ok(Some(keeper));
        }
        let ended = child.try_wait().map_err(failed)?.is_some();
        if ended || began.elapsed() >= STARTING {
            return Err(failed(std::io::Error::other("it does not listen; see its log beside the socket")));
        }
        std::thread::sleep(PAUSE);
    }
}

fn take_back(
    keeper: &Keeper,
    set: &str,
    kept: &KeptSet,
    prepared: &Prepared,
    how: Verify,
) -> Result<TakenBack, NotTaken> {
    if let Some(pid) = kept.leased_by {
        return Err(NotTaken::Leased(pid));
    }
    if kept.fingerprint != fingerprint(prepared).0 {
        return Err(NotTaken::Other);
    }
    let mut fds = keeper.adopt(set, kept)?.into_iter();
    let note = fds.next().ok_or(NotTaken::Count { found: 0, named: 1 })?;
    let manifest = WeightsManifest::parse(&read_note(note)?)?;
    if fds.len() != manifest.ranges.len() {
        return Err(NotTaken::Count { found: fds.len(), named: manifest.ranges.len() });
    }
    let range = |(fd, range): (OwnedFd, &ds4_manifest::Range)| match &prepared.destination {
        Destination::Host => SharedRange::adopt_host(fd, range.allocated),
        #[cfg(feature = "cuda")]
        Destination::Device(_) => Ok(SharedRange::Device { fd, len: range.allocated }),
    };
    let ranges = fds.zip(&manifest.ranges).map(range).collect::<Result<Vec<_>, RangeError>>()?;
    check_kept(&manifest, &ranges, &prepared.destination, how)?;
    Ok(TakenBack { manifest, ranges })
}

fn read_note(fd: OwnedFd) -> Result<Vec<u8>, NotTaken> {
    let file = File::from(fd);
    let len = file.metadata()?.len();
    let note = SealedRange::import(file.into(), Bytes(len))?;
    let mut text = vec![0; len as usize];
    note.read_at(0, &mut text)?;
    Ok(text)
}

/// What a set is of: the files as they are on the disk, the plan for them, and the device.
fn fingerprint(prepared: &Prepared) -> Digest {
    let files: Vec<_> = prepared
        .models
        .iter()
        .flat_map(|(role, model)| model.shards().iter().map(move |shard| (role, shard.stamp())))
        .map(|(role, stamp)| {
            json!([role.name(), stamp.device, stamp.inode, stamp.size, stamp.mtime_ns, stamp.ctime_ns])
        })
        .collect();
    let whole = json!({ "files": files, "plan": prepared.plan, "device": described(&prepared.destination) });
    Digest::of(whole.to_string().as_bytes())
}
