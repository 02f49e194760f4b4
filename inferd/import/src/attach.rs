//! Attaching to an owner.

use crate::error::{ImportError, ImportFailure, total};
use crate::identity::{check_own_file, check_sample, stated_identity};
use crate::lease::{Lease, OnChange, OwnerState};
use crate::mapped::{Placed, weights};
use crate::receive::{Ask, Received, confirm, phase_behind, receive};
use crate::{ComputeDevice, Weights};
use ds4_gguf::Model as GgufModel;
use ds4_gpu::Memory;
use ds4_manifest::{Artifact, ManifestError, Model, Tensor, Trust, TrustError, WeightsManifest};
use ds4_resident::{ContentRoot, Progress};
use ds4_units::{Bytes, Layout};
use ds4_wire::WireError;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Between two looks while waiting for an owner.
const PAUSE: Duration = Duration::from_millis(50);
/// Between two notes about waiting.
const NOTE_EVERY: Duration = Duration::from_secs(5);

/// How to attach.
pub struct AttachOptions<'a> {
    /// Id of the model in the owner's manifest: `base` or `mtp`.
    pub model: &'a str,
    /// This worker's name in the owner's log.
    pub worker_id: &'a str,
    /// The worker's own file, whose content the weights must have. Without it the manifest is believed.
    pub own_file: Option<&'a GgufModel>,
    /// Users whose manifests and sockets are believed, beside this process's own and root.
    pub trusted_uids: &'a [u32],
    /// Where the caller computes.
    pub device: ComputeDevice,
    /// How long to wait for an owner that is not there or not ready.
    pub wait: Duration,
    /// Told about waiting, and about reading the own file if its content must be compared.
    pub progress: &'a dyn Progress,
    /// Set to true to stop waiting or comparing.
    pub cancel: &'a AtomicBool,
    /// Called on a thread of the lease when the owner's state changes. Must not block.
    pub on_owner_change: Arc<dyn Fn(OwnerState) + Send + Sync>,
}

impl<'a> AttachOptions<'a> {
    /// The base model, without waiting, without a file to compare with.
    pub fn new(worker_id: &'a str, cancel: &'a AtomicBool) -> AttachOptions<'a> {
        AttachOptions {
            model: "base",
            worker_id,
            own_file: None,
            trusted_uids: &[],
            device: ComputeDevice::Cpu,
            wait: Duration::ZERO,
            progress: &(),
            cancel,
            on_owner_change: Arc::new(|_| {}),
        }
    }
}

/// Weights that an owner holds.
pub struct Attached {
    /// All tensors, mapped read-only.
    pub weights: Weights,
    /// What they are.
    pub identity: ContentRoot,
    /// The lease. Every tensor keeps it alive; this handle is for looking at it.
    pub lease: Arc<Lease>,
    /// How attaching went.
    pub report: ImportReport,
}

/// How attaching went.
#[derive(Clone, Copy, Debug)]
pub struct ImportReport {
    /// Ranges mapped.
    pub ranges: usize,
    /// Bytes mapped.
    pub bytes: Bytes,
    /// Time from reading the manifest, once it was there, to the last mapping.
    pub elapsed: Duration,
}

/// Attaches to the owner whose manifest is at `manifest`. Blocks for up to the options' waiting time, and for the time
/// of reading the own file if its content must be compared; otherwise for milliseconds.
///
/// All or nothing: after an error nothing is mapped and no connection is open.
pub fn attach(manifest: &Path, options: &AttachOptions<'_>) -> Result<Attached, ImportError> {
    patiently(options, || attempt(manifest, options))
}

/// The manifest of the owner at `path`, to choose a device by before attaching. Blocks for up to the options' waiting
/// time, as [`attach`] does.
pub fn published(path: &Path, options: &AttachOptions<'_>) -> Result<WeightsManifest, ImportError> {
    let trust = Trust::own_and(options.trusted_uids.iter().copied());
    patiently(options, || read_manifest(path, &trust))
}

/// Tries again while the owner is not ready, for as long as the options say.
fn patiently<T>(
    options: &AttachOptions<'_>,
    mut attempt: impl FnMut() -> Result<T, ImportError>,
) -> Result<T, ImportError> {
    let began = Instant::now();
    let mut noted: Option<Instant> = None;
    loop {
        let error = match attempt() {
            Err(error) if error.failure() == ImportFailure::NotReady => error,
            other => return other,
        };
        if options.cancel.load(Ordering::SeqCst) {
            return Err(ImportError::Cancelled);
        }
        if began.elapsed() >= options.wait {
            return Err(error);
        }
        if noted.is_none_or(|noted| noted.elapsed() >= NOTE_EVERY) {
            noted = Some(Instant::now());
            options.progress.note(&format!("waiting: {error}"));
        }
        std::thread::sleep(PAUSE.min(options.wait.saturating_sub(began.elapsed())));
    }
}

