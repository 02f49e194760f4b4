//! A client without a socket.

use crate::support::Bench;
use crate::support::model::{Controls, script_rule};
use crate::support::vocabulary::tokens;
use axum::body::Body;
use axum::response::Response;
use ds4_api::{Api, Machine, Serving, Settings};
use ds4_engine::EngineOptions;
use ds4_model::ThinkingMode;
use ds4_units::Tokens;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::Value;
use tower::ServiceExt;

pub(crate) const CHAT: &str = "/v1/chat/completions";

/// A server with a scripted model.
pub(crate) struct Server {
    pub(crate) api: Api,
    pub(crate) bench: Bench,
}

/// A whole reply.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }
}

pub(crate) fn settings() -> Settings {
    Settings { max_tokens: Tokens(200), thinking: ThinkingMode::Off, ..Settings::default() }
}

impl Server {
    /// A ready server whose model gives `answer` to everything.
    pub(crate) fn saying(answer: &str) -> Server {
        Server::with(answer, settings())
    }

    pub(crate) fn with(answer: &str, settings: Settings) -> Server {
        Server::with_banks(answer, settings, 2)
    }

    pub(crate) fn with_banks(answer: &str, settings: Settings, banks: usize) -> Server {
        Server::with_options(answer, settings, EngineOptions { banks, ..EngineOptions::default() })
    }

    pub(crate) fn with_options(answer: &str, settings: Settings, options: EngineOptions) -> Server {
        Server::over(Bench::new(script_rule(tokens(answer)), 400, options), settings)
    }

    /// With memory for this many tokens of conversations.
    pub(crate) fn with_room(answer: &str, room: u64) -> Server {
        let (bench, _) = Bench::with_room(script_rule(tokens(answer)), 400, EngineOptions::default(), room);
        Server::over(bench, settings())
    }

    fn over(bench: Bench, settings: Settings) -> Server {
        let server = Server { api: Api::new(settings, None), bench };
        server.api.ready(server.serving());
        server
    }

    pub(crate) fn serving(&self) -> Serving {
        Serving {
            model_id: "test-model".into(),
            engine: self.bench.engine.handle(),
            tokenizer: self.bench.tokenizer.clone(),
            codec: self.bench.codec.clone(),
            machine: Machine::default(),
        }
    }

    pub(crate) fn controls(&self) -> &Controls {
        &self.bench.controls
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Response {
        self.api.router().oneshot(request).await.unwrap()
    }

    pub(crate) async fn reply(&self, request: Request<Body>) -> Reply {
        let response = self.send(request).await;
        let (head, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        Reply { status: head.status, headers: head.headers, text }
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.reply(Request::get(path).body(Body::empty()).unwrap()).await
    }

    pub(crate) async fn post(&self, body: impl Into<Body>) -> Reply {
        self.reply(post(body)).await
    }
}

pub(crate) fn post(body: impl Into<Body>) -> Request<Body> {
    Request::post(CHAT).header("content-type", "application/json").body(body.into()).unwrap()
}
