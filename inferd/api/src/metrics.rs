//! `GET /metrics`: everything that is counted, for Prometheus.
//!
//! Names and labels are the published ones, so that boards made for them go on working. A family whose cause does not
//! exist here is left out: a number that never moves would pass for a measured one.
//!
//! | published, and not here | why |
//! |---|---|
//! | `ds4_requests_serial_total`, `ds4_serial_idle_reaps_total`, outcome `refused_deep_serial` | there is one way through the engine, and no other for single requests |
//! | `ds4_route_decisions_total` | so nothing is decided about ways |
//! | `ds4_cont_admit_band_x1024` | a conversation is charged what it will take to the byte, without a margin |
//! | `ds4_graph_fit_refusals_total` | what recordings of steps take is set aside at the start, and no request is refused for it |
//! | admissions of kind `partial_fork` | a copy of a beginning is a `fork`, however much of it is shared |
//! | `ds4_cont_ontoken_ns_total`, `ds4_cont_ontoken_tokens_total` | handing a token out blocks on nobody, and is not timed |
//! | `ds4_batch_genmu_wait_ns_total`, `ds4_batch_genmu_waits_total` | one thread owns the model: there is no lock to wait for |
//! | `ds4_residency_units`, `ds4_residency_failures_total` | all weights are there before the worker is ready, or it does not start |
//! | `ds4_memory_census_torn_fallbacks_total` | the ledger is read under its lock, never half-written |
//! | label `reason` of `ds4_memory_decisions_total` | there is one evaluator and none in its shadow |
//! | shed reason `continuation_hold` | a kept conversation holds nobody off at the door: requests wait for its memory |

use crate::phase::Phase;
use crate::state::Shared;
use crate::telemetry::valid;
use crate::{Derived, Machine};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use ds4_engine::{DiskStats, Eviction, HitKind, Miss, Observatory, Quarantine, ReuseKind, SaveReason};
use ds4_governor::{Class, Consumer, Domain, Reason, Source, Verdict};
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
        let unread = serving.engine.observatory().unread().0;
        now.gauge("ds4_out_backlog_bytes", "Bytes of answers that their connections have not taken yet", unread);
        continuations(&now, shared);
        machine(&now, &serving.machine);
        engine(&now, serving.engine.observatory());
        memory(&now, serving.engine.observatory());
        if let Some(stats) = serving.engine.observatory().disk() {
            kv_disk(&now, &stats);
        }
    }
    now.0.gather()
}

/// Weights, and the device they are on.
fn machine(now: &Now, machine: &Machine) {
    let derived = machine.derived;
    let tensors = |source| if source == derived.source() { derived.tensors() } else { 0 };
    let by_source = Derived::SOURCES.map(|source| ([source], tensors(source)));
    let help = "Tensors that are in memory in another form than the file's, by where they come from";
    now.gauges("ds4_derived_artifacts", help, ["source"], &by_source);
    now.gauge("ds4_derived_artifact_bytes", "Bytes of them", derived.bytes.0);
    let help = "Handles that the GPU's driver did not take back: what they stand for is lost until the process ends";
    now.counter("ds4_gpu_leaked_handles_total", help, (machine.leaked_handles)());
}

