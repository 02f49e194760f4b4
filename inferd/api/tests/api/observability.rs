//! What operators can see: counters that add up, on a page for Prometheus and on a board for people.

use crate::client::Server;
use axum::body::Body;
use http::{Request, StatusCode};

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
    let count = |name: &str| serving[name].as_u64().unwrap();
    let ended = ["completed", "failed", "canceled", "refused"].map(|how| count(&format!("requests_{how}")));
    let inflight = board["server"]["requests_inflight"].as_u64().unwrap();
    assert_eq!(count("requests_started"), ended.iter().sum::<u64>() + inflight);
}
