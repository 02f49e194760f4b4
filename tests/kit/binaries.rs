//! Where the binaries under test are, built if need be.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};

use anyhow::{Context, Result, ensure};

/// Binaries that this process found to be up to date, or built. Held while building, so that parallel tests build once.
static FRESH: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Where programs are taken from instead of being built.
static PROGRAMS: OnceLock<PathBuf> = OnceLock::new();

/// Takes programs from this folder, as they are: for a machine that cannot build.
pub fn take_programs_from(folder: PathBuf) {
    // The first folder counts: a process tests one build.
    let _ = PROGRAMS.set(folder);
}

/// The folder of the workspace: where this was built or, carried elsewhere, the working directory.
pub fn repository() -> &'static Path {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests crate lies in the workspace");
    if built.exists() { built } else { Path::new(".") }
}

/// A command for one of our binaries, without any setting of ours inherited from the environment.
pub fn command(name: &str) -> Result<Command> {
    let mut command = Command::new(binary(name)?);
    let ours = env::vars_os().map(|(key, _)| key).filter(|key| key.to_string_lossy().starts_with("DS4_"));
    ours.for_each(|key| {
        command.env_remove(key);
    });
    command.env_remove("RUST_LOG");
    Ok(command)
}

/// The path of one of our binaries: it lies beside this executable, of the same profile. One that is missing or older
/// than a source it was built from is built first. Blocks while building.
pub fn binary(name: &str) -> Result<PathBuf> {
    if let Some(programs) = PROGRAMS.get() {
        return Ok(programs.join(name));
    }
    let mut fresh = FRESH.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let folder = output_folder()?;
    let path = folder.join(name);
    if !fresh.contains(name) {
        if !is_up_to_date(&path) {
            build(&folder)?;
        }
        ensure!(path.is_file(), "cargo built {name}, but not at {}", path.display());
        fresh.insert(name.to_owned());
    }
    Ok(path)
}

/// The folder that cargo writes executables of this build to.
fn output_folder() -> Result<PathBuf> {
    let executable = env::current_exe().context("the path of this executable")?;
    let folder = executable.parent().context("an executable lies in a folder")?;
    let folder = if folder.ends_with("deps") { folder.parent().context("deps lies in a folder")? } else { folder };
    Ok(folder.to_path_buf())
}

/// Whether every source named in cargo's dependency list beside the binary is older than it.
fn is_up_to_date(binary: &Path) -> bool {
    let modified = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified());
    let (Ok(built), Ok(list)) = (modified(binary), fs::read_to_string(binary.with_extension("d"))) else {
        return false;
    };
    let Some((_, sources)) = list.split_once(": ") else { return false };
    // A space inside a path is written as `\ `.
    let sources = sources.trim_end().replace("\\ ", "\0");
    sources
        .split(' ')
        .all(|source| modified(Path::new(&source.replace('\0', " "))).is_ok_and(|changed| changed <= built))
}

/// Builds all binaries of the workspace, in one go: built one by one, what they share would be compiled anew for each.
fn build(folder: &Path) -> Result<()> {
    let profile = match folder.file_name().and_then(|name| name.to_str()).context("the profile's folder")? {
        "debug" => "dev",
        other => other,
    };
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--locked", "--workspace", "--bins", "--profile", profile]);
    let status = cargo.current_dir(repository()).status().context("cargo cannot be started")?;
    ensure!(status.success(), "cargo could not build the workspace");
    Ok(())
}
