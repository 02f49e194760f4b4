//! Adds up what loading will need and compares it with what may be used, before anything is allocated.

use crate::identity::LEAF;
use crate::memory::{Budget, MEM_AVAILABLE, MemoryError, MemorySource, ProcessMemory};
use crate::plan::Plan;
use crate::role::Role;
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
    "not enough memory: need {need}, {budget} leaves {available}, {deficit} are missing. Remedies: {}",
    listed(remedies)
)]
pub struct PreflightRefused {
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

/// Adds up what loading `plan` into host memory needs: the ranges, `staging` bytes of buffers, tables, and `reserve`
/// bytes that must stay free. Observes memory once; does not wait.
pub fn preflight(
    plan: &Plan,
    staging: Bytes,
    reserve: Bytes,
    memory: &dyn MemorySource,
) -> Result<Preflight, MemoryError> {
    let rows = rows(plan, staging, reserve);
    let need = rows.last().map_or(Bytes::ZERO, |row| row.running_total);
    let budget = memory.observe()?.budget();
    let missing = need.0.saturating_sub(budget.chosen.bytes.0);
    let deficit = (missing > 0).then_some(Bytes(missing));
    let remedies = match deficit {
        Some(deficit) => remedies(plan, reserve, &budget, deficit, &memory.largest_processes()),
        None => Vec::new(),
    };
    Ok(Preflight { rows, need, budget, deficit, remedies })
}

impl Preflight {
    /// The refusal, if it does not fit.
    pub fn check(&self) -> Result<(), PreflightRefused> {
        match self.deficit {
            None => Ok(()),
            Some(deficit) => Err(PreflightRefused {
                need: self.need,
                budget: self.budget.chosen.source.clone(),
                available: self.budget.chosen.bytes,
                deficit,
                remedies: self.remedies.clone(),
            }),
        }
    }
}

fn rows(plan: &Plan, staging: Bytes, reserve: Bytes) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let mut add = |term: String, bytes: Bytes, source: String| {
        let before = rows.last().map_or(0, |row| row.running_total.0);
        let running_total = Bytes(before.saturating_add(bytes.0));
        rows.push(Row { term, bytes, source, running_total });
    };
    for model in &plan.models {
        let count = plan.ranges.iter().filter(|range| range.role == model.role).count();
        let bytes = range_bytes(plan, model.role);
        add(format!("{} weights", model.role), bytes, format!("plan: {count} ranges"));
    }
    let leaves = plan.bytes_to_read().0 / LEAF.0 + plan.totals.tensors;
    let tables = TABLES_FIXED.0 + plan.totals.tensors * TABLES_PER_TENSOR + leaves * TABLES_PER_LEAF;
    add("staging".to_owned(), staging, "one buffer per reading thread".to_owned());
    add("page cache".to_owned(), Bytes::ZERO, "direct reads, or dropped piece by piece".to_owned());
    add("tables".to_owned(), Bytes(tables), "estimate from tensors and leaves".to_owned());
    add("reserve".to_owned(), reserve, "must stay free: --reserve-gb".to_owned());
    rows
}

fn range_bytes(plan: &Plan, role: Role) -> Bytes {
    let ranges = plan.ranges.iter().filter(|range| range.role == role);
    Bytes(ranges.fold(0, |sum: u64, range| sum.saturating_add(range.allocated.0)))
}

/// At most three things to do, first those that are enough alone, the smallest of them first.
fn remedies(plan: &Plan, reserve: Bytes, budget: &Budget, deficit: Bytes, processes: &[ProcessMemory]) -> Vec<Remedy> {
    let mut all = vec![Remedy { action: "lower --reserve-gb".to_owned(), recovers: reserve }];
    for model in plan.models.iter().filter(|model| model.role != Role::Base) {
        let recovers = range_bytes(plan, model.role);
        all.push(Remedy { action: format!("leave out --{}", model.role), recovers });
    }
    match budget.rejected.first() {
        // A group's limit: to stop a process helps only if it is in the group, to raise the limit does.
        Some(next) if budget.chosen.source != MEM_AVAILABLE => {
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
