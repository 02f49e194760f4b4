//! Adds up what loading will need and compares it with what may be used, before anything is allocated.

use crate::identity::LEAF;
use crate::memory::{Budget, MemoryError, MemorySource, ProcessMemory};
use crate::plan::{Plan, PlannedModel};
use crate::role::Role;
#[cfg(feature = "cuda")]
use crate::staging::device_staging_bytes;
use ds4_units::Bytes;
use serde::Serialize;
use std::fmt;
use thiserror::Error;

/// What must stay free after loading into host memory, unless told otherwise.
pub const HOST_RESERVE: Bytes = Bytes::gib(1);

/// Memory of the tables of one tensor: name, dimensions and place in catalogue, plan and manifest. An upper estimate.
const TABLES_PER_TENSOR: u64 = 2048;
/// Memory of one leaf's digest and piece while its tensor is read.
const TABLES_PER_LEAF: u64 = 128;
/// Device memory of one leaf while it is hashed: what it is, and its digest.
#[cfg(feature = "cuda")]
const DIGEST_PER_LEAF: u64 = 72;
/// Host memory that CUDA takes in a process: some 70 MiB were seen on an H200 with driver 580.
#[cfg(feature = "cuda")]
const DRIVER_ON_HOST: Bytes = Bytes::mib(128);
/// The program itself, with metadata such as the vocabulary.
const TABLES_FIXED: Bytes = Bytes::mib(48);

/// One term of the sum.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// What needs memory.
    pub term: String,
    /// How much.
    pub bytes: Bytes,
    /// Where the figure comes from.
    pub source: String,
    /// The sum up to here.
    pub running_total: Bytes,
}

/// Something an operator can do about a refusal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Remedy {
    /// What to do.
    pub action: String,
    /// What it would recover, at most.
    pub recovers: Bytes,
}

/// The sum, the budget, and the verdict. Displays as the table that operators see.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Preflight {
    /// Whose memory it is: `memory` of a machine with one pool, else `GPU memory` or `host memory`.
    pub pool: &'static str,
    /// The terms.
    pub rows: Vec<Row>,
    /// Their sum.
    pub need: Bytes,
    /// What may be used.
    pub budget: Budget,
    /// What is missing; absent when it fits.
    pub deficit: Option<Bytes>,
    /// The three cheapest things to do about a deficit; empty when it fits.
    pub remedies: Vec<Remedy>,
}

/// Loading would take more memory than may be used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error(
    "not enough {pool}: need {need}, {budget} leaves {available}, {deficit} are missing. Remedies: {}",
    listed(remedies)
)]
pub struct PreflightRefused {
    /// Whose memory it is.
    pub pool: &'static str,
    /// What is needed in all.
    pub need: Bytes,
    /// Who says what may be used.
    pub budget: String,
    /// What may be used.
    pub available: Bytes,
    /// What is missing.
    pub deficit: Bytes,
    /// What to do about it.
    pub remedies: Vec<Remedy>,
}

/// What must stay free on the host while a device is loaded.
#[cfg(feature = "cuda")]
const HOST_FLOOR: Bytes = Bytes::gib(2);

/// Adds up what loading `plan` into host memory needs: the ranges, `staging` bytes of buffers, tables, what a worker
/// needs, and `reserve` bytes that must stay free. Observes memory once; does not wait.
pub fn preflight(
    plan: &Plan,
    staging: Bytes,
    reserve: Bytes,
    worker_min: Bytes,
    memory: &dyn MemorySource,
) -> Result<Preflight, MemoryError> {
    let mut terms = weights(plan);
    terms.extend(beside_weights(plan, staging));
    terms.extend(free(reserve, worker_min));
    table("memory", terms, plan, reserve, memory)
}

/// The same for a device with memory of its own: the ranges, staging, what a worker needs, and the reserve.
#[cfg(feature = "cuda")]
pub(crate) fn preflight_device(
    plan: &Plan,
    threads: usize,
    reserve: Bytes,
    worker_min: Bytes,
    memory: &dyn MemorySource,
) -> Result<Preflight, MemoryError> {
    let mut terms = weights(plan);
    terms.extend(on_device(plan, threads));
    terms.extend(free(reserve, worker_min));
    table("GPU memory", terms, plan, reserve, memory)
}

