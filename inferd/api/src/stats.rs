//! `GET /v1/stats`: what the server does, for people (a text board) and for programs (`Accept: application/json`).

use crate::error::json_response;
use crate::phase::{Phase, Serving};
use crate::state::Shared;
use crate::telemetry::{LANE, SHED_REASONS, SURFACES, THINK_MODES};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use ds4_engine::{DiskStats, Eviction, HitKind, Miss, Quarantine, SaveReason};
use ds4_governor::{Class, Consumer, Domain, Reason, Verdict};
use http::{HeaderMap, StatusCode, header};
use serde_json::{Map, Value, json};

pub(crate) async fn stats(State(shared): State<Shared>, headers: HeaderMap) -> Response {
    let board = board(&shared);
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    if accept.contains("application/json") {
        return json_response(StatusCode::OK, &Value::Object(board));
    }
    ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text(&board)).into_response()
}

fn board(shared: &Shared) -> Map<String, Value> {
    let mut board = Map::new();
    let uptime = shared.telemetry.started.elapsed().as_secs();
    let sheds: Map<String, Value> =
        SHED_REASONS.iter().map(|&reason| (reason.to_owned(), shared.telemetry.sheds(reason).into())).collect();
    match shared.phase.now() {
        Phase::Ready(serving) => {
            board.insert("server".into(), server(&serving, uptime));
            board.insert("serving".into(), requests(&serving));
            board.insert("routes".into(), counted(&SURFACES, |surface| shared.telemetry.routes(surface), route));
            let modes = counted(&THINK_MODES, |mode| shared.telemetry.thinking(mode), str::to_owned);
            board.insert("think_modes".into(), modes);
            board.insert("sheds".into(), sheds.into());
            board.insert(
                "backpressure".into(),
                json!({
                    "clients_connected": shared.clients(),
                    "queue_depth": serving.engine.queued(),
                    "inflight_body_bytes": shared.bodies.in_use(),
                    "out_backlog_bytes": serving.engine.observatory().unread().0,
                }),
            );
            board.insert("speculation".into(), speculation(&serving));
            board.insert("cache".into(), cache(&serving));
            if let Some(disk) = serving.engine.observatory().disk() {
                board.insert("kv_disk".into(), kv_disk(&disk));
            }
            if let Some(parked) = serving.engine.observatory().parked() {
                board.insert(
                    "parked".into(),
                    json!({
                        "keeper_connected": parked.connected,
                        "conversations": parked.sets,
                        "handed_over": parked.parked,
                        "failed": parked.failed,
                        "late": parked.late,
                        "keepers_lost": parked.lost,
                        "adopted_doubted": serving.engine.observatory().stats().adopted_doubted,
                    }),
                );
            }
            board.insert("memory".into(), memory(&serving));
            board.insert("governor".into(), governor(&serving));
            if let Some(last) = shared.telemetry.last_request() {
                let (reuse, speculated) = (last.reuse.name(), last.speculated);
                board.insert(
                    "last_request".into(),
                    json!({ "effective_lane": LANE, "reuse_kind": reuse, "speculation_active": speculated }),
                );
            }
        }
        Phase::Loading => drop(board.insert("server".into(), json!({ "state": "loading", "uptime_seconds": uptime }))),
        Phase::Draining => {
            drop(board.insert("server".into(), json!({ "state": "draining", "uptime_seconds": uptime })))
        }
    }
    board
}

/// Counts by name.
fn counted(names: &[&str], count: impl Fn(&str) -> u64, spelled: impl Fn(&str) -> String) -> Value {
    names.iter().map(|&name| (spelled(name), Value::from(count(name)))).collect()
}

fn route(surface: &str) -> String {
    format!("{surface}_{LANE}")
}

fn server(serving: &Serving, uptime: u64) -> Value {
    let stats = serving.engine.observatory().stats();
    json!({
        "state": "ready",
        "model": serving.model_id,
        "context": serving.engine.info().context.0,
        "max_seq": stats.banks,
        "uptime_seconds": uptime,
        "artifact_source": serving.machine.derived.source(),
        "derived_artifacts": serving.machine.derived.tensors(),
        "leaked_handles": (serving.machine.leaked_handles)(),
        "requests_inflight": serving.engine.observatory().in_flight(),
    })
}

