//! What the owner holds and how far it is, shared between the main thread and the connections.

use crate::bell::Bell;
use ds4_gpu::SharedRange;
use ds4_manifest::{InstanceId, WeightsManifest};
use ds4_units::Bytes;
use ds4_wire::{Hello, MemoryTerm, OwnerStatus, PROTO_MAX, PROTO_MIN, Peer, Phase, Refusal, Welcome, WorkerStatus};
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tracing::info;

/// The longest id of a worker: every status repeats those of all workers, and has to fit a message.
const WORKER_ID_MAX: usize = 128;

/// What a client may be given: the manifest, and one range for each that it lists.
#[derive(Debug)]
pub(crate) struct Holdings {
    pub(crate) manifest: WeightsManifest,
    pub(crate) ranges: Vec<SharedRange>,
}

/// How far the owner is, with what it has by then.
#[derive(Debug)]
pub(crate) enum Stage {
    Starting,
    Planning,
    Preflight,
    Loading { total: Bytes, since: Instant },
    Verifying,
    Exporting(Arc<Holdings>),
    Ready(Arc<Holdings>),
    Draining(Arc<Holdings>),
}

/// What does not change while an owner lives.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) instance: InstanceId,
    pub(crate) generation: u64,
    pub(crate) started: Instant,
    pub(crate) manifest: String,
    /// Id and path of each model.
    pub(crate) models: Vec<(String, String)>,
}

/// Shared state, and the bells that tell of its changes.
#[derive(Debug)]
pub(crate) struct Store {
    facts: Facts,
    inner: Mutex<Inner>,
    loaded: AtomicU64,
    /// Stops loading; also set by signals.
    stop: Arc<AtomicBool>,
    /// Rung when the owner begins to drain; connections tell their clients.
    pub(crate) draining: Bell,
    /// Rung when all connections are to end.
    pub(crate) closing: Bell,
    /// Whether a client has asked to free the weights, and not only to end.
    is_release: AtomicBool,
    /// Rung when a client asks for a shutdown.
    pub(crate) release_asked: Bell,
    /// Rung when a lease ends.
    pub(crate) lease_ended: Bell,
}

#[derive(Debug)]
struct Inner {
    stage: Stage,
    memory: Vec<MemoryTerm>,
    leases: BTreeMap<u64, LeaseInfo>,
    next_lease: u64,
}

#[derive(Debug)]
struct LeaseInfo {
    worker_id: String,
    peer: Peer,
    since: Instant,
    imported: Bytes,
}

/// The right of one connection to the weights. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Lease {
    id: u64,
    store: Arc<Store>,
    /// What was lent; the same for the whole lease.
    pub(crate) holdings: Arc<Holdings>,
}

impl Store {
    pub(crate) fn new(facts: Facts, stop: Arc<AtomicBool>) -> io::Result<Store> {
        let inner = Inner { stage: Stage::Starting, memory: Vec::new(), leases: BTreeMap::new(), next_lease: 1 };
        Ok(Store {
            facts,
            inner: Mutex::new(inner),
            loaded: AtomicU64::new(0),
            stop,
            draining: Bell::new()?,
            closing: Bell::new()?,
            is_release: AtomicBool::new(false),
            release_asked: Bell::new()?,
            lease_ended: Bell::new()?,
        })
    }

    pub(crate) fn enter(&self, stage: Stage) {
        self.lock().stage = stage;
    }

    pub(crate) fn set_memory(&self, memory: Vec<MemoryTerm>) {
        self.lock().memory = memory;
    }

    /// Says how much is loaded.
    pub(crate) fn set_loaded(&self, done: Bytes) {
        self.loaded.store(done.0, Ordering::Relaxed);
    }

    /// Asks the main thread to shut down, whatever it is doing.
    pub(crate) fn ask_release(&self) {
        self.is_release.store(true, Ordering::SeqCst);
        self.stop.store(true, Ordering::SeqCst);
        self.release_asked.ring();
    }

    /// Whether the weights are to be freed, also those that are parked.
    pub(crate) fn is_release(&self) -> bool {
        self.is_release.load(Ordering::SeqCst)
    }

    /// Whether a signal or a client has asked for a shutdown.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// The flag itself, for the loader.
    pub(crate) fn stop_flag(&self) -> &AtomicBool {
        &self.stop
    }

    pub(crate) fn lease_count(&self) -> usize {
        self.lock().leases.len()
    }