/// Turns that clients may go on from without sending them again.
fn continuations(now: &Now, shared: &Shared) {
    let counts = shared.continuations.counts();
    now.counter("ds4_continuation_records_published_total", "Turns kept for follow-ups", counts.published);
    now.counter("ds4_continuation_resolved_total", "Requests that went on from a kept turn", counts.resolved);
    now.counter("ds4_continuation_missed_total", "Requests whose turn is not kept any more", counts.missed);
    let help = "Kept turns whose conversation went on another way";
    now.counter("ds4_continuation_demoted_total", help, counts.demoted);
    now.gauge("ds4_continuation_records_live", "Turns kept for follow-ups now", counts.live);
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
    now.gauge("ds4_requests_inflight", "Requests that wait or run", observatory.in_flight());
    now.counters(
        "ds4_admits_total",
        "Requests by where their bank came from",
        ["kind"],
        &ReuseKind::ALL.map(|kind| ([admission(kind)], stats.admits(kind))),
    );
    now.counter("ds4_cont_admit_rejects_total", "Requests that memory could not carry", stats.refused);
    let help = "Answers longer than their first charge that were granted memory for more, each time";
    now.counter("ds4_cont_credit_extension_granted_total", help, stats.extensions_granted);
    let help = "Answers longer than their first charge that ended for want of memory";
    now.counter("ds4_cont_credit_extension_refused_total", help, stats.extensions_refused);
    let observed = stats.bytes_held.checked_div(stats.tokens_held).unwrap_or(0);
    now.gauges(
        "ds4_cont_commit_bytes_per_token",
        "Memory of a token: what banks take for each they hold now, and what one of the longest conversation is charged",
        ["kind"],
        &[(["observed"], observed), (["packed"], stats.bytes_priced)],
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
    let rates = observatory.rates();
    now.ratio("ds4_decode_tok_s", "Answer tokens computed a second, in the last 60 seconds", rates.decoded);
    now.ratio("ds4_prefill_tok_s", "Prompt tokens computed a second, in the last 60 seconds", rates.prefilled);
    let help = "Answer tokens for each step with at least one answer row, in the last 60 seconds";
    now.ratio("ds4_tok_per_step", help, rates.tokens_per_step);
    now.counter("ds4_spec_drafts_total", "Guesses at answer tokens that steps computed", stats.guesses);
    now.counter("ds4_spec_hits_total", "Guesses that were what was drawn", stats.guesses_right);
    now.counter("ds4_spec_quench_total", "Times that guesses for an answer did not pay", stats.guesses_quenched);
    let ratio = stats.guesses_right as f64 / stats.guesses.max(1) as f64;
    now.ratio("ds4_spec_accept_ratio", "Guesses that were what was drawn, of those computed", ratio);
    now.counter("ds4_cont_batch_failures_total", "Steps the model refused", stats.step_faults);
    now.gauge("ds4_banks_live", "Conversations that have a bank", stats.running + stats.warm);
    now.gauge("ds4_banks_total", "Conversations there may be at once", stats.banks);
    now.gauge("ds4_warm_records", "Kept conversations", stats.warm);
    let help = "Blocks of tokens that conversations in memory fill, the last of each in part";
    now.gauge("ds4_kv_pages_resident", help, stats.blocks_held);
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
    let help = "Requests that computed again what a conversation held that was given up within ten minutes before";
    now.counter("ds4_reclaim_refaults_total", help, stats.refaults);
    let help = "Prompt tokens computed again for that: many are a sign of more conversations than memory carries";
    now.counter("ds4_reclaim_refault_tokens_total", help, stats.refault_tokens);
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

/// The published spelling of how a request got its bank.
fn admission(kind: ReuseKind) -> &'static str {
    match kind {
        ReuseKind::Exact => "warm",
        ReuseKind::Partial => "partial_truncate",
        ReuseKind::Cold | ReuseKind::Fork | ReuseKind::Disk | ReuseKind::Adopted => kind.name(),
    }
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
    now.gauge("ds4_memory_census_supported", "1: what is held is counted, on every kind of device", 1);
    now.gauge("ds4_memory_census_epoch", "Changes of what is held", census.epoch());
    now.counter("ds4_memory_census_faults_total", "Entries that contradicted the ledger", census.faults());
    let help = "Memory that steps and their recordings will take and have not taken yet";
    now.gauge(
        "ds4_memory_substrate_outstanding_bytes",
        help,
        leases.get(Consumer::Prewarm).outstanding().unwrap_or_default().0,
    );
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
    now.counter("ds4_memory_governor_faults_total", "Wishes for memory that could not be true", governor.faults());
    if let Some(seen) = governor.observation() {
        let labels = [seen.status.name(), seen.source.name()];
        now.gauges("ds4_memory_observation_info", "The last look at the machine", ["status", "source"], &[(labels, 1)]);
        let total = seen.read.total.map(|total| (["total"], total.0));
        let read = seen.read.by_source().filter_map(|(source, said)| Some(([source.name()], said.ok()?.0)));
        let bytes: Vec<_> = std::iter::once((["free"], seen.free.0)).chain(total).chain(read).collect();
        now.gauges("ds4_memory_observation_bytes", "What it found", ["kind"], &bytes);
    }
    let looks = governor.looks();
    let asked = [Source::CudaFree, Source::MemAvailable].map(|source| ([source.name()], looks.at(source)));
    let help = "Times that a source was asked for a decision; the guard's looks, ten a second, are not counted";
    now.counters("ds4_memory_observation_calls_total", help, ["source"], &asked);
    let help = "Looks at the machine that came to nothing";
    now.counter("ds4_memory_observation_errors_total", help, looks.errors);
    now.gauge("ds4_memory_pressure", "0 none, 1 soft, 2 hard", governor.pressure().0 as u64);
    let account = governor.reconciliation();
    let found = account.map_or((0, 0, 0), |last| (last.residual.bytes, last.residual.one_time, last.flagged));
    now.signed("ds4_mem_reconcile_residual_bytes", "Memory gone without an entry in the account", found.0);
    now.signed("ds4_mem_reconcile_onetime_bytes", "The same for starting up, not counted in it", found.1);
    now.counter("ds4_mem_reconcile_flagged_total", "Comparisons that found more than the tolerance", found.2);
}