fn requests(serving: &Serving) -> Value {
    let stats = serving.engine.observatory().stats();
    let rates = serving.engine.observatory().rates();
    json!({
        "requests_started": stats.started,
        "requests_completed": stats.completed,
        "requests_failed": stats.failed,
        "requests_canceled": stats.canceled,
        "requests_refused": stats.refused,
        "cont_batch_failures": stats.step_faults,
        "tokens_decoded": stats.decoded,
        "decode_steps": stats.decode_steps,
        "decode_tok_s_60s": rates.decoded,
        "tok_per_step_60s": rates.tokens_per_step,
    })
}

/// Guesses at what answers say next.
fn speculation(serving: &Serving) -> Value {
    let stats = serving.engine.observatory().stats();
    json!({
        "spec_drafts": stats.guesses,
        "spec_hits": stats.guesses_right,
        "spec_accept_ratio": stats.guesses_right as f64 / stats.guesses.max(1) as f64,
        "spec_quench_events": stats.guesses_quenched,
    })
}

fn cache(serving: &Serving) -> Value {
    let stats = serving.engine.observatory().stats();
    json!({
        "admits_cold": stats.admits_cold,
        "admits_warm": stats.admits_exact,
        "admits_fork": stats.admits_fork,
        "admits_partial_truncate": stats.admits_partial,
        "admits_disk": stats.admits_disk,
        "admits_adopted": stats.admits_adopted,
        "tokens_prefilled_computed": stats.prefilled_computed,
        "tokens_prefilled_cached": stats.prefilled_cached,
        "prefill_tok_s_60s": serving.engine.observatory().rates().prefilled,
        "cont_admit_rejects": stats.refused,
        "warm_records": stats.warm,
        "banks_live": stats.running + stats.warm,
        "banks_total": stats.banks,
        "kv_pages_resident": stats.blocks_held,
        "reclaimed_banks": stats.reclaimed_banks,
        "refaults": stats.refaults,
        "refault_tokens": stats.refault_tokens,
    })
}

/// Conversations on disk; only where there is a folder for them.
fn kv_disk(stats: &DiskStats) -> Value {
    fn by<K: Copy>(kinds: &[K], name: impl Fn(K) -> &'static str, counts: &[u64]) -> Value {
        kinds.iter().zip(counts).map(|(&kind, &count)| (name(kind).to_owned(), Value::from(count))).collect()
    }
    json!({
        "files": stats.files,
        "bytes": stats.bytes.0,
        "budget_bytes": stats.budget.0,
        "index_ms": stats.index_time.as_millis() as u64,
        "stores": by(SaveReason::ALL, SaveReason::name, &stats.saves),
        "stores_failed": by(SaveReason::ALL, SaveReason::name, &stats.saves_failed),
        "stores_waiting": stats.waiting,
        "bytes_written": stats.written.0,
        "store_ms": stats.save_time.as_millis() as u64,
        "hits": by(HitKind::ALL, HitKind::name, &stats.hits),
        "misses": by(Miss::ALL, Miss::name, &stats.misses),
        "restores": stats.loads,
        "restores_failed": stats.loads_failed,
        "bytes_read": stats.read.0,
        "restore_ms": stats.load_time.as_millis() as u64,
        "tokens_saved": stats.tokens_restored,
        "evictions": by(Eviction::ALL, Eviction::name, &stats.evictions),
        "quarantined": by(Quarantine::ALL, Quarantine::name, &stats.quarantined),
    })
}