/// What loading a device with memory of its own needs on the host.
#[cfg(feature = "cuda")]
pub(crate) fn preflight_beside_device(
    plan: &Plan,
    threads: usize,
    memory: &dyn MemorySource,
) -> Result<Preflight, MemoryError> {
    let mut terms = beside_weights(plan, device_staging_bytes(threads)).to_vec();
    terms.push(driver());
    terms.push(("floor".to_owned(), HOST_FLOOR, "must stay free on the host".to_owned()));
    table("host memory", terms, plan, Bytes::ZERO, memory)
}

/// Everything in one pool, for a device that shares the host's memory.
#[cfg(feature = "cuda")]
pub(crate) fn preflight_integrated(
    plan: &Plan,
    threads: usize,
    reserve: Bytes,
    worker_min: Bytes,
    memory: &dyn MemorySource,
) -> Result<Preflight, MemoryError> {
    let mut terms = weights(plan);
    terms.extend(on_device(plan, threads));
    terms.extend(beside_weights(plan, device_staging_bytes(threads)));
    terms.push(driver());
    terms.extend(free(reserve, worker_min));
    table("memory", terms, plan, reserve, memory)
}

/// A term, its size, and where the figure comes from.
type Term = (String, Bytes, String);

fn table(
    pool: &'static str,
    terms: Vec<Term>,
    plan: &Plan,
    reserve: Bytes,
    memory: &dyn MemorySource,
) -> Result<Preflight, MemoryError> {
    let mut running_total = Bytes::ZERO;
    let rows = terms.into_iter().map(|(term, bytes, source)| {
        running_total = Bytes(running_total.0.saturating_add(bytes.0));
        Row { term, bytes, source, running_total }
    });
    let rows: Vec<Row> = rows.collect();
    let need = rows.last().map_or(Bytes::ZERO, |row| row.running_total);
    let observation = memory.observe()?;
    let budget = observation.budget();
    let missing = need.0.saturating_sub(budget.chosen.bytes.0);
    let deficit = (missing > 0).then_some(Bytes(missing));
    let is_group = observation.groups.iter().any(|group| group.file == budget.chosen.source);
    let remedies = match deficit {
        Some(deficit) => remedies(plan, reserve, (&budget, is_group), deficit, &memory.largest_processes()),
        None => Vec::new(),
    };
    Ok(Preflight { pool, rows, need, budget, deficit, remedies })
}

impl Preflight {
    /// The refusal, if it does not fit.
    pub fn check(&self) -> Result<(), PreflightRefused> {
        match self.deficit {
            None => Ok(()),
            Some(deficit) => Err(PreflightRefused {
                pool: self.pool,
                need: self.need,
                budget: self.budget.chosen.source.clone(),
                available: self.budget.chosen.bytes,
                deficit,
                remedies: self.remedies.clone(),
            }),
        }
    }
}

fn weights(plan: &Plan) -> Vec<Term> {
    let term = |model: &PlannedModel| {
        let count = plan.ranges.iter().filter(|range| range.role == model.role).count();
        let bytes = range_bytes(plan, model.role);
        (format!("{} weights", model.role), bytes, format!("plan: {count} ranges"))
    };
    plan.models.iter().map(term).collect()
}

/// Host memory for reading.
fn beside_weights(plan: &Plan, staging: Bytes) -> [Term; 3] {
    let leaves = plan.bytes_to_read().0 / LEAF.0 + plan.totals.tensors;
    let tables = TABLES_FIXED.0 + plan.totals.tensors * TABLES_PER_TENSOR + leaves * TABLES_PER_LEAF;
    [
        ("staging".to_owned(), staging, "buffers of the reading threads".to_owned()),
        ("page cache".to_owned(), Bytes::ZERO, "direct reads, or dropped piece by piece".to_owned()),
        ("tables".to_owned(), Bytes(tables), "estimate from tensors and leaves".to_owned()),
    ]
}

