//! What operators can see: counters that add up, on a page for Prometheus and on a board for people.

use crate::client::Server;
use axum::body::Body;
use ds4_api::{Derived, Machine, Serving};
use ds4_units::Bytes;
use http::{Request, StatusCode};
use serde_json::json;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const BODY: &str = r#"{"messages":[{"role":"user","content":"Hi"}]}"#;

#[tokio::test]
async fn every_family_has_its_help_and_requests_add_up() {
    let server = Server::saying("Fine.");
    assert_eq!(server.post(BODY).await.status, StatusCode::OK);
    assert_eq!(server.post("{").await.status, StatusCode::BAD_REQUEST);
    let page = server.get("/metrics").await;
    assert_eq!(page.headers["content-type"], "text/plain; version=0.0.4");
    for expected in [
        "ds4_requests_started_total 1",
        "ds4_requests_total{outcome=\"completed\"} 1",
        "ds4_requests_inflight 0",
        "ds4_admits_total{kind=\"cold\"} 1",
        "ds4_http_responses_total{code=\"200\",surface=\"openai_chat\"} 1",
        "ds4_http_responses_total{code=\"400\",surface=\"openai_chat\"} 1",
        "ds4_requests_shed_total{reason=\"clients\"} 0",
        "ds4_ttft_seconds_count{surface=\"openai_chat\"} 1",
        "ds4_memory_decisions_total{consumer=\"batch_bank_plan\",result=\"admit\"} 1",
    ] {
        assert!(page.text.lines().any(|line| line == expected), "{expected} in\n{}", page.text);
    }
    for line in page.text.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap();
        let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        assert!(page.text.contains(&format!("# HELP {family} ")), "{family} has no help");
    }
}

#[tokio::test]
async fn the_board_is_text_for_people_and_json_for_programs() {
    let server = Server::saying("Fine.");
    server.post(BODY).await;
    let text = server.get("/v1/stats").await.text;
    assert!(text.starts_with("# Server\nstate:ready\nmodel:test-model\n"), "{text}");
    assert!(text.contains("requests_completed:1\n"), "{text}");
    let request = Request::get("/v1/stats").header("accept", "application/json").body(Body::empty()).unwrap();
    let board = server.reply(request).await.json();
    let serving = &board["serving"];
    assert_eq!((&serving["requests_started"], &serving["requests_completed"]), (&json!(1), &json!(1)));
    assert_eq!(board["routes"]["openai_chat_continuous"], 1);
    assert_eq!(board["think_modes"]["none"], 1);
    assert_eq!(board["governor"]["decisions"]["admit"], 1);
    let last = json!({"effective_lane": "continuous", "reuse_kind": "cold", "speculation_active": false});
    assert_eq!(board["last_request"], last);
    assert!(serving["decode_tok_s_60s"].as_f64().unwrap() > 0.0, "{serving}");
}

#[tokio::test]
async fn what_the_machine_below_does_is_told_as_it_is_at_the_moment() {
    static LEAKED: AtomicU64 = AtomicU64::new(0);
    let server = Server::saying("Fine.");
    let derived = Derived { imported: 5, built: 2, bytes: Bytes(700) };
    let machine = Machine { derived, leaked_handles: || LEAKED.load(Ordering::Relaxed) };
    server.api.ready(Serving { machine, ..server.serving() });
    for leaked in [0, 3] {
        LEAKED.store(leaked, Ordering::Relaxed);
        let page = server.get("/metrics").await.text;
        assert_eq!(value(&page, "ds4_gpu_leaked_handles_total"), leaked as f64);
        let of = |source| value(&page, &format!("ds4_derived_artifacts{{source=\"{source}\"}}"));
        assert_eq!(["none", "imported", "built", "mixed"].map(of), [0.0, 0.0, 0.0, 7.0]);
        assert_eq!(value(&page, "ds4_derived_artifact_bytes"), 700.0);
        let board = server.get("/v1/stats").await.text;
        assert!(
            board.contains(&format!("artifact_source:mixed\nderived_artifacts:7\nleaked_handles:{leaked}\n")),
            "{board}"
        );
    }
}

