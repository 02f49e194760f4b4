//! Where the weights come from: an owner, or this process.

use crate::progress::{Notes, Shown};
use crate::{BootError, Fallback, ModelArgs, device};
use ds4_gguf::Model as GgufModel;
use ds4_governor::{Census, Charge, Class, Domain};
use ds4_import::{
    AttachOptions, ComputeDevice, ContentRoot, ImportFailure, Lease, OwnerState, SelfLoadOptions, Weights, attach,
    published, self_load,
};
use ds4_units::{Bytes, Layout};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// What owners call the models they hold.
const BASE: &str = "base";
const DRAFT: &str = "mtp";

/// Weights that are in memory in another form than the file's, because what computes with them reads them so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Derived {
    /// Tensors that an owner lent in this form.
    pub imported: u64,
    /// Tensors that this process has brought into it.
    pub built: u64,
    /// Bytes of both; of tensors that share theirs, each counts.
    pub bytes: Bytes,
}

impl Derived {
    /// Counts those of `source` as well.
    pub(crate) fn count(&mut self, source: &Source) {
        let derived = source.weights.tensors().filter(|tensor| tensor.layout() != Layout::Gguf);
        let count = if source.lease.is_some() { &mut self.imported } else { &mut self.built };
        for tensor in derived {
            *count += 1;
            self.bytes.0 += tensor.memory().1.len() as u64;
        }
    }
}

/// The account of the weights' memory: an entry for all that was lent or loaded, to be held as long as they are.
#[derive(Debug, Default)]
pub struct WeightMemory {
    /// The ledger that has them.
    pub census: Census,
    /// The entries.
    pub charges: Vec<Charge>,
}

impl WeightMemory {
    /// Enters the weights of `file`, which are in memory, and those of its draft block.
    pub(crate) fn enter(&mut self, file: &GgufModel, source: &Source, draft: Option<(&GgufModel, &Source)>) {
        let draft_size = draft.map_or(Bytes::ZERO, |(file, _)| size(file));
        if source.lease.is_some() {
            // An owner lends all its ranges, whichever of its models is asked for: they are the memory of both.
            return self.charge(Class::WeightImport, Bytes(size(file).0 + draft_size.0), source.memory);
        }
        self.charge(Class::WeightArena, size(file), source.memory);
        if let Some((_, draft)) = draft {
            self.charge(Class::WeightArena, draft_size, draft.memory);
        }
    }

    fn charge(&mut self, class: Class, tensors: Bytes, memory: Bytes) {
        // A tensor may be there in another form than in the file, which takes less.
        self.charges.push(self.census.charge(class, Domain::Device, tensors.min(memory), memory));
    }
}

fn size(file: &GgufModel) -> Bytes {
    Bytes(file.tensors().iter().map(|tensor| tensor.len.0).sum())
}

/// Weights, and the lease when an owner lent them.
pub(crate) struct Source {
    pub(crate) weights: Weights,
    pub(crate) lease: Option<Arc<Lease>>,
    /// What they are.
    pub(crate) identity: ContentRoot,
    /// Where they are.
    pub(crate) device: ComputeDevice,
    /// Memory behind them.
    pub(crate) memory: Bytes,
}

/// Attaches or loads, as the flags say. Blocks for as long as that takes, and until `cancel` is set.
pub(crate) fn obtain(
    args: &ModelArgs,
    file: &GgufModel,
    worker: &str,
    cancel: &AtomicBool,
) -> Result<Source, BootError> {
    let Some(manifest) = args.manifest() else { return load(args, file, cancel) };
    match from_owner(args, manifest, file, BASE, worker, cancel) {
        Err(error) if args.weights_fallback == Some(Fallback::SelfLoad) && may_load_instead(&error) => {
            warn!("{error}; loading the file instead, as --weights-fallback says");
            load(args, file, cancel)
        }
        attached => attached,
    }
}

/// The same for a model's draft block, which is where the model is: with its owner, or in this process.
pub(crate) fn obtain_draft(
    args: &ModelArgs,
    file: &GgufModel,
    has_owner: bool,
    worker: &str,
    cancel: &AtomicBool,
) -> Result<Source, BootError> {
    match args.manifest().filter(|_| has_owner) {
        Some(manifest) => from_owner(args, manifest, file, DRAFT, worker, cancel),
        None => load(args, file, cancel),
    }
}

/// An owner that is absent can be done without; one that holds something else is a mistake to be told.
fn may_load_instead(error: &BootError) -> bool {
    match error {
        BootError::Import(error) => matches!(error.failure(), ImportFailure::NotReady | ImportFailure::OwnerLost),
        _ => false,
    }
}

fn from_owner(
    args: &ModelArgs,
    manifest: &Path,
    file: &GgufModel,
    model: &str,
    worker: &str,
    cancel: &AtomicBool,
) -> Result<Source, BootError> {
    let options = AttachOptions {
        model,
        own_file: Some(file),
        trusted_uids: &args.weights_uid,
        wait: Duration::from_secs(args.wait),
        progress: &Notes,
        on_owner_change: Arc::new(owner_changed),
        ..AttachOptions::new(worker, cancel)
    };
    let held = published(manifest, &options).map_err(Box::new)?;
    let device = device::choose(args, Some(&held))?;
    let options = AttachOptions { device: device.clone(), ..options };
    let attached = attach(manifest, &options).map_err(Box::new)?;
    let report = attached.report;
    info!(
        manifest = %manifest.display(),
        model,
        ranges = report.ranges,
        bytes = %report.bytes,
        import_ms = report.elapsed.as_millis() as u64,
        identity = %attached.identity,
        "weights from the owner"
    );
    let (lease, memory) = (Some(attached.lease), report.bytes);
    Ok(Source { weights: attached.weights, lease, identity: attached.identity, device, memory })
}

fn owner_changed(state: OwnerState) {
    match state {
        OwnerState::Up => info!("the owner is back"),
        OwnerState::Draining => warn!("the owner is shutting down; this process keeps its weights"),
        OwnerState::Lost => warn!("the owner is gone; this process keeps its weights"),
    }
}

fn load(args: &ModelArgs, file: &GgufModel, cancel: &AtomicBool) -> Result<Source, BootError> {
    let device = device::choose(args, None)?;
    let began = Instant::now();
    let total = size(file);
    let progress = Shown::new("load", total);
    let loaded =
        self_load(file, &SelfLoadOptions { device: device.clone(), reserve: None, progress: &progress, cancel })?;
    info!(
        bytes = %total,
        load_s = format!("{:.2}", began.elapsed().as_secs_f64()),
        identity = %loaded.identity,
        "weights loaded by this process: a restart loads them again (with ds4-weightd it would not)"
    );
    let memory = loaded.memory;
    Ok(Source { weights: loaded.weights, lease: None, identity: loaded.identity, device, memory })
}