/// One try, from a clean state to a whole set of weights or back to a clean state.
fn attempt(path: &Path, options: &AttachOptions<'_>) -> Result<Attached, ImportError> {
    let started = Instant::now();
    let trust = Trust::own_and(options.trusted_uids.iter().copied());
    let manifest = read_manifest(path, &trust)?;
    let model = wanted_model(&manifest, options)?;
    let identity = stated_identity(model)?;
    if let Some(own) = options.own_file {
        check_own_file(model, identity, own, options)?;
    }
    let ask = Ask { worker_id: options.worker_id, model: options.model, device: &options.device, trust: &trust };
    let received = receive(path, &manifest, &ask)?;
    finish(&manifest, model, identity, received, options, started)
}

/// From mapped ranges to weights that keep their lease.
fn finish(
    manifest: &WeightsManifest,
    model: &Model,
    identity: ContentRoot,
    received: Received,
    options: &AttachOptions<'_>,
    started: Instant,
) -> Result<Attached, ImportError> {
    let Received { connection, mappings, mut draining } = received;
    let bytes = total(manifest.ranges.iter().map(|range| range.allocated));
    confirm(&connection, bytes.0, &mut draining)?;
    let initial = if draining { OwnerState::Draining } else { OwnerState::Up };
    let on_change: OnChange = options.on_owner_change.clone();
    let instance = manifest.instance.to_string();
    let lease = Lease::watch(connection, instance, manifest.generation, manifest.owner.pid, initial, on_change)
        .map_err(|source| ImportError::Wire(WireError::Io { action: "watch the owner", source }))?;
    let lease = Arc::new(lease);
    let ranges: Vec<Memory> = mappings.into_iter().map(|mapping| mapping.into_memory(Some(lease.clone()))).collect();
    check_sample(model, &ranges)?;
    let weights = weights(&ranges, placed(manifest, model)).map_err(|tensor| ImportError::Unresolved { tensor })?;
    let report = ImportReport { ranges: ranges.len(), bytes, elapsed: started.elapsed() };
    Ok(Attached { weights, identity, lease, report })
}

/// Where the manifest has a model's tensors.
fn placed<'m>(manifest: &'m WeightsManifest, model: &'m Model) -> Vec<Placed<'m>> {
    let artifacts: BTreeMap<&str, &Artifact> = manifest
        .artifacts
        .iter()
        .filter(|artifact| artifact.model == model.id && artifact.replaces_raw)
        .map(|artifact| (artifact.tensor.as_str(), artifact))
        .collect();
    let tensor = |tensor: &'m Tensor| {
        let (layout, place) = match artifacts.get(tensor.name.as_str()) {
            // A layout that is not known here was asked for as a capability, and is none of ours.
            Some(artifact) => (Layout::from_name(&artifact.layout), Some(artifact.place)),
            None => (Some(Layout::Gguf), tensor.place),
        };
        let (place, layout) = (place.filter(|_| layout.is_some()), layout.unwrap_or(Layout::Gguf));
        Placed { name: &tensor.name, kind: tensor.kind, dims: &tensor.dims, layout, place }
    };
    model.tensors.iter().map(tensor).collect()
}

/// The manifest, or how far the owner is that will write it.
fn read_manifest(path: &Path, trust: &Trust) -> Result<WeightsManifest, ImportError> {
    match WeightsManifest::read(path, trust) {
        Ok(manifest) => Ok(manifest),
        Err(ManifestError::Trust(TrustError::Absent { .. })) => Err(match phase_behind(&socket_beside(path)) {
            Some(phase) => ImportError::NotReady { phase },
            None => ImportError::NoOwner { manifest: path.to_owned() },
        }),
        Err(ManifestError::Trust(error)) => Err(error.into()),
        Err(source) => Err(ImportError::Manifest { path: path.to_owned(), source }),
    }
}

/// Where an owner that has not published yet listens, unless it was told another path.
fn socket_beside(manifest: &Path) -> PathBuf {
    let mut socket = manifest.as_os_str().to_owned();
    socket.push(".sock");
    PathBuf::from(socket)
}

/// The model asked for, if this process can read it.
fn wanted_model<'m>(manifest: &'m WeightsManifest, options: &AttachOptions<'_>) -> Result<&'m Model, ImportError> {
    let device = &manifest.device;
    if device.backend != options.device.backend() || device.uuid.as_deref() != options.device.uuid() {
        let name = &device.name;
        let named = device.uuid.as_ref().map_or_else(|| name.clone(), |uuid| format!("{name} ({uuid})"));
        let want = options.device.backend();
        let own =
            options.device.uuid().map_or_else(|| "host memory".to_owned(), |uuid| format!("GPU memory of {uuid}"));
        return Err(ImportError::Device { backend: device.backend.clone(), device: named, own, want });
    }
    let capabilities = options.device.capabilities();
    if let Some(need) = manifest.needs.iter().find(|need| !capabilities.contains(&need.capability)) {
        let (capability, avoid_with) = (need.capability.clone(), need.avoid_with.clone());
        return Err(ImportError::MissingCapability { capability, avoid_with });
    }
    manifest.model(options.model).ok_or_else(|| {
        let have: Vec<&str> = manifest.models.iter().map(|model| model.id.as_str()).collect();
        ImportError::UnknownModel { have: have.join(", "), want: options.model.to_owned() }
    })
}
