//! The published names: boards that were made for them find every one, with its labels, before the first request.

use crate::client::Server;

/// Surfaces that generate.
const SURFACES: &[&str] = &["openai_chat", "openai_completion", "openai_responses", "anthropic_messages"];
const CLASSES: &[&str] = &["weight_import", "weight_arena", "stage_pin", "batch_bank", "scratch_sticky", "graph_exec"];
const CONSUMERS: &[&str] = &["engine_boot", "prewarm", "batch_bank_plan"];
const RESULTS: &[&str] = &["admit", "refuse_class", "refuse_live", "retry_obs", "unsupported", "fault"];

/// A family with the values of its labels that must be there.
type Family = (&'static str, &'static [(&'static str, &'static [&'static str])]);

const COUNTERS: &[Family] = &[
    ("ds4_requests_started_total", &[]),
    ("ds4_requests_total", &[("outcome", &["completed", "failed", "canceled", "refused"])]),
    (
        "ds4_requests_rejected_total",
        &[
            ("lane", &["continuous"]),
            ("reason", &["class_budget", "live_headroom", "obs_retry", "unsupported", "fault", "pressure"]),
        ],
    ),
    ("ds4_requests_shed_total", &[("reason", &["clients", "queue_depth", "queue_bytes", "queue_age", "slow_reader"])]),
    ("ds4_requests_think_total", &[("mode", &["none", "low", "high", "max"])]),
    ("ds4_route_requests_total", &[("surface", SURFACES), ("lane", &["continuous"])]),
    ("ds4_admits_total", &[("kind", &["cold", "warm", "fork", "partial_truncate", "disk", "adopted"])]),
    ("ds4_cont_admit_rejects_total", &[]),
    ("ds4_cont_credit_extension_granted_total", &[]),
    ("ds4_cont_credit_extension_refused_total", &[]),
    ("ds4_cont_batch_failures_total", &[]),
    ("ds4_tokens_prefilled_total", &[("kind", &["computed", "cached"])]),
    ("ds4_tokens_decoded_total", &[]),
    ("ds4_decode_steps_total", &[]),
    ("ds4_spec_drafts_total", &[]),
    ("ds4_spec_hits_total", &[]),
    ("ds4_spec_quench_total", &[]),
    ("ds4_reclaim_banks_total", &[("result", &["ok"])]),
    ("ds4_reclaim_bytes_total", &[("result", &["ok"])]),
    ("ds4_reclaim_refaults_total", &[]),
    ("ds4_reclaim_refault_tokens_total", &[]),
    ("ds4_continuation_records_published_total", &[]),
    ("ds4_continuation_resolved_total", &[]),
    ("ds4_continuation_missed_total", &[]),
    ("ds4_continuation_demoted_total", &[]),
    ("ds4_memory_census_faults_total", &[]),
    ("ds4_memory_observation_calls_total", &[("source", &["cuda_free", "meminfo_available"])]),
    ("ds4_memory_observation_errors_total", &[]),
    ("ds4_mem_own_trim_calls_total", &[]),
    ("ds4_mem_own_trim_recovered_bytes_total", &[]),
    ("ds4_mem_reconcile_flagged_total", &[]),
    ("ds4_memory_decisions_total", &[("consumer", CONSUMERS), ("result", RESULTS)]),
    ("ds4_memory_governor_faults_total", &[]),
    ("ds4_http_responses_total", &[("surface", SURFACES), ("code", &["200", "400", "429", "500", "503"])]),
    ("ds4_tool_calls_total", &[("result", &["ok", "repaired", "retried", "failed"])]),
];

const GAUGES: &[Family] = &[
    ("ds4_uptime_seconds", &[]),
    ("ds4_requests_inflight", &[]),
    ("ds4_clients_connected", &[]),
    ("ds4_queue_depth", &[]),
    ("ds4_inflight_body_bytes", &[]),
    ("ds4_out_backlog_bytes", &[]),
    ("ds4_cont_commit_bytes_per_token", &[("kind", &["observed", "packed"])]),
    ("ds4_decode_tok_s", &[]),
    ("ds4_prefill_tok_s", &[]),
    ("ds4_tok_per_step", &[]),
    ("ds4_spec_accept_ratio", &[]),
    ("ds4_banks_live", &[]),
    ("ds4_banks_total", &[]),
    ("ds4_warm_records", &[]),
    ("ds4_kv_pages_resident", &[]),
    ("ds4_continuation_records_live", &[]),
    ("ds4_derived_artifacts", &[("source", &["none", "imported", "built", "mixed"])]),
    ("ds4_derived_artifact_bytes", &[]),
    ("ds4_memory_census_supported", &[]),
    (
        "ds4_memory_bytes",
        &[
            ("domain", &["unified_device", "pinned_host"]),
            ("class", CLASSES),
            ("state", &["requested", "allocated", "slack"]),
        ],
    ),
    ("ds4_memory_census_epoch", &[]),
    ("ds4_memory_substrate_outstanding_bytes", &[]),
    ("ds4_memory_observation_info", &[("status", &["ok"])]),
    ("ds4_memory_observation_bytes", &[("kind", &["free"])]),
    ("ds4_mem_reconcile_residual_bytes", &[]),
    ("ds4_mem_reconcile_onetime_bytes", &[]),
    ("ds4_memory_governor_epoch", &[]),
    ("ds4_memory_lease_bytes", &[("consumer", CONSUMERS), ("field", &["intent", "resident", "reservation"])]),
    ("ds4_memory_decision_deficit_bytes", &[("consumer", CONSUMERS)]),
];

const HISTOGRAMS: &[Family] = &[
    ("ds4_ttft_seconds", &[("surface", SURFACES)]),
    ("ds4_e2e_seconds", &[("surface", SURFACES)]),
    ("ds4_inter_token_seconds", &[("surface", SURFACES)]),
];

/// Published for what there is not here; the head of `metrics.rs` says why of each.
const LEFT_OUT: [&str; 13] = [
    "ds4_requests_serial_total",
    "ds4_route_decisions_total",
    "ds4_cont_admit_band_x1024",
    "ds4_graph_fit_refusals_total",
    "ds4_serial_idle_reaps_total",
    "ds4_cont_ontoken_ns_total",
    "ds4_cont_ontoken_tokens_total",
    "ds4_batch_genmu_wait_ns_total",
    "ds4_batch_genmu_waits_total",
    "ds4_residency_units",
    "ds4_residency_failures_total",
    "ds4_memory_census_torn_fallbacks_total",
    "ds4_requests_refused_deep_serial_total",
];

#[tokio::test]
async fn a_fresh_worker_has_every_published_family_with_all_of_its_labels() {
    let page = Server::saying("Fine.").get("/metrics").await.text;
    let mut missing = Vec::new();
    let kinds = [("counter", COUNTERS), ("gauge", GAUGES), ("histogram", HISTOGRAMS)];
    for (kind, &(name, labels)) in kinds.iter().flat_map(|(kind, all)| all.iter().map(move |family| (kind, family))) {
        if !page.contains(&format!("# HELP {name} ")) || !page.contains(&format!("# TYPE {name} {kind}\n")) {
            missing.push(format!("{name}: HELP or TYPE {kind}"));
        }
        let series: Vec<&str> = page.lines().filter(|line| line.starts_with(name)).collect();
        if series.is_empty() {
            missing.push(format!("{name}: a series"));
        }
        for (label, values) in labels {
            let absent = |value: &&&str| !series.iter().any(|line| line.contains(&format!("{label}=\"{value}\"")));
            missing.extend(values.iter().filter(absent).map(|value| format!("{name}: {label}={value}")));
        }
    }
    assert!(missing.is_empty(), "{}\n{page}", missing.join("\n"));
    for name in LEFT_OUT {
        assert!(!page.contains(name), "{name} is there: say what it counts, and take it off both lists");
    }
    for line in page.lines().filter(|line| line.starts_with("# HELP ")) {
        let name = line.split(' ').nth(2).unwrap();
        assert!(page.lines().any(|line| line.starts_with(name)), "{name} has no series");
    }
}
