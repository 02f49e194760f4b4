//! A server whose model follows a script.

use crate::support::model::{Controls, FakeModel};
use crate::support::vocabulary::SIZE;
pub(crate) use crate::support::vocabulary::tokenizer;
use axum::body::Body;
use axum::response::Response;
use ds4_api::{Api, Machine, Serving, Settings};
use ds4_engine::{Account, Engine, EngineOptions};
use ds4_families::deepseek4::{DeepSeek4Codec, PromptProfile};
use ds4_model::{LoadedModel, PromptCodec, Tokenizer};
use ds4_units::TokenId;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use tower::ServiceExt;

/// Prompts as text, in the order in which their answers began.
type Prompts = Arc<Mutex<Vec<String>>>;

/// A model that says `answers[n]` after the opening of the conversation's answer number `n`, then ends.
fn scripted(answers: &[&str], tokenizer: &Arc<Tokenizer>, context: u32, prompts: Prompts) -> (FakeModel, Controls) {
    let tokens = |text: &&str| tokenizer.encode(&tokenizer.parse_trusted(text));
    let answers: Vec<Vec<TokenId>> = answers.iter().map(tokens).collect();
    let control = |spelling| tokenizer.control(spelling).unwrap();
    let (assistant, end) = (control("<｜Assistant｜>"), control("<｜end▁of▁sentence｜>"));
    let vocabulary = tokenizer.clone();
    let rule = Box::new(move |tokens: &[TokenId]| {
        // A prompt of /v1/completions is one letter in these tests.
        let opening = tokens.iter().rposition(|&token| token == assistant).map_or(2, |at| at + 2);
        let number = tokens.iter().filter(|&&token| token == assistant).count().saturating_sub(1);
        let answer = &answers[number.min(answers.len() - 1)];
        let begun = tokens.len().saturating_sub(opening);
        if begun == 0 {
            prompts.lock().unwrap().push(spelled(&vocabulary, tokens));
        }
        let next = answer.get(begun).copied().unwrap_or(end);
        (0..SIZE).map(|id| if id == next.index() { 10.0 } else { 0.0 }).collect()
    });
    FakeModel::new(rule, context)
}

/// The id of a control token.
pub(crate) fn control(spelling: &'static str) -> u64 {
    let control = tokenizer().control(spelling).expect("it is in the vocabulary");
    u64::from(control.0)
}

fn spelled(tokenizer: &Tokenizer, tokens: &[TokenId]) -> String {
    let bytes: Vec<u8> = tokens.iter().flat_map(|&token| tokenizer.token_bytes(token).unwrap()).copied().collect();
    String::from_utf8(bytes).unwrap()
}

/// A server with a scripted model.
pub(crate) struct World {
    pub(crate) api: Api,
    pub(crate) controls: Controls,
    prompts: Prompts,
    serving: Serving,
    _engine: Engine,
}

/// A whole reply.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

/// One server-sent event: its name (empty without one) and its data.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sent {
    pub(crate) name: String,
    pub(crate) data: Value,
}

impl Reply {
    /// The body of a reply that is well.
    pub(crate) fn ok(&self) -> Value {
        assert_eq!(self.status, StatusCode::OK, "{}", self.text);
        self.json()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// The events of a stream; comments are left out, `[DONE]` is a string.
    pub(crate) fn events(&self) -> Vec<Sent> {
        assert_eq!(self.headers["content-type"], "text/event-stream", "{}", self.text);
        let frames = self.text.split("\n\n").filter(|frame| !frame.is_empty() && !frame.starts_with(':'));
        frames
            .map(|frame| {
                let line = |name: &str| frame.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
                let data = line("data: ");
                Sent {
                    name: line("event: ").to_owned(),
                    data: serde_json::from_str(data).unwrap_or_else(|_| data.into()),
                }
            })
            .collect()
    }
}

impl World {
    /// Answers number n of a conversation is `answers[n]`; the last one for all that follow.
    pub(crate) fn saying(answers: &[&str]) -> World {
        World::with(answers, Settings::default())
    }

    pub(crate) fn with(answers: &[&str], settings: Settings) -> World {
        World::of(answers, settings, 200_000, 4)
    }

