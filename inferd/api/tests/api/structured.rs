//! Answers of a given form: whatever the model would like to say, what it says follows the schema.

use crate::client::{CHAT, Reply, Server};
use axum::body::Body;
use http::{Request, StatusCode};
use serde_json::{Value, json};

/// Room for white space, of which a model without a will prints as much as it may.
const MANY: u32 = 330;

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {"count": {"type": "integer", "maximum": 999, "minimum": 100}},
        "required": ["count"],
        "additionalProperties": false,
    })
}

async fn ask(server: &Server, path: &str, body: Value) -> Reply {
    let request = Request::post(path).header("content-type", "application/json");
    server.reply(request.body(Body::from(body.to_string())).unwrap()).await
}

fn chat(format: Value) -> Value {
    json!({"messages": [{"content": "hello"}], "temperature": 0, "max_tokens": MANY, "response_format": format})
}

fn follows(text: &str) {
    let answer: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text:?}"));
    assert!(answer["count"].as_i64().is_some_and(|count| (100..1000).contains(&count)), "{answer}");
    assert_eq!(answer.as_object().unwrap().len(), 1, "{answer}");
}

#[tokio::test]
async fn every_surface_holds_the_answer_to_its_schema() {
    let server = Server::saying("I would rather not answer in JSON.");
    let format = json!({"type": "json_schema", "json_schema": {"name": "n", "strict": true, "schema": schema()}});
    let reply = ask(&server, CHAT, chat(format.clone())).await;
    follows(reply.json()["choices"][0]["message"]["content"].as_str().unwrap());

    let flat = json!({"type": "json_schema", "name": "n", "schema": schema()});
    let body = json!({"input": "hello", "temperature": 0, "max_output_tokens": MANY, "text": {"format": flat}});
    let reply = ask(&server, "/v1/responses", body).await;
    follows(reply.json()["output"][0]["content"][0]["text"].as_str().unwrap());

    for name in ["output_format", "output_config"] {
        let flat = json!({"type": "json_schema", "schema": schema()});
        let format = if name == "output_config" { json!({"format": flat}) } else { flat };
        let body = json!({"messages": [{"role": "user", "content": "hello"}], "max_tokens": MANY, "temperature": 0,
            name: format});
        let reply = ask(&server, "/v1/messages", body).await;
        follows(reply.json()["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{name}: {}", reply.text)));
    }

    let body = json!({"prompt": "hello", "temperature": 0, "max_tokens": MANY, "response_format": format});
    let reply = ask(&server, "/v1/completions", body).await;
    follows(reply.json()["choices"][0]["text"].as_str().unwrap());
}

#[tokio::test]
async fn any_object_will_do_where_no_schema_is_given() {
    let server = Server::saying("{\"mood\": [1, \"fine\"]} and more");
    let reply = ask(&server, CHAT, chat(json!({"type": "json_object"}))).await;
    let reply = reply.json();
    assert_eq!(reply["choices"][0]["message"]["content"], "{\"mood\": [1, \"fine\"]}", "and nothing after it");
    assert_eq!(reply["choices"][0]["finish_reason"], "stop");
}

#[tokio::test]
async fn reasoning_is_free_and_the_answer_after_it_is_not() {
    let server = Server::saying("let me think</think>not JSON");
    let mut body = chat(json!({"type": "json_schema", "json_schema": {"schema": schema()}}));
    body["thinking"] = json!(true);
    let message = &ask(&server, CHAT, body).await.json()["choices"][0]["message"];
    assert_eq!(message["reasoning_content"], "let me think");
    follows(message["content"].as_str().unwrap());
}

#[tokio::test]
async fn the_same_seed_gives_the_same_answer_with_a_schema_too() {
    let server = Server::saying("?");
    let mut body = chat(json!({"type": "json_schema", "json_schema": {"schema": schema()}}));
    (body["temperature"], body["seed"], body["max_tokens"]) = (json!(1.5), json!(7), json!(60));
    let first = ask(&server, CHAT, body.clone()).await.json()["choices"][0]["message"].clone();
    for _ in 0..3 {
        assert_eq!(ask(&server, CHAT, body.clone()).await.json()["choices"][0]["message"], first);
    }
}

#[tokio::test]
async fn what_cannot_be_enforced_is_refused_by_name() {
    let server = Server::saying("ok");
    let nested = json!({"type": "object", "properties": {"a": {"not": {}}}});
    for (format, message, param) in [
        (
            json!({"type": "json_schema", "json_schema": {"schema": nested}}),
            "response_format.json_schema.schema.properties.a.not: is not supported in structured output; leave it out",
            "response_format.json_schema.schema.properties.a.not",
        ),
        (json!({"type": "json_schema"}), "response_format.json_schema: is missing", "response_format.json_schema"),
        (
            json!({"type": "json_schema", "json_schema": {"name": "n"}}),
            "response_format.json_schema.schema: is missing",
            "response_format.json_schema.schema",
        ),
        (
            json!({"type": "grammar"}),
            "response_format.type: unsupported \"grammar\"; use text, json_object or json_schema",
            "response_format.type",
        ),
    ] {
        let reply = ask(&server, CHAT, chat(format)).await;
        let error =
            json!({"error": {"message": message, "type": "invalid_request_error", "param": param, "code": null}});
        assert_eq!((reply.status, reply.json()), (StatusCode::BAD_REQUEST, error));
    }
}
