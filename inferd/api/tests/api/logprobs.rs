//! Log-probabilities in the three spellings, and prompts repeated with theirs.

use crate::client::{CHAT, Server};
use axum::body::Body;
use http::{Request, StatusCode};
use serde_json::{Value, json};

async fn ask(server: &Server, path: &str, body: Value) -> (StatusCode, Value) {
    let request = Request::post(path).header("content-type", "application/json");
    let reply = server.reply(request.body(Body::from(body.to_string())).unwrap()).await;
    (reply.status, reply.json())
}

fn tokens_of(list: &Value) -> String {
    list.as_array().unwrap().iter().map(|entry| entry["token"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_chat_answer_has_the_probability_of_each_token_of_its_content() {
    let server = Server::saying("hm</think>ok!");
    let body = json!({"messages": [{"content": "hello"}], "thinking": true, "temperature": 0, "logprobs": true,
        "top_logprobs": 3});
    let (_, reply) = ask(&server, CHAT, body).await;
    let content = &reply["choices"][0]["logprobs"]["content"];
    assert_eq!(tokens_of(content), "ok!", "not of the reasoning, and not the token that ends the answer");
    for entry in content.as_array().unwrap() {
        let top = entry["top_logprobs"].as_array().unwrap();
        assert_eq!(top.len(), 3);
        assert_eq!((&top[0]["token"], &top[0]["logprob"]), (&entry["token"], &entry["logprob"]));
        assert!(entry["logprob"].as_f64().unwrap() < 0.0 && entry["bytes"].is_array());
    }
}

#[tokio::test]
async fn a_stream_carries_the_same_probabilities_beside_the_text() {
    let server = Server::saying("hello you");
    let body = json!({"messages": [{"content": "hello"}], "temperature": 0, "logprobs": true});
    let (_, whole) = ask(&server, CHAT, body.clone()).await;
    let mut streamed = body;
    streamed["stream"] = json!(true);
    let text = server.post(streamed.to_string()).await.text;
    let chunks = text.lines().filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok());
    let entries: Vec<Value> =
        chunks.filter_map(|chunk| chunk["choices"][0]["logprobs"]["content"].as_array().cloned()).flatten().collect();
    assert_eq!(json!(entries), whole["choices"][0]["logprobs"]["content"]);
}

#[tokio::test]
async fn responses_have_them_where_they_are_included() {
    let server = Server::saying("ok");
    let body = json!({"input": "hello", "temperature": 0, "include": ["message.output_text.logprobs"],
        "top_logprobs": 1});
    let (_, reply) = ask(&server, "/v1/responses", body).await;
    let text = &reply["output"][0]["content"][0];
    assert_eq!(tokens_of(&text["logprobs"]), "ok");
    let (_, reply) = ask(&server, "/v1/responses", json!({"input": "hello"})).await;
    assert_eq!(reply["output"][0]["content"][0]["logprobs"], json!([]));
}

#[tokio::test]
async fn a_prompt_is_repeated_with_the_probabilities_of_its_own_tokens() {
    let server = Server::saying("");
    let body = json!({"prompt": "abc", "max_tokens": 1, "logprobs": 1, "echo": true, "temperature": 0});
    let (_, reply) = ask(&server, "/v1/completions", body).await;
    let choice = &reply["choices"][0];
    let spelled = choice["text"].as_str().unwrap();
    assert!(spelled.starts_with("abc"), "{spelled}");
    let logprobs = &choice["logprobs"];
    let count = spelled.chars().count();
    assert_eq!(logprobs["tokens"].as_array().unwrap().len(), count);
    assert_eq!(logprobs["text_offset"], json!((0..count).collect::<Vec<_>>()));
    let values = logprobs["token_logprobs"].as_array().unwrap();
    assert!(values.iter().all(Value::is_f64), "the token we put before the text gives the first one a probability");
    for (token, top) in logprobs["tokens"].as_array().unwrap().iter().zip(logprobs["top_logprobs"].as_array().unwrap())
    {
        assert!(top.get(token.as_str().unwrap()).is_some(), "{token} is among {top}");
    }
}

#[tokio::test]
async fn a_prompt_of_tokens_has_no_probability_for_its_first() {
    let server = Server::saying("");
    let (_, tokenized) = ask(&server, "/tokenize", json!({"prompt": "abcd", "add_special_tokens": false})).await;
    let body = json!({"prompt": [tokenized["tokens"]], "max_tokens": 0, "logprobs": 0, "echo": true});
    let (_, reply) = ask(&server, "/v1/completions", body).await;
    let choice = &reply["choices"][0];
    assert_eq!((&choice["text"], &choice["finish_reason"]), (&json!("abcd"), &json!("length")));
    let values = choice["logprobs"]["token_logprobs"].as_array().unwrap();
    assert_eq!((values.len(), values[0].is_null(), values[1].is_f64()), (4, true, true));
}

#[tokio::test]
async fn what_is_too_much_or_makes_no_sense_is_refused_by_name() {
    let server = Server::saying("ok");
    let hello = || json!({"messages": [{"content": "hello"}], "prompt": "hello"});
    for (path, field, value, message) in [
        (CHAT, "top_logprobs", json!(5), "top_logprobs: needs \"logprobs\": true"),
        (CHAT, "top_logprobs", json!(21), "top_logprobs: must be at most 20"),
        (CHAT, "logprobs", json!(3), "logprobs: must be true or false"),
        ("/v1/completions", "logprobs", json!(6), "logprobs: must be at most 5"),
        ("/v1/completions", "echo", json!("yes"), "echo: must be true or false"),
    ] {
        let mut body = hello();
        body[field] = value;
        let (status, reply) = ask(&server, path, body).await;
        assert_eq!((status, &reply["error"]["message"]), (StatusCode::BAD_REQUEST, &json!(message)), "{path}");
    }
    let mut body = hello();
    (body["echo"], body["stream"]) = (json!(true), json!(true));
    let (status, reply) = ask(&server, "/v1/completions", body).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{reply}");
}

#[tokio::test]
async fn a_harness_learns_which_tokens_frame_a_text() {
    let server = Server::saying("ok");
    let info = server.get("/tokenizer_info").await.json();
    assert_eq!((&info["bos_token"], &info["eos_token"]), (&json!("<bos>"), &json!("<eos>")));
    assert!(info["vocab_size"].is_u64());
}