    pub(crate) fn of(answers: &[&str], settings: Settings, context: u32, banks: usize) -> World {
        let tokenizer = Arc::new(tokenizer());
        let codec: Arc<dyn PromptCodec> =
            Arc::new(DeepSeek4Codec::new(tokenizer.clone(), PromptProfile::Release).unwrap());
        let prompts = Prompts::default();
        let (model, controls) = scripted(answers, &tokenizer, context, prompts.clone());
        let loaded = LoadedModel { model: Box::new(model), tokenizer: tokenizer.clone(), codec: codec.clone() };
        let options = EngineOptions { banks, prefill_rows: Some(1 << 20), ..EngineOptions::default() };
        let engine = Engine::start(loaded, options, Account::unlimited()).unwrap();
        let api = Api::new(settings, None);
        let serving = Serving {
            model_id: "test-model".into(),
            engine: engine.handle(),
            tokenizer,
            codec,
            machine: Machine::default(),
        };
        api.ready(serving.clone());
        World { api, controls, prompts, serving, _engine: engine }
    }

    pub(crate) fn serving(&self) -> Serving {
        self.serving.clone()
    }

    pub(crate) async fn send(&self, path: &str, body: impl Into<Body>) -> Response {
        let request = Request::post(path).header("content-type", "application/json").body(body.into()).unwrap();
        self.api.router().oneshot(request).await.unwrap()
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Reply {
        let (head, body) = self.send(path, body.to_string()).await.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        Reply { status: head.status, headers: head.headers, text: String::from_utf8(bytes.to_vec()).unwrap() }
    }

    /// A request without a body.
    pub(crate) async fn call(&self, method: &str, path: &str) -> Reply {
        let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
        let (head, body) = self.api.router().oneshot(request).await.unwrap().into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        Reply { status: head.status, headers: head.headers, text: String::from_utf8(bytes.to_vec()).unwrap() }
    }

    /// The prompt that was computed last.
    pub(crate) fn last_prompt(&self) -> String {
        self.prompts.lock().unwrap().last().expect("an answer began").clone()
    }

    /// The prompt of a chat request, control tokens spelled out.
    pub(crate) async fn prompt(&self, body: &Value) -> String {
        let reply = self.post("/apply-template", body).await.ok();
        reply["prompt"].as_str().unwrap().to_owned()
    }
}

pub(crate) const CHAT: &str = "/v1/chat/completions";
pub(crate) const COMPLETIONS: &str = "/v1/completions";
pub(crate) const RESPONSES: &str = "/v1/responses";
pub(crate) const MESSAGES: &str = "/v1/messages";

/// A call as the model writes it: a name, and parameters with whether they are strings.
pub(crate) type Written<'a> = (&'a str, &'a [(&'a str, bool, &'a str)]);

/// A block of calls as the model writes it.
pub(crate) fn block(calls: &[Written<'_>]) -> String {
    let mut text = String::from("\n\n<｜DSML｜tool_calls>\n");
    for (name, parameters) in calls {
        text.push_str(&format!("<｜DSML｜invoke name=\"{name}\">\n"));
        for (name, is_string, value) in *parameters {
            text.push_str(&format!(
                "<｜DSML｜parameter name=\"{name}\" string=\"{is_string}\">{value}</｜DSML｜parameter>\n"
            ));
        }
        text.push_str("</｜DSML｜invoke>\n");
    }
    text.push_str("</｜DSML｜tool_calls>");
    text
}

/// The tool `bash`, as a chat request offers it.
pub(crate) fn chat_tool() -> Value {
    json!({"type": "function", "function": {"name": "bash", "description": "Runs a command", "parameters": schema()}})
}

/// As a responses request offers it.
pub(crate) fn responses_tool() -> Value {
    json!({"type": "function", "name": "bash", "description": "Runs a command", "strict": false,
        "parameters": schema()})
}

/// As a messages request offers it.
pub(crate) fn messages_tool() -> Value {
    json!({"name": "bash", "description": "Runs a command", "input_schema": schema(),
        "cache_control": {"type": "ephemeral"}})
}

fn schema() -> Value {
    json!({"type": "object", "properties": {"command": {"type": "string"}, "limit": {"type": "integer"}},
        "required": ["command"]})
}
