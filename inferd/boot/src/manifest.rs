//! What an owner has published, once it has.

use crate::progress::Notes;
use crate::{BootError, ModelArgs};
use ds4_import::{AttachOptions, published};
use ds4_manifest::WeightsManifest;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Reads an owner's manifest; waits for one that is not there as long as the flags say, and says so.
pub(crate) fn published_at(args: &ModelArgs, path: &Path, cancel: &AtomicBool) -> Result<WeightsManifest, BootError> {
    let options = AttachOptions {
        trusted_uids: &args.weights_uid,
        wait: Duration::from_secs(args.wait),
        progress: &Notes,
        ..AttachOptions::new("ds4", cancel)
    };
    Ok(published(path, &options).map_err(Box::new)?)
}

/// The base model's first file, as an owner's manifest names it.
pub(crate) fn model_path(args: &ModelArgs, path: &Path, cancel: &AtomicBool) -> Result<PathBuf, BootError> {
    let held = published_at(args, path, cancel)?;
    let first = held.model("base").and_then(|model| model.files.first());
    let first = first.ok_or_else(|| BootError::NoBaseModel { path: path.to_owned() })?;
    Ok(PathBuf::from(&first.path))
}

/// The draft block's first file, if the owner holds one.
pub(crate) fn draft_path(args: &ModelArgs, path: &Path, cancel: &AtomicBool) -> Result<Option<PathBuf>, BootError> {
    let held = published_at(args, path, cancel)?;
    Ok(held.model("mtp").and_then(|model| model.files.first()).map(|file| PathBuf::from(&file.path)))
}
