//! A plain client: whole replies, event streams, and bytes as they are.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::OnceLock;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use ureq::http::{HeaderMap, HeaderName, HeaderValue, Response};
use ureq::{Agent, Body, BodyReader};

use crate::process::PATIENCE;

/// A whole reply.
pub struct Reply {
    /// The status code.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: String,
}

impl Reply {
    /// Reads what a server sent as it is: head and body, up to where the connection was closed.
    pub fn parse(text: &str) -> Option<Reply> {
        let (head, body) = text.split_once("\r\n\r\n")?;
        let mut lines = head.lines();
        let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
        let mut headers = HeaderMap::new();
        for line in lines {
            let (name, value) = line.split_once(':')?;
            headers.insert(HeaderName::try_from(name).ok()?, HeaderValue::try_from(value.trim()).ok()?);
        }
        Some(Reply { status, headers, body: body.to_owned() })
    }
}

fn agent() -> &'static Agent {
    static AGENT: OnceLock<Agent> = OnceLock::new();
    AGENT.get_or_init(|| {
        // No connection outlives its request: a test that counts descriptors should see only what it opened.
        let config = Agent::config_builder().http_status_as_error(false).max_idle_connections(0);
        config.timeout_global(Some(PATIENCE)).build().into()
    })
}

fn reply(mut response: Response<Body>) -> Result<Reply> {
    let body = response.body_mut().read_to_string().context("the reply's body")?;
    Ok(Reply { status: response.status().as_u16(), headers: response.headers().clone(), body })
}

fn send(address: SocketAddr, path: &str, body: &str) -> Result<Response<Body>> {
    let request = agent().post(format!("http://{address}{path}")).header("content-type", "application/json");
    request.send(body).with_context(|| format!("POST {path}"))
}

/// GET `path`.
pub fn get(address: SocketAddr, path: &str) -> Result<Reply> {
    reply(agent().get(format!("http://{address}{path}")).call().with_context(|| format!("GET {path}"))?)
}

/// GET `path` for JSON, where there is text for people too.
pub(crate) fn get_json(address: SocketAddr, path: &str) -> Result<String> {
    let request = agent().get(format!("http://{address}{path}")).header("accept", "application/json");
    Ok(reply(request.call().with_context(|| format!("GET {path}"))?)?.body)
}

/// POST a JSON `body` to `path`.
pub fn post(address: SocketAddr, path: &str, body: &str) -> Result<Reply> {
    reply(send(address, path, body)?)
}

/// POST `body` to `path` for a stream of events. An error when the server answers with anything else.
pub fn stream(address: SocketAddr, path: &str, body: &str) -> Result<Events> {
    let response = send(address, path, body)?;
    let kind = response.headers().get("content-type").cloned();
    if kind.as_ref().is_none_or(|kind| kind != "text/event-stream") {
        let reply = reply(response)?;
        anyhow::bail!("{path} answered {} {}", reply.status, reply.body);
    }
    Ok(Events { reader: BufReader::new(response.into_body().into_reader()) })
}

/// Sends `bytes` as they are and returns everything that comes back until the server closes. The sending side stays
/// open: to the server a closed one is a client that left.
pub fn raw(address: SocketAddr, bytes: &[u8]) -> Result<String> {
    let mut connection = TcpStream::connect(address)?;
    connection.set_read_timeout(Some(PATIENCE))?;
    connection.write_all(bytes)?;
    let mut answer = Vec::new();
    connection.read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// The `data:` payloads of a stream of server-sent events, in order. Dropping it closes the connection.
pub struct Events {
    reader: BufReader<BodyReader<'static>>,
}

impl Iterator for Events {
    type Item = Result<String>;

    fn next(&mut self) -> Option<Result<String>> {
        let mut line = String::new();
        loop {
            line.clear();
            match self.reader.read_line(&mut line) {
                Ok(0) => return None,
                Ok(_) => {}
                Err(error) => return Some(Err(error.into())),
            }
            if let Some(data) = line.strip_prefix("data:") {
                return Some(Ok(data.trim().to_owned()));
            }
        }
    }
}

impl Events {
    /// Blocks for the next piece of answer text; `None` after `[DONE]`. An error when the stream breaks off before it.
    pub fn next_text(&mut self) -> Result<Option<String>> {
        loop {
            let data = self.next().context("the stream ended without [DONE]")??;
            if data == "[DONE]" {
                return Ok(None);
            }
            let chunk: Value = serde_json::from_str(&data).with_context(|| format!("not JSON: {data}"))?;
            ensure!(chunk["error"].is_null(), "{}", chunk["error"]);
            if let Some(text) = chunk["choices"][0]["delta"]["content"].as_str().filter(|text| !text.is_empty()) {
                return Ok(Some(text.to_owned()));
            }
        }
    }

    /// Blocks for the rest of the answer's text.
    pub fn rest_of_text(&mut self) -> Result<String> {
        let mut text = String::new();
        while let Some(piece) = self.next_text()? {
            text.push_str(&piece);
        }
        Ok(text)
    }
}
