//! One client and the server it talks to. Calls block the calling thread.

use crate::error::LoadgenError;
use crate::sse::{self, Line, Usage};
use serde_json::json;
use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};
use ureq::http::Response;
use ureq::{Agent, Body};

/// Connections to one server.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    url: String,
    authorization: Option<String>,
    agent: Agent,
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum End {
    /// With a finish reason.
    Answered,
    /// With an HTTP status other than 200.
    Status(u16),
    /// With an error event in the stream.
    StreamError(String),
    /// Without an end: the connection broke, or the time was up.
    Broken(String),
}

/// A piece of an answer. Tokens whose characters are not complete come with a later piece.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) at: Instant,
    /// `None` when the server does not say.
    pub(crate) tokens: Option<usize>,
}

/// What one request felt.
#[derive(Clone, Debug)]
pub(crate) struct Felt {
    pub(crate) pieces: Vec<Piece>,
    /// When the stream was over.
    pub(crate) ended: Instant,
    pub(crate) usage: Usage,
    pub(crate) end: End,
}

impl Server {
    pub(crate) fn new(url: &str, key: Option<&str>, timeout: Duration) -> Server {
        let config = Agent::config_builder().timeout_global(Some(timeout)).http_status_as_error(false);
        Server {
            url: url.trim_end_matches('/').to_owned(),
            authorization: key.map(|key| format!("Bearer {key}")),
            agent: config.build().into(),
        }
    }

    /// Token ids of a text.
    pub(crate) fn tokenize(&self, text: &str) -> Result<Vec<u64>, LoadgenError> {
        let url = format!("{}/tokenize", self.url);
        let mut response = self
            .post(&url, &json!({ "content": text }).to_string())
            .map_err(|error| LoadgenError::Unreachable { url: url.clone(), cause: error.to_string() })?;
        let status = response.status().as_u16();
        let body = response.body_mut().with_config().limit(256 << 20).read_to_string();
        let body = body.map_err(|error| LoadgenError::Unreachable { url: url.clone(), cause: error.to_string() })?;
        if status != 200 {
            return Err(LoadgenError::Refused { url, status, body });
        }
        let answer: serde_json::Value = serde_json::from_str(&body).unwrap_or_default();
        let ids: Option<Vec<u64>> =
            answer["tokens"].as_array().and_then(|ids| ids.iter().map(|id| id.as_u64()).collect());
        ids.filter(|ids| !ids.is_empty()).ok_or(LoadgenError::NoTokens { url, body: body.chars().take(200).collect() })
    }

    /// Sends a prompt and reads the answer to its end.
    pub(crate) fn complete(&self, prompt: &[u64], output_tokens: u32) -> Felt {
        let body = json!({
            "prompt": prompt, "max_tokens": output_tokens, "temperature": 0,
            "stream": true, "stream_options": { "include_usage": true }, "return_token_ids": true,
        });
        let mut felt = Felt {
            pieces: Vec::new(),
            ended: Instant::now(),
            usage: Usage::default(),
            end: End::Broken("the stream ended early".into()),
        };
        match self.post(&format!("{}/v1/completions", self.url), &body.to_string()) {
            Ok(response) if response.status() == 200 => felt.read(response),
            Ok(response) => felt.end = End::Status(response.status().as_u16()),
            Err(error) => felt.end = End::Broken(error.to_string()),
        }
        felt.ended = Instant::now();
        felt
    }

    fn post(&self, url: &str, body: &str) -> Result<Response<Body>, ureq::Error> {
        let request = self.agent.post(url).header("Content-Type", "application/json");
        let request = match &self.authorization {
            Some(authorization) => request.header("Authorization", authorization),
            None => request,
        };
        request.send(body)
    }
}

impl Felt {
    /// When pieces came, and the tokens of each. Where the server does not count them all pieces have the same share.
    pub(crate) fn arrivals(&self) -> impl Iterator<Item = (Instant, f64)> + Clone {
        let share = self.usage.completion as f64 / self.pieces.len() as f64;
        self.pieces.iter().map(move |piece| (piece.at, piece.tokens.map_or(share, |tokens| tokens as f64)))
    }

    fn read(&mut self, response: Response<Body>) {
        for line in BufReader::new(response.into_body().into_reader()).lines() {
            let line = match line {
                Ok(line) => line,
                Err(error) => return self.end = End::Broken(error.to_string()),
            };
            match sse::read(&line) {
                Line::Piece { tokens } => self.pieces.push(Piece { at: Instant::now(), tokens }),
                Line::Object { finished, usage } => {
                    self.usage = usage.unwrap_or(self.usage);
                    if finished {
                        self.end = End::Answered;
                    }
                }
                Line::Error(message) => return self.end = End::StreamError(message),
                Line::Done => return,
                Line::Other => {}
            }
        }
    }
}
