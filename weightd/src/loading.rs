//! From model files to weights in memory, step by step, with every step visible to who asks.

use crate::backend;
use crate::command::LoadConfig;
use crate::error::OwnerError;
use crate::report::warn_or_refuse;
use crate::store::{Stage, Store};
use ds4_gguf::Model;
use ds4_host::Progress as Display;
use ds4_resident::{
    Destination, LoadOptions, Plan, Preflight, Progress, Reading, Resident, Role, TensorTable, load, plan,
};
use ds4_units::Bytes;
use ds4_wire::MemoryTerm;
use std::time::Instant;
use tracing::info;

/// Descriptors of an owner beside those of its ranges: standard streams, model files, socket, bells, connections.
const FDS_BESIDE_RANGES: u64 = 64;

/// The files, held open from plan to publication, and what is to become of them.
pub(crate) struct Prepared {
    pub(crate) destination: Destination,
    pub(crate) models: Vec<(Role, Model)>,
    pub(crate) plan: Plan,
}

/// Opens the models and lays out their tensors. Blocks on the disk.
pub(crate) fn prepare(config: &LoadConfig, destination: Destination) -> Result<Prepared, OwnerError> {
    let open = |(role, path): &(Role, std::path::PathBuf)| Ok((*role, Model::open(path)?));
    let models = config.models.iter().map(open).collect::<Result<Vec<_>, OwnerError>>()?;
    let tables: Vec<TensorTable<'_>> =
        models.iter().map(|(role, model)| TensorTable { role: *role, tensors: model.tensors() }).collect();
    let plan = plan(&tables, &destination.plan_options(config.span, &tables))?;
    Ok(Prepared { destination, models, plan })
}

impl Prepared {
    /// Adds up what loading will need: a table for each pool of memory.
    pub(crate) fn check_memory(&self, config: &LoadConfig) -> Result<Vec<Preflight>, OwnerError> {
        let worker_min = config.worker_min.unwrap_or(self.destination.default_worker_min());
        Ok(self.destination.preflight(&self.plan, reserve(config, &self.destination), worker_min)?)
    }

    /// The flags that shape the plan, as effective.
    pub(crate) fn plan_flags(&self, config: &LoadConfig) -> Vec<String> {
        vec![format!("--backend {}", backend::name(&self.destination)), format!("--span-mb {}", config.span.0 >> 20)]
    }
}

/// What must stay free.
pub(crate) fn reserve(config: &LoadConfig, destination: &Destination) -> Bytes {
    config.reserve.unwrap_or(destination.default_reserve())
}

/// Each range costs two descriptors while it is sent; refuses a plan that this process could not serve.
pub(crate) fn check_fd_limit(plan: &Plan, have: u64) -> Result<(), OwnerError> {
    let ranges = plan.totals.ranges;
    let need = ranges.saturating_mul(2).saturating_add(FDS_BESIDE_RANGES);
    if need <= have { Ok(()) } else { Err(OwnerError::FdLimit { ranges, need, have }) }
}

/// Opens the models and plans, entering each stage in `store` as it begins. Blocks on the disk.
pub(crate) fn prepare_stage(
    config: &LoadConfig,
    destination: Destination,
    fd_limit: u64,
    store: &Store,
) -> Result<Prepared, OwnerError> {
    go_on(store)?;
    store.enter(Stage::Planning);
    let prepared = prepare(config, destination)?;
    check_fd_limit(&prepared.plan, fd_limit)?;
    go_on(store)?;
    Ok(prepared)
}

/// Checks memory and loads everything, entering each stage in `store` as it begins. Blocks; a stop ends it within one
/// piece of 2 MiB.
pub(crate) fn load_weights(
    config: &LoadConfig,
    prepared: &Prepared,
    name: &str,
    store: &Store,
) -> Result<Resident, OwnerError> {
    store.enter(Stage::Preflight);
    let tables = prepared.check_memory(config)?;
    store.set_memory(tables.iter().flat_map(terms).collect());
    tables.iter().for_each(|table| table.to_string().lines().for_each(|line| info!("{line}")));
    tables.iter().try_for_each(|table| warn_or_refuse(table, config.preflight))?;
    go_on(store)?;
    let total = prepared.plan.bytes_to_read();
    store.enter(Stage::Loading { total, since: Instant::now() });
    let models: Vec<(Role, &Model)> = prepared.models.iter().map(|(role, model)| (*role, model)).collect();
    let destination = &prepared.destination;
    let options = LoadOptions {
        destination: destination.clone(),
        name: name.to_owned(),
        trip_floor: destination.trip_floor(),
        verify: config.verify,
    };
    let shown = Shown { display: Display::bytes("loading", total), store };
    let reading = Reading { threads: destination.threads(), progress: &shown, cancel: store.stop_flag() };
    let resident = load(&prepared.plan, &models, &options, &*destination.memory(), &reading)?;
    drop(shown);
    go_on(store)?;
    Ok(resident)
}

fn go_on(store: &Store) -> Result<(), OwnerError> {
    if store.is_stopped() { Err(OwnerError::Aborted) } else { Ok(()) }
}

/// Progress goes to the terminal and to whoever asks the broker.
struct Shown<'a> {
    display: Display,
    store: &'a Store,
}

impl Progress for Shown<'_> {
    fn read(&self, done: Bytes) {
        self.store.set_loaded(done);
        self.display.set(done);
    }

    fn verifying(&self) {
        self.store.enter(Stage::Verifying);
    }

    fn note(&self, text: &str) {
        info!("{text}");
    }
}

fn terms(table: &Preflight) -> Vec<MemoryTerm> {
    let rows = table.rows.iter().map(|row| (row.term.clone(), row.bytes.0, row.source.clone()));
    let budget = ("budget".to_owned(), table.budget.chosen.bytes.0, table.budget.chosen.source.clone());
    rows.chain([budget]).map(|(term, bytes, source)| MemoryTerm { term, bytes, source }).collect()
}
