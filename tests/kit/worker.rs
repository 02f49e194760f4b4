//! A worker and what a client can ask of it.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::binaries::command;
use crate::http::{self, Events, Reply};
use crate::owner::Owner;
use crate::process::{Finished, PATIENCE, Process};

/// A `ds4-server` on a loopback port of its own. Dropping it kills the worker.
pub struct Worker {
    process: Process,
    address: SocketAddr,
}

impl Worker {
    /// Starts a worker for `model` on a loopback port, 0 for any free one, and blocks until it listens, which it does
    /// before it has its weights.
    pub fn start(model: &Path, port: u16, arguments: &[&OsStr]) -> Result<Worker> {
        let mut server = command("ds4-server")?;
        server.arg("-m").arg(model).args(["--host", "127.0.0.1", "--port", &port.to_string()]).args(arguments);
        let process = Process::start(server)?;
        let address = process.wait_for("where it listens", |line| {
            let (_, rest) = line.split_once("listening")?;
            rest.split(|c: char| !(c.is_ascii_digit() || c == '.' || c == ':')).find_map(|word| word.parse().ok())
        })?;
        Ok(Worker { process, address })
    }

    /// Starts a worker that takes its weights from `owner`, and blocks until it serves.
    pub fn attached(model: &Path, owner: &Owner) -> Result<Worker> {
        let worker = Worker::start(model, 0, &["--weights".as_ref(), owner.manifest()?.as_os_str()])?;
        worker.wait_until_healthy()?;
        Ok(worker)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Blocks until `/health` says ok, and returns the time from the worker's execution to the first byte of that
    /// answer.
    pub fn wait_until_healthy(&self) -> Result<Duration> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline && !self.process.has_ended() {
            if let Ok(reply) = self.get("/health") {
                if reply.status == 200 {
                    return Ok(self.process.age());
                }
                ensure!(reply.status == 503, "/health answered {} {}", reply.status, reply.body);
            }
            // The state may change at any moment and announces itself nowhere else: ask again soon.
            std::thread::sleep(Duration::from_millis(1));
        }
        bail!("the worker never became healthy; it said:\n{}", self.process.output())
    }

    /// GET `path`.
    pub fn get(&self, path: &str) -> Result<Reply> {
        http::get(self.address, path)
    }

    /// GET `path` for JSON, where there is text for people too.
    pub fn get_json(&self, path: &str) -> Result<String> {
        http::get_json(self.address, path)
    }

    /// POST `body` to `path`.
    pub fn post(&self, path: &str, body: &str) -> Result<Reply> {
        http::post(self.address, path, body)
    }

    /// The greedy answer to a conversation, not thinking: text, usage and all, as the API gives it.
    pub fn chat(&self, messages: &Value) -> Result<Value> {
        let reply = self.post("/v1/chat/completions", &chat_request(messages, false).to_string())?;
        ensure!(reply.status == 200, "{} {}", reply.status, reply.body);
        serde_json::from_str(&reply.body).with_context(|| format!("not JSON: {}", reply.body))
    }

    /// The text of the greedy answer to a conversation.
    pub fn answer(&self, messages: &Value) -> Result<String> {
        let reply = self.chat(messages)?;
        let text = reply["choices"][0]["message"]["content"].as_str();
        Ok(text.with_context(|| format!("no content in {reply}"))?.to_owned())
    }

    /// The number at this place of `/v1/stats`.
    pub fn stat(&self, section: &str, name: &str) -> Result<u64> {
        let reply: Value = serde_json::from_str(&self.get_json("/v1/stats")?)?;
        reply[section][name].as_u64().with_context(|| format!("no {section}.{name} in {reply}"))
    }

    /// Blocks until a number of `/v1/stats` is what it should be.
    pub fn wait_for_stat(&self, section: &str, name: &str, is_it: impl Fn(u64) -> bool) -> Result<u64> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            // A section comes with what it is of.
            let seen = self.stat(section, name);
            match seen {
                Ok(value) if is_it(value) => return Ok(value),
                seen if Instant::now() > deadline => {
                    bail!("{section}.{name} is {seen:?}; it said:\n{}", self.process.output())
                }
                _ => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// The greedy answer to a conversation as a stream of events.
    pub fn stream(&self, messages: &Value) -> Result<Events> {
        http::stream(self.address, "/v1/chat/completions", &chat_request(messages, true).to_string())
    }

    /// Blocks until the worker ends, however long that takes.
    pub fn wait_for_end(self) -> Result<Finished> {
        self.process.wait_for_end()
    }

    /// Kills the worker with SIGKILL.
    pub fn kill(self) -> Result<()> {
        self.process.kill()
    }

    /// Stops the worker with SIGTERM.
    pub fn terminate(self) -> Result<Finished> {
        self.process.terminate()
    }
}

/// The body of a greedy chat request without thinking.
fn chat_request(messages: &Value, stream: bool) -> Value {
    json!({
        "messages": messages,
        "temperature": 0,
        "thinking": {"type": "disabled"},
        "stream": stream,
    })
}
