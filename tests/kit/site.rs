//! A run directory and what runs in it: a keeper, an owner, workers, each of which can die and come again.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::binaries::command;
use crate::owner::Owner;
use crate::process::Process;
use crate::worker::Worker;

/// Where the processes of one model meet. Dropping it removes the run directory.
pub struct Site {
    folder: TempDir,
    model: PathBuf,
    owner_arguments: Vec<OsString>,
    worker_arguments: Vec<OsString>,
}

impl Site {
    /// A run directory for `model`, with further arguments of every owner and every worker there.
    pub fn new(model: &Path, owner_arguments: &[OsString], worker_arguments: &[OsString]) -> Result<Site> {
        let folder = TempDir::new().context("a run directory")?;
        let (owner_arguments, worker_arguments) = (owner_arguments.to_vec(), worker_arguments.to_vec());
        Ok(Site { folder, model: model.to_owned(), owner_arguments, worker_arguments })
    }

    /// The run directory.
    pub fn run_dir(&self) -> &Path {
        self.folder.path()
    }

    /// The manifest that an owner publishes here.
    pub fn manifest(&self) -> PathBuf {
        self.run_dir().join("weights.json")
    }

    /// Starts a keeper and blocks until it listens.
    pub fn keeper(&self) -> Result<Process> {
        let keeper = Process::start(self.keeper_command()?)?;
        keeper.wait_for_line("keeper listening")?;
        Ok(keeper)
    }

    /// The command line of a keeper.
    pub fn keeper_command(&self) -> Result<Command> {
        let mut keeper = command("ds4-weightd")?;
        keeper.arg("keep").arg("--run-dir").arg(self.run_dir());
        Ok(keeper)
    }

    /// Starts an owner and returns at once, while it loads.
    pub fn owner(&self) -> Result<Process> {
        let arguments: Vec<&OsStr> = self.owner_arguments.iter().map(OsString::as_os_str).collect();
        Process::start(Owner::command(&self.model, self.run_dir(), &arguments)?)
    }

    /// Starts an owner and blocks until it has published its manifest.
    pub fn serving_owner(&self) -> Result<Process> {
        let owner = self.owner()?;
        owner.wait_for_line("ready manifest=")?;
        Ok(owner)
    }

    /// Starts a worker, which waits for an owner, and blocks until it listens.
    pub fn worker(&self) -> Result<Worker> {
        let manifest = self.manifest();
        let mut arguments: Vec<&OsStr> =
            vec!["--weights".as_ref(), manifest.as_os_str(), "--wait".as_ref(), "60".as_ref()];
        arguments.extend(self.worker_arguments.iter().map(OsString::as_os_str));
        Worker::start(&self.model, 0, &arguments)
    }

    /// Starts a worker and blocks until it serves.
    pub fn serving_worker(&self) -> Result<Worker> {
        let worker = self.worker()?;
        worker.wait_until_healthy()?;
        Ok(worker)
    }
}
