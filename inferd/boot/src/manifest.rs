//! What an owner has published, once it has.

use crate::{BootError, ModelArgs};
use ds4_manifest::{ManifestError, Trust, TrustError, WeightsManifest};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Between two looks for a manifest that is not there yet.
const PAUSE: Duration = Duration::from_millis(50);

/// Reads an owner's manifest; waits for one that is not there as long as the flags say.
pub(crate) fn wait_for(args: &ModelArgs, path: &Path, cancel: &AtomicBool) -> Result<WeightsManifest, BootError> {
    let trust = Trust::own_and(args.weights_uid.iter().copied());
    let deadline = Instant::now() + Duration::from_secs(args.wait);
    loop {
        match WeightsManifest::read(path, &trust) {
            Ok(held) => return Ok(held),
            Err(ManifestError::Trust(TrustError::Absent { .. }))
                if Instant::now() < deadline && !cancel.load(Ordering::SeqCst) =>
            {
                std::thread::sleep(PAUSE);
            }
            Err(source) => return Err(BootError::Manifest { path: path.to_owned(), source: Box::new(source) }),
        }
    }
}

/// The base model's first file, as an owner's manifest names it.
pub(crate) fn model_path(args: &ModelArgs, path: &Path, cancel: &AtomicBool) -> Result<PathBuf, BootError> {
    let held = wait_for(args, path, cancel)?;
    let first = held.model("base").and_then(|model| model.files.first());
    let first = first.ok_or_else(|| BootError::NoBaseModel { path: path.to_owned() })?;
    Ok(PathBuf::from(&first.path))
}
