//! What is left when something ends: no file, no descriptor, no lease, no process.

use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::{Result, bail, ensure};
use ds4_tests::{Owner, PATIENCE, Worker, command, demo_model, open_files, paths_below, run};
use nix::unistd::Pid;
use serde_json::{Value, json};

fn hello() -> Value {
    json!([{"role": "user", "content": "Hello, good morning!"}])
}

/// Blocks until `observe` gives `wanted`. A process closes what it no longer needs a moment after its peer has left,
/// and announces that nowhere else.
fn wait_until<T: PartialEq + std::fmt::Debug>(wanted: &T, mut observe: impl FnMut() -> Result<T>) -> Result<()> {
    let start = Instant::now();
    loop {
        let now = observe()?;
        if now == *wanted {
            return Ok(());
        }
        if start.elapsed() > PATIENCE {
            bail!("still {now:?}, not {wanted:?}");
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// What descriptors of conversations' memory are called.
const CONVERSATION_MEMORY: [&str; 3] = ["/memfd:ds4-bank", "/memfd:ds4-checkpoint", "/memfd:ds4-journal"];

/// Descriptors of a conversation's memory: its bank, its journal, and checkpoints of a request's beginning and end.
const MOST_OF_A_CONVERSATION: usize = 4;

/// What a process holds open, by kind: socket and pipe numbers differ between equal states. The second are descriptors of
/// kept conversations' memory, which a successor may take over.
fn kinds(pid: Pid) -> Result<(Vec<String>, Vec<String>)> {
    let kinds = open_files(pid)?.into_iter().map(|file| file.split(":[").next().unwrap_or_default().to_owned());
    Ok(kinds.partition(|kind| !CONVERSATION_MEMORY.iter().any(|name| kind.starts_with(name))))
}

#[test]
fn a_stopped_owner_leaves_an_empty_run_directory() -> Result<()> {
    let model = demo_model();
    let owner = Owner::serving(&model)?;
    Worker::attached(&model, &owner)?.kill()?;
    let (end, run_dir) = owner.terminate()?;
    ensure!(end.code() == Some(0), "{}", end.output);
    assert_eq!(paths_below(run_dir.path())?, Vec::<std::path::PathBuf>::new());
    Ok(())
}

#[test]
fn a_killed_owner_is_replaced_in_the_same_run_directory() -> Result<()> {
    let model = demo_model();
    let run_dir = Owner::serving(&model)?.kill()?;
    ensure!(!paths_below(run_dir.path())?.is_empty(), "a killed process cannot clean up");
    let owner = ds4_tests::Process::start(Owner::command(&model, run_dir.path(), &[])?)?;
    let ready = owner.wait_for_line("ready manifest=")?;
    ensure!(ready.contains("generation=2"), "{ready}");
    let end = owner.terminate()?;
    ensure!(end.code() == Some(0), "{}", end.output);
    assert_eq!(paths_below(run_dir.path())?, Vec::<std::path::PathBuf>::new());
    Ok(())
}

#[test]
fn a_killed_worker_leaves_its_owner_as_it_was() -> Result<()> {
    let model = demo_model();
    let owner = Owner::serving(&model)?;
    let before = kinds(owner.process().pid())?;
    for _ in 0..5 {
        let worker = Worker::attached(&model, &owner)?;
        wait_until(&1, || workers_of(owner.run_dir()))?;
        worker.kill()?;
        wait_until(&0, || workers_of(owner.run_dir()))?;
    }
    wait_until(&before, || kinds(owner.process().pid()))
}

/// How many workers the owner in `run_dir` says it has.
fn workers_of(run_dir: &Path) -> Result<usize> {
    let mut status = command("ds4-weightd")?;
    status.arg("--run-dir").arg(run_dir).args(["--status", "--json"]);
    let end = run(status)?;
    let status: Value = serde_json::from_str(&end.output)?;
    match status["workers"].as_array() {
        Some(workers) => Ok(workers.len()),
        None => bail!("no workers in {status}"),
    }
}

#[test]
fn requests_leave_no_descriptor_open_in_the_worker() -> Result<()> {
    let model = demo_model();
    let owner = Owner::serving(&model)?;
    let kept = 2;
    let manifest = owner.manifest()?;
    let banks = kept.to_string();
    let arguments = ["--weights".as_ref(), manifest.as_os_str(), "--max-seqs".as_ref(), banks.as_ref()];
    let worker = Worker::start(&model, 0, &arguments)?;
    worker.wait_until_healthy()?;
    let pid = worker.process().pid();
    worker.answer(&hello())?;
    let (before, _) = kinds(pid)?;
    for round in 0..30 {
        match round % 3 {
            0 => drop(worker.answer(&hello())?),
            1 => drop(worker.stream(&hello())?.rest_of_text()?),
            // Leaves in the middle.
            _ => drop(worker.stream(&hello())?.next_text()?),
        }
    }
    // The first count may still have seen a connection that was closing.
    wait_until(&true, || {
        let (others, conversations) = kinds(pid)?;
        Ok(others.len() <= before.len() && conversations.len() <= kept * MOST_OF_A_CONVERSATION)
    })
}

#[test]
fn an_attached_worker_keeps_no_descriptor_of_the_weights() -> Result<()> {
    let model = demo_model();
    let owner = Owner::serving(&model)?;
    let worker = Worker::attached(&model, &owner)?;
    let held = open_files(worker.process().pid())?;
    ensure!(!held.iter().any(|file| file.contains("memfd:")), "{held:?}");
    let maps = fs::read_to_string(format!("/proc/{}/maps", worker.process().pid()))?;
    let weights: Vec<&str> = maps.lines().filter(|line| line.contains("/memfd:")).collect();
    ensure!(!weights.is_empty(), "{maps}");
    ensure!(weights.iter().all(|line| line.contains(" r--s ")), "{weights:?}");
    Ok(())
}

#[test]
fn a_stopped_worker_ends_with_0_and_frees_its_port() -> Result<()> {
    let model = demo_model();
    let worker = Worker::start(&model, 0, &[])?;
    worker.wait_until_healthy()?;
    let port = worker.address().port();
    let end = worker.terminate()?;
    ensure!(end.code() == Some(0), "{}", end.output);
    Worker::start(&model, port, &[])?.wait_until_healthy()?;
    Ok(())
}