/// What was taken, what has ended, and what waits or runs, as a page of metrics says.
async fn books(server: &Server) -> (f64, f64, f64) {
    let page = server.get("/metrics").await.text;
    let ended = ["completed", "failed", "canceled", "refused"];
    let ended = ended.map(|how| value(&page, &format!("ds4_requests_total{{outcome=\"{how}\"}}")));
    (value(&page, "ds4_requests_started_total"), ended.iter().sum(), value(&page, "ds4_requests_inflight"))
}

#[tokio::test]
async fn what_waits_and_runs_is_counted_where_it_is_and_is_what_was_taken_less_what_has_ended() {
    let server = Server::with_banks("ok", crate::client::settings(), 2);
    let ask = || tokio::spawn(tower::ServiceExt::oneshot(server.api.router(), crate::client::post(BODY)));
    server.controls().hold();
    let mut asked = vec![ask()];
    let controls = server.controls().clone();
    tokio::task::spawn_blocking(move || controls.wait_for_steps(1)).await.unwrap();
    asked.extend((0..4).map(|_| ask()));
    let until_queued = async |count: usize| {
        while server.bench.engine.handle().queued() != count {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    until_queued(4).await;
    server.controls().allow(1);
    until_queued(3).await;
    assert_eq!(books(&server).await, (5.0, 0.0, 5.0));
    asked.remove(4).abort();
    server.controls().release();
    for one in asked {
        assert_eq!(one.await.unwrap().unwrap().status(), StatusCode::OK);
    }
    // The one that left is missed by the engine's next turn.
    while books(&server).await != (5.0, 5.0, 0.0) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn requests_are_counted_by_surface_and_by_the_reasoning_they_ask_for() {
    let server = Server::saying("Fine.");
    let think = |how: &str| format!(r#"{{"messages":[{{"role":"user","content":"Hi"}}],"max_tokens":2,{how}}}"#);
    for how in [
        r#""think":false"#,
        r#""think":true"#,
        r#""think":true,"reasoning_effort":"low""#,
        r#""think":true,"reasoning_effort":"high""#,
    ] {
        assert_eq!(server.post(think(how)).await.status, StatusCode::OK);
    }
    let raw = Request::post("/v1/completions").body(Body::from(r#"{"prompt":"Hi","max_tokens":2}"#)).unwrap();
    assert_eq!(server.reply(raw).await.status, StatusCode::OK);
    let page = server.get("/metrics").await.text;
    for (mode, count) in [("none", 2.0), ("usual", 1.0), ("low", 1.0), ("high", 1.0), ("max", 0.0)] {
        assert_eq!(value(&page, &format!("ds4_requests_think_total{{mode=\"{mode}\"}}")), count, "{mode}");
    }
    let routes =
        |surface| value(&page, &format!("ds4_route_requests_total{{lane=\"continuous\",surface=\"{surface}\"}}"));
    assert_eq!((routes("openai_chat"), routes("openai_completion"), routes("anthropic_messages")), (4.0, 1.0, 0.0));
    let kinds: f64 = page
        .lines()
        .filter_map(|line| line.strip_prefix("ds4_admits_total{")?.split(' ').nth(1)?.parse::<f64>().ok())
        .sum();
    assert_eq!(kinds, 5.0, "every admission has its kind");
}

/// The value of a series on a page of metrics.
fn value(page: &str, series: &str) -> f64 {
    let line = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{series} in\n{page}")).parse().unwrap()
}

#[tokio::test]
async fn a_stall_in_the_middle_of_an_answer_is_seen_whatever_its_other_tokens_took() {
    let server = Server::saying("twenty tokens or so.");
    server.controls().hold();
    let answering = tokio::spawn(tower::ServiceExt::oneshot(server.api.router(), crate::client::post(BODY)));
    server.controls().allow(6);
    let controls = server.controls().clone();
    tokio::task::spawn_blocking(move || controls.wait_for_steps(7)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    server.controls().release();
    assert_eq!(answering.await.unwrap().unwrap().status(), StatusCode::OK);
    let page = server.get("/metrics").await.text;
    let of_chat = |name: &str| value(&page, &format!("ds4_inter_token_seconds_{name}"));
    let gaps = of_chat("count{surface=\"openai_chat\"}");
    assert_eq!(gaps, 19.0, "one less than tokens");
    assert!(of_chat("bucket{surface=\"openai_chat\",le=\"0.256\"}") <= gaps - 1.0, "{page}");
    assert!(of_chat("sum{surface=\"openai_chat\"}") >= 0.3);
}
