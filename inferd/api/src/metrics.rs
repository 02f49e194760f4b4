//! `GET /metrics`: everything that is counted, for Prometheus.

use crate::phase::Phase;
use crate::state::Shared;
use crate::telemetry::valid;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use ds4_engine::{DiskStats, Eviction, HitKind, Miss, Observatory, Quarantine, SaveReason};
use ds4_governor::{Class, Consumer, Domain, Reason, Verdict};
use http::header;
use prometheus::proto::MetricFamily;
use prometheus::{Counter, Gauge, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder};
use std::time::Duration;

pub(crate) async fn metrics(State(shared): State<Shared>) -> Response {
    let mut families = shared.telemetry.gather();
    families.extend(now(&shared));
    let text = TextEncoder::new().encode_to_string(&families);
    match text {
        Ok(text) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response(),
        Err(error) => {
            tracing::error!(%error, "metrics cannot be written");
            http::StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// Families made of what other rooms count, as it is now.
struct Now(Registry);

impl Now {
    fn counters<const N: usize>(&self, name: &str, help: &str, labels: [&str; N], values: &[([&str; N], u64)]) {
        let vector = valid(IntCounterVec::new(Opts::new(name, help), &labels));
        for (labels, value) in values {
            vector.with_label_values(labels).inc_by(*value);
        }
        valid(self.0.register(Box::new(vector)));
    }

    fn gauges<const N: usize>(&self, name: &str, help: &str, labels: [&str; N], values: &[([&str; N], u64)]) {
        let vector = valid(IntGaugeVec::new(Opts::new(name, help), &labels));
        for (labels, value) in values {
            vector.with_label_values(labels).set(i64::try_from(*value).unwrap_or(i64::MAX));
        }
        valid(self.0.register(Box::new(vector)));
    }

    fn counter(&self, name: &str, help: &str, value: u64) {
        self.counters(name, help, [], &[([], value)]);
    }

    fn signed(&self, name: &str, help: &str, value: i64) {
        let gauge = valid(IntGauge::new(name, help));
        gauge.set(value);
        valid(self.0.register(Box::new(gauge)));
    }

    fn seconds(&self, name: &str, help: &str, value: Duration) {
        let counter = valid(Counter::new(name, help));
        counter.inc_by(value.as_secs_f64());
        valid(self.0.register(Box::new(counter)));
    }

    fn ratio(&self, name: &str, help: &str, value: f64) {
        let gauge = valid(Gauge::new(name, help));
        gauge.set(value);
        valid(self.0.register(Box::new(gauge)));
    }

    fn gauge(&self, name: &str, help: &str, value: u64) {
        self.gauges(name, help, [], &[([], value)]);
    }
}

fn now(shared: &Shared) -> Vec<MetricFamily> {
    let now = Now(Registry::new());
    now.gauge("ds4_uptime_seconds", "Seconds since the server listens", shared.telemetry.started.elapsed().as_secs());
    now.gauge("ds4_clients_connected", "Requests that generate", shared.clients() as u64);
    now.gauge("ds4_inflight_body_bytes", "Bytes of request bodies in memory", shared.bodies.in_use());
    if let Phase::Ready(serving) = shared.phase.now() {
        now.gauge("ds4_queue_depth", "Requests that wait for a bank", serving.engine.queued() as u64);
        now.gauge("ds4_queue_bytes", "Bytes of their prompts", serving.engine.queued_bytes().0);
        engine(&now, serving.engine.observatory());
        memory(&now, serving.engine.observatory());
        if let Some(stats) = serving.engine.observatory().disk() {
            kv_disk(&now, &stats);
        }
    }
    now.0.gather()
}

/// Conversations on disk; only where there is a folder for them.
fn kv_disk(now: &Now, stats: &DiskStats) {
    now.gauge("ds4_kv_disk_files", "Conversations on disk that this worker can use", stats.files);
    now.gauge("ds4_kv_disk_bytes", "Bytes of all files of the folder", stats.bytes.0);
    now.gauge("ds4_kv_disk_budget_bytes", "Bytes they may take", stats.budget.0);
    now.seconds("ds4_kv_disk_index_seconds", "Time that reading the folder took at the start", stats.index_time);
    let stores = SaveReason::ALL.iter().enumerate().flat_map(|(index, reason)| {
        [([reason.name(), "ok"], stats.saves[index]), ([reason.name(), "failed"], stats.saves_failed[index])]
    });
    let stores: Vec<([&str; 2], u64)> = stores.collect();
    now.counters("ds4_kv_disk_stores_total", "Saves", ["reason", "result"], &stores);
    now.gauge("ds4_kv_disk_stores_waiting", "Conversations that wait to be written", stats.waiting);
    now.counter("ds4_kv_disk_written_bytes_total", "Bytes written", stats.written.0);
    now.seconds("ds4_kv_disk_store_seconds_total", "Time that saves took", stats.save_time);
    let kinds = HitKind::ALL.iter().zip(stats.hits).map(|(kind, count)| ([kind.name()], count));
    now.counters("ds4_kv_disk_hits_total", "Prompts whose beginning was found", ["kind"], &kinds.collect::<Vec<_>>());
    let reasons = Miss::ALL.iter().zip(stats.misses).map(|(why, count)| ([why.name()], count));
    let help = "Prompts for which nothing was restored";
    now.counters("ds4_kv_disk_misses_total", help, ["reason"], &reasons.collect::<Vec<_>>());
    let restores = [(["ok"], stats.loads), (["failed"], stats.loads_failed)];
    now.counters("ds4_kv_disk_restores_total", "Conversations read", ["result"], &restores);
    now.counter("ds4_kv_disk_read_bytes_total", "Bytes read by restores", stats.read.0);
    now.seconds("ds4_kv_disk_restore_seconds_total", "Time that restores took", stats.load_time);
    now.counter("ds4_kv_disk_tokens_saved_total", "Tokens that restores saved computing", stats.tokens_restored);
    let evictions = Eviction::ALL.iter().zip(stats.evictions).map(|(why, count)| ([why.name()], count));
    now.counters("ds4_kv_disk_evictions_total", "Files given up", ["reason"], &evictions.collect::<Vec<_>>());
    let bad = Quarantine::ALL.iter().zip(stats.quarantined).map(|(when, count)| ([when.name()], count));
    now.counters("ds4_kv_disk_quarantined_total", "Files set aside as damaged", ["reason"], &bad.collect::<Vec<_>>());
}

fn engine(now: &Now, observatory: &Observatory) {
    let stats = observatory.stats();
    now.counter("ds4_requests_started_total", "Requests the engine took", stats.started);
    now.counters(
        "ds4_requests_total",
        "Requests by how they ended",
        ["outcome"],
        &[
            (["completed"], stats.completed),
            (["failed"], stats.failed),
            (["canceled"], stats.canceled),
            (["refused"], stats.refused),
        ],
    );
    now.gauge("ds4_requests_inflight", "Requests taken and not ended", stats.inflight());
    now.counters(
        "ds4_admits_total",
        "Requests by where their bank came from",
        ["kind"],
        &[
            (["cold"], stats.admits_cold),
            (["warm"], stats.admits_exact),
            (["partial_truncate"], stats.admits_partial),
            (["fork"], stats.admits_fork),
            (["disk"], stats.admits_disk),
        ],
    );
    now.counters(
        "ds4_tokens_prefilled_total",
        "Prompt tokens",
        ["kind"],
        &[(["computed"], stats.prefilled_computed), (["cached"], stats.prefilled_cached)],
    );
    now.counter("ds4_tokens_decoded_total", "Answer tokens computed", stats.decoded);
    now.counter("ds4_decode_steps_total", "Steps with at least one answer row", stats.decode_steps);
    now.counter("ds4_steps_total", "Steps", stats.steps);
    now.counter("ds4_spec_drafts_total", "Guesses at answer tokens that steps computed", stats.guesses);
    now.counter("ds4_spec_hits_total", "Guesses that were what was drawn", stats.guesses_right);
    now.counter("ds4_spec_quench_total", "Times that guesses for an answer did not pay", stats.guesses_quenched);
    let ratio = stats.guesses_right as f64 / stats.guesses.max(1) as f64;
    now.ratio("ds4_spec_accept_ratio", "Guesses that were what was drawn, of those computed", ratio);
    now.counter("ds4_cont_batch_failures_total", "Steps the model refused", stats.step_faults);
    now.gauge("ds4_banks_live", "Conversations that have a bank", stats.running + stats.warm);
    now.gauge("ds4_banks_total", "Conversations there may be at once", stats.banks);
    now.gauge("ds4_warm_records", "Kept conversations", stats.warm);
    now.counters(
        "ds4_reclaim_banks_total",
        "Kept conversations given up for memory",
        ["result"],
        &[(["ok"], stats.reclaimed_banks)],
    );
    now.counters(
        "ds4_reclaim_bytes_total",
        "Memory of kept conversations given up",
        ["result"],
        &[(["ok"], stats.reclaimed_bytes)],
    );
    now.counter("ds4_mem_own_trim_calls_total", "Times that idle conversations were trimmed", stats.trims);
    now.counter("ds4_mem_own_trim_recovered_bytes_total", "Memory they gave back", stats.trimmed_bytes);
    let refusals = Reason::ALL.iter().map(|&reason| (["continuous", reason.name()], observatory.refusals(reason)));
    now.counters(
        "ds4_requests_rejected_total",
        "Requests that memory could not carry",
        ["lane", "reason"],
        &refusals.collect::<Vec<_>>(),
    );
}

fn memory(now: &Now, observatory: &Observatory) {
    let governor = observatory.governor();
    let (census, leases, decisions) = (governor.census(), governor.leases(), governor.decisions());
    let mut bytes = Vec::new();
    for &domain in Domain::ALL {
        for &class in Class::ALL {
            let cell = census.cell(class, domain);
            let requested = cell.live().0 - cell.slack().0;
            let states = [("requested", requested), ("allocated", cell.live().0), ("slack", cell.slack().0)];
            bytes.extend(states.map(|(state, value)| ([domain.name(), class.name(), state], value)));
        }
    }
    now.gauges("ds4_memory_bytes", "Memory held", ["domain", "class", "state"], &bytes);
    now.counter("ds4_memory_census_faults_total", "Entries that contradicted the ledger", census.faults());
    let (mut lease, mut decided, mut deficits) = (Vec::new(), Vec::new(), Vec::new());
    for &consumer in Consumer::ALL {
        let (name, held) = (consumer.name(), leases.get(consumer));
        lease.push(([name, "intent"], held.intent.0));
        lease.push(([name, "resident"], held.resident.0));
        lease.push(([name, "reservation"], held.reservation.0));
        deficits.push(([name], decisions.deficit(consumer).0));
        decided
            .extend(Verdict::ALL.iter().map(|&verdict| ([name, verdict.name()], decisions.count(consumer, verdict))));
    }
    now.gauges("ds4_memory_lease_bytes", "Memory promised and taken", ["consumer", "field"], &lease);
    now.counters("ds4_memory_decisions_total", "Answers to wishes for memory", ["consumer", "result"], &decided);
    now.gauges("ds4_memory_decision_deficit_bytes", "Missing at the last decision", ["consumer"], &deficits);
    now.gauge("ds4_memory_governor_epoch", "Changes of the memory account", governor.epoch());
    if let Some(seen) = governor.observation() {
        let labels = [seen.status.name(), seen.source.name()];
        now.gauges("ds4_memory_observation_info", "The last look at the machine", ["status", "source"], &[(labels, 1)]);
        now.gauges("ds4_memory_observation_bytes", "What it found", ["kind"], &[(["free"], seen.free.0)]);
    }
    now.gauge("ds4_memory_pressure", "0 none, 1 soft, 2 hard", governor.pressure().0 as u64);
    let account = governor.reconciliation();
    let found = account.map_or((0, 0, 0), |last| (last.residual.bytes, last.residual.one_time, last.flagged));
    now.signed("ds4_mem_reconcile_residual_bytes", "Memory gone without an entry in the account", found.0);
    now.signed("ds4_mem_reconcile_onetime_bytes", "The same for starting up, not counted in it", found.1);
    now.counter("ds4_mem_reconcile_flagged_total", "Comparisons that found more than the tolerance", found.2);
}