fn memory(serving: &Serving) -> Value {
    let census = serving.engine.observatory().governor().census();
    let mut classes = Map::new();
    for &class in Class::ALL {
        let mut domains = Map::new();
        for &domain in Domain::ALL {
            let cell = census.cell(class, domain);
            domains.insert(domain.name().into(), json!({ "live": cell.live().0, "slack": cell.slack().0 }));
        }
        classes.insert(class.name().into(), domains.into());
    }
    let governor = serving.engine.observatory().governor();
    let mut board = json!({
        "census_supported": true,
        "census_epoch": census.epoch(),
        "classes": classes,
        "census_faults": census.faults(),
        "substrate_outstanding": governor.leases().get(Consumer::Prewarm).outstanding().unwrap_or_default().0,
    });
    if let Some(seen) = governor.observation() {
        let (status, source) = (seen.status.name(), seen.source.name());
        board["observation"] = json!({ "status": status, "source": source, "free_bytes": seen.free.0 });
        if let Some(total) = seen.read.total {
            board["observation"]["total_bytes"] = total.0.into();
        }
        let looks = governor.looks();
        for (source, said) in seen.read.by_source() {
            board["observation"][format!("calls_{}", source.name())] = looks.at(source).into();
            if let Ok(bytes) = said {
                board["observation"][format!("{}_bytes", source.name())] = bytes.0.into();
            }
        }
        board["observation"]["errors"] = looks.errors.into();
    }
    if let Some(last) = governor.reconciliation() {
        let (residual, one_time) = (last.residual.bytes, last.residual.one_time);
        board["reconcile"] = json!({ "residual": residual, "onetime": one_time, "flagged": last.flagged });
    }
    board
}

fn governor(serving: &Serving) -> Value {
    let governor = serving.engine.observatory().governor();
    let leases = governor.leases();
    let lease = |&consumer: &Consumer| {
        let lease = leases.get(consumer);
        let fields =
            json!({ "intent": lease.intent.0, "resident": lease.resident.0, "reservation": lease.reservation.0 });
        (consumer.name().to_owned(), fields)
    };
    let leases: Map<String, Value> = Consumer::ALL.iter().map(lease).collect();
    let observatory = serving.engine.observatory();
    let refusals: Map<String, Value> =
        Reason::ALL.iter().map(|&reason| (reason.name().to_owned(), observatory.refusals(reason).into())).collect();
    let decisions = governor.decisions();
    let decided = |&verdict: &Verdict| {
        let count: u64 = Consumer::ALL.iter().map(|&consumer| decisions.count(consumer, verdict)).sum();
        (verdict.name().to_owned(), Value::from(count))
    };
    let decided: Map<String, Value> = Verdict::ALL.iter().map(decided).collect();
    let plan = governor.plan().map(|plan| {
        let lengths = plan.lengths.iter().map(|length| {
            let fields = json!({ "price_bytes": length.price.0, "fit": length.fit });
            (length.tokens.0.to_string(), fields)
        });
        json!({
            "banks": plan.banks,
            "asked": plan.asked,
            "budget_bytes": plan.budget.0,
            "tokens": lengths.collect::<Map<String, Value>>(),
            "one_more_needs_bytes": plan.next_needs.0,
        })
    });
    json!({
        "plan": plan,
        "epoch": governor.epoch(),
        "faults": governor.faults(),
        "decisions": decided,
        "floor": governor.floors().floor.0,
        "pressure": governor.pressure().0.name(),
        "leases": leases,
        "refusals": refusals,
    })
}

/// The board as lines: a heading per section, `key:value` below it, nested keys joined by dots.
fn text(board: &Map<String, Value>) -> String {
    let mut text = String::new();
    for (section, values) in board {
        let mut letters = section.chars();
        let first = letters.next().map(|letter| letter.to_ascii_uppercase()).unwrap_or_default();
        text.push_str(&format!("# {first}{}\n", letters.as_str()));
        lines("", values, &mut text);
        text.push('\n');
    }
    text
}

fn lines(prefix: &str, value: &Value, text: &mut String) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
                lines(&path, value, text);
            }
        }
        Value::String(word) => text.push_str(&format!("{prefix}:{word}\n")),
        other => text.push_str(&format!("{prefix}:{other}\n")),
    }
}