    /// Answers a client that wants to attach: a lease once the owner is ready, before that only how far it is.
    pub(crate) fn admit(self: &Arc<Self>, hello: &Hello, peer: Peer) -> Result<(Welcome, Option<Lease>), Refusal> {
        let proto = PROTO_MAX.min(hello.proto_max);
        if proto < PROTO_MIN.max(hello.proto_min) {
            return Err(Refusal::Protocol { min: PROTO_MIN, max: PROTO_MAX });
        }
        check_worker_id(&hello.worker_id)?;
        let (instance, generation) = (self.facts.instance.0, self.facts.generation);
        if let Some(want) = hello.want.instance.filter(|want| *want != instance) {
            return Err(Refusal::StaleInstance { have: instance, want });
        }
        if let Some(want) = hello.want.generation.filter(|want| *want != generation) {
            return Err(Refusal::StaleGeneration { have: generation, want });
        }
        let mut inner = self.lock();
        let welcome = |phase| Welcome { proto, instance, generation, phase };
        let holdings = match &inner.stage {
            // Whoever finds the manifest may attach, and it is found a moment before the owner calls itself ready.
            Stage::Exporting(holdings) | Stage::Ready(holdings) => holdings.clone(),
            Stage::Draining(_) => return Err(Refusal::Draining),
            stage => return Ok((welcome(self.phase(stage)), None)),
        };
        check_wants(&holdings.manifest, hello)?;
        let id = inner.next_lease;
        inner.next_lease += 1;
        let lease =
            LeaseInfo { worker_id: hello.worker_id.clone(), peer, since: Instant::now(), imported: Bytes::ZERO };
        info!(lease = id, worker = %lease.worker_id, pid = peer.pid, uid = peer.uid, "worker attached");
        inner.leases.insert(id, lease);
        Ok((welcome(Phase::Ready), Some(Lease { id, store: self.clone(), holdings })))
    }

    /// How the owner is.
    pub(crate) fn status(&self) -> OwnerStatus {
        let inner = self.lock();
        let (ranges, bytes) = match &inner.stage {
            Stage::Exporting(held) | Stage::Ready(held) | Stage::Draining(held) => {
                (held.manifest.totals.ranges, held.manifest.totals.allocated.0)
            }
            _ => (0, 0),
        };
        let workers = inner.leases.values().map(|lease| WorkerStatus {
            worker_id: lease.worker_id.clone(),
            pid: lease.peer.pid,
            uid: lease.peer.uid,
            since_ms: millis(lease.since),
            imported_bytes: lease.imported.0,
        });
        OwnerStatus {
            instance: self.facts.instance.to_string(),
            generation: self.facts.generation,
            phase: self.phase(&inner.stage),
            pid: std::process::id(),
            uptime_ms: millis(self.facts.started),
            manifest: self.facts.manifest.clone(),
            models: self.facts.models.clone(),
            ranges,
            bytes,
            memory: inner.memory.clone(),
            workers: workers.collect(),
        }
    }

    /// How far the owner is.
    pub(crate) fn phase_now(&self) -> Phase {
        self.phase(&self.lock().stage)
    }

    fn phase(&self, stage: &Stage) -> Phase {
        match stage {
            Stage::Starting => Phase::Starting,
            Stage::Planning => Phase::Planning,
            Stage::Preflight => Phase::Preflight,
            Stage::Loading { total, since } => {
                Phase::Loading { done: self.loaded.load(Ordering::Relaxed), total: total.0, elapsed_ms: millis(*since) }
            }
            Stage::Verifying => Phase::Verifying,
            Stage::Exporting(_) => Phase::Exporting,
            Stage::Ready(_) => Phase::Ready,
            Stage::Draining(_) => Phase::Draining,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A thread that panicked with the lock held has changed one field at most, never half of one.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lease {
    /// Notes what the worker says it has mapped.
    pub(crate) fn set_imported(&self, imported: Bytes) {
        if let Some(lease) = self.store.lock().leases.get_mut(&self.id) {
            lease.imported = imported;
            info!(lease = self.id, pid = lease.peer.pid, %imported, "worker ready");
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let ended = self.store.lock().leases.remove(&self.id);
        if let Some(lease) = ended {
            let held_s = lease.since.elapsed().as_secs();
            info!(lease = self.id, worker = %lease.worker_id, pid = lease.peer.pid, held_s, "worker left");
        }
        self.store.lease_ended.ring();
    }
}

fn check_worker_id(id: &str) -> Result<(), Refusal> {
    if id.len() <= WORKER_ID_MAX {
        return Ok(());
    }
    let reason = format!("a worker's id has {WORKER_ID_MAX} bytes at most, this one has {}", id.len());
    Err(Refusal::BadRequest { reason })
}

fn check_wants(manifest: &WeightsManifest, hello: &Hello) -> Result<(), Refusal> {
    if let Some(want) = hello.want.model.as_ref().filter(|id| manifest.model(id).is_none()) {
        let have = manifest.models.iter().map(|model| model.id.clone()).collect();
        return Err(Refusal::UnknownModel { have, want: want.clone() });
    }
    match manifest.needs.iter().find(|need| !hello.capabilities.contains(&need.capability)) {
        Some(need) => {
            Err(Refusal::MissingCapability { capability: need.capability.clone(), avoid_with: need.avoid_with.clone() })
        }
        None => Ok(()),
    }
}

fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}
