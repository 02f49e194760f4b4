//! A weight owner with a run directory of its own.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::binaries::{command, repository};
use crate::process::{Finished, Process};

/// The model in the repository.
pub fn demo_model() -> PathBuf {
    repository().join("scripts/demo-model/ds4-demo-16m.gguf")
}

/// A `ds4-weightd` that holds a model. Dropping it kills the owner and removes its run directory.
pub struct Owner {
    process: Process,
    run_dir: TempDir,
}

impl Owner {
    /// Starts an owner for `model` and returns at once, while it loads.
    pub fn start(model: &Path, arguments: &[&OsStr]) -> Result<Owner> {
        let run_dir = TempDir::new().context("a run directory")?;
        let process = Process::start(Owner::command(model, run_dir.path(), arguments)?)?;
        Ok(Owner { process, run_dir })
    }

    /// Starts an owner for `model` and blocks until it has published its manifest.
    pub fn serving(model: &Path) -> Result<Owner> {
        let owner = Owner::start(model, &[])?;
        owner.process.wait_for_line("ready manifest=")?;
        Ok(owner)
    }

    /// The command line of an owner for `model` in `run_dir`.
    pub fn command(model: &Path, run_dir: &Path, arguments: &[&OsStr]) -> Result<Command> {
        let mut owner = command("ds4-weightd")?;
        // A machine that runs tests has little memory to spare; the models are small.
        owner.arg("--base").arg(model).arg("--run-dir").arg(run_dir).args(["--reserve-gb", "0"]).args(arguments);
        Ok(owner)
    }

    /// The folder that holds lock, socket and manifest.
    pub fn run_dir(&self) -> &Path {
        self.run_dir.path()
    }

    /// The manifest's path, as the owner announced it. Blocks until it is published.
    pub fn manifest(&self) -> Result<PathBuf> {
        self.process.wait_for("where the manifest is", |line| {
            let (_, rest) = line.split_once("ready manifest=")?;
            Some(PathBuf::from(rest.split(' ').next()?.trim_matches('"')))
        })
    }

    /// The process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Kills the owner with SIGKILL; its run directory stays until the returned handle is dropped.
    pub fn kill(self) -> Result<TempDir> {
        self.process.kill()?;
        Ok(self.run_dir)
    }

    /// Stops the owner with SIGTERM; its run directory stays until the returned handle is dropped.
    pub fn terminate(self) -> Result<(Finished, TempDir)> {
        Ok((self.process.terminate()?, self.run_dir))
    }
}