/// Device memory for loading, beside the ranges. The context is there already when memory is observed.
#[cfg(feature = "cuda")]
fn on_device(plan: &Plan, threads: usize) -> [Term; 2] {
    let leaves = plan.bytes_to_read().0 / LEAF.0 + plan.totals.artifacts.0 / LEAF.0 + 2 * plan.totals.tensors;
    [
        ("device staging".to_owned(), device_staging_bytes(threads), "buffers of the reading threads".to_owned()),
        ("digests".to_owned(), Bytes(leaves * DIGEST_PER_LEAF), "one of each leaf".to_owned()),
    ]
}

/// Host memory of the driver in this process.
#[cfg(feature = "cuda")]
fn driver() -> Term {
    ("driver".to_owned(), DRIVER_ON_HOST, "estimate of what CUDA takes of the host".to_owned())
}

/// What must be left.
fn free(reserve: Bytes, worker_min: Bytes) -> Vec<Term> {
    let worker = ("worker".to_owned(), worker_min, "a worker beside the weights: --worker-min-gb".to_owned());
    let reserve = ("reserve".to_owned(), reserve, "must stay free: --reserve-gb".to_owned());
    if worker_min == Bytes::ZERO { vec![reserve] } else { vec![worker, reserve] }
}

fn range_bytes(plan: &Plan, role: Role) -> Bytes {
    let ranges = plan.ranges.iter().filter(|range| range.role == role);
    Bytes(ranges.fold(0, |sum: u64, range| sum.saturating_add(range.allocated.0)))
}

/// At most three things to do, first those that are enough alone, the smallest of them first.
fn remedies(
    plan: &Plan,
    reserve: Bytes,
    (budget, is_group): (&Budget, bool),
    deficit: Bytes,
    processes: &[ProcessMemory],
) -> Vec<Remedy> {
    let mut all = vec![Remedy { action: "lower --reserve-gb".to_owned(), recovers: reserve }];
    for model in plan.models.iter().filter(|model| model.role != Role::Base) {
        let recovers = range_bytes(plan, model.role);
        all.push(Remedy { action: format!("leave out --{}", model.role), recovers });
    }
    match budget.rejected.first() {
        // A group's limit: to stop a process helps only if it is in the group, to raise the limit does.
        Some(next) if is_group => {
            let recovers = Bytes(next.bytes.0 - budget.chosen.bytes.0);
            all.push(Remedy { action: format!("raise {}", budget.chosen.source), recovers });
        }
        _ => all.extend(processes.iter().map(|process| Remedy {
            action: format!("stop pid {} ({})", process.pid, process.name),
            recovers: process.resident,
        })),
    }
    all.retain(|remedy| remedy.recovers > Bytes::ZERO);
    all.sort_by_key(|remedy| match remedy.recovers >= deficit {
        true => (0, remedy.recovers.0),
        false => (1, u64::MAX - remedy.recovers.0),
    });
    all.truncate(3);
    all
}

fn listed(remedies: &[Remedy]) -> String {
    let shown = remedies.iter().map(|remedy| format!("{} (-{})", remedy.action, remedy.recovers));
    let shown: Vec<String> = shown.collect();
    if shown.is_empty() { "use a smaller model".to_owned() } else { shown.join("; ") }
}

impl fmt::Display for Preflight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<16} {:>12} {:>14}   source", "term", "size", "running total")?;
        for Row { term, bytes, source, running_total } in &self.rows {
            let (bytes, running_total) = (bytes.to_string(), running_total.to_string());
            writeln!(f, "{term:<16} {bytes:>12} {running_total:>14}   {source}")?;
        }
        let chosen = &self.budget.chosen;
        writeln!(f, "{:<16} {:>12} {:>14}   {}", "budget", chosen.bytes.to_string(), "", chosen.source)?;
        for other in &self.budget.rejected {
            let bytes = other.bytes.to_string();
            writeln!(f, "{:<16} {bytes:>12} {:>14}   not the limit: {}", "", "", other.source)?;
        }
        match self.deficit {
            None => {
                let spare = Bytes(chosen.bytes.0 - self.need.0);
                write!(f, "{:<16} {:>12}", "to spare", spare.to_string())
            }
            Some(deficit) => write!(f, "{:<16} {:>12}", "missing", deficit.to_string()),
        }
    }
}
