//! Clients as they are: they leave, they do not read, they send too much, too little, or nonsense.

use crate::good;
use ds4_tests::{Reply, post, stream};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a slow reader reads nothing.
const SLOW: Duration = Duration::from_secs(8);

/// What bad clients did and how they were answered.
#[derive(Default)]
pub(crate) struct Bad {
    /// By what they did.
    pub(crate) deeds: BTreeMap<&'static str, u64>,
    /// By status, type and code.
    pub(crate) refusals: BTreeMap<String, u64>,
    /// Replies that say too little.
    pub(crate) untyped: Vec<String>,
}

/// One bad deed.
pub(crate) struct End {
    deed: &'static str,
    reply: Option<Reply>,
}

impl Bad {
    pub(crate) fn take(&mut self, end: End) {
        *self.deeds.entry(end.deed).or_default() += 1;
        let Some(reply) = end.reply.filter(|reply| reply.status != 200) else { return };
        let error = serde_json::from_str::<Value>(&reply.body).map(|body| body["error"].clone()).unwrap_or_default();
        let text = |field: &str| error[field].as_str().unwrap_or_default().to_owned();
        let retry = reply.headers.get("retry-after").is_some();
        let comes_back = matches!(reply.status, 429 | 503);
        if text("message").is_empty()
            || text("type").is_empty()
            || comes_back != retry
            || reply.status >= 500 && !comes_back
        {
            self.untyped.push(format!("{} {} {}", end.deed, reply.status, reply.body));
        }
        *self.refusals.entry(format!("{} {} {}", reply.status, text("type"), text("code"))).or_default() += 1;
    }
}

/// Misbehaves once, as the seed says.
pub(crate) fn behave(address: SocketAddr, seed: u64, over: &AtomicBool) -> End {
    let body = |body: &str| post(address, "/v1/chat/completions", body).ok();
    let (deed, reply) = match seed % 8 {
        0 | 1 => ("left in the middle", leave(address, seed)),
        2 => ("left at once", leave_at_once(address, seed)),
        3 => ("read nothing", read_nothing(address, seed, over)),
        4 => ("sent too much", too_much(address)),
        5 => ("sent nonsense", body(&"{\"messages\": [".repeat(1 + seed as usize % 9))),
        6 => ("asked for too much", body(&long_prompt())),
        _ => ("sent half a request", half(address, over)),
    };
    // Nobody hammers on a door for fun.
    std::thread::sleep(Duration::from_millis(20));
    End { deed, reply }
}

/// Reads a few pieces and goes.
fn leave(address: SocketAddr, seed: u64) -> Option<Reply> {
    let body = good::request(seed, 400).to_string();
    let events = stream(address, "/v1/completions", &body).ok()?;
    events.take(seed as usize / 8 % 12).for_each(drop);
    None
}

/// Goes before the answer begins.
fn leave_at_once(address: SocketAddr, seed: u64) -> Option<Reply> {
    let body = good::request(seed, 400).to_string();
    let mut connection = TcpStream::connect(address).ok()?;
    connection.write_all(head("/v1/completions", body.len()).as_bytes()).ok()?;
    connection.write_all(body.as_bytes()).ok()?;
    std::thread::sleep(Duration::from_millis(seed / 8 % 30));
    None
}

/// Asks for a great deal and reads nothing of it for a while.
fn read_nothing(address: SocketAddr, seed: u64, over: &AtomicBool) -> Option<Reply> {
    let mut body = good::request(seed, 3000);
    body["logprobs"] = 5.into();
    let body = body.to_string();
    let mut connection = TcpStream::connect(address).ok()?;
    connection.write_all(head("/v1/completions", body.len()).as_bytes()).ok()?;
    connection.write_all(body.as_bytes()).ok()?;
    pause(SLOW, over);
    None
}

/// Announces more than any body may have.
fn too_much(address: SocketAddr) -> Option<Reply> {
    let mut connection = TcpStream::connect(address).ok()?;
    connection.write_all(head("/v1/chat/completions", 80 << 20).as_bytes()).ok()?;
    connection.set_read_timeout(Some(Duration::from_secs(30))).ok()?;
    let mut answer = Vec::new();
    let mut part = [0; 4096];
    while let Ok(read @ 1..) = connection.read(&mut part) {
        answer.extend_from_slice(&part[..read]);
    }
    Reply::parse(&String::from_utf8_lossy(&answer))
}

/// More than the context holds.
fn long_prompt() -> String {
    serde_json::json!({ "messages": [{ "role": "user", "content": "a long story ".repeat(9000) }] }).to_string()
}

/// Sends a head and the beginning of a body, and waits.
fn half(address: SocketAddr, over: &AtomicBool) -> Option<Reply> {
    let mut connection = TcpStream::connect(address).ok()?;
    connection.write_all(head("/v1/chat/completions", 1000).as_bytes()).ok()?;
    connection.write_all(b"{\"messages\"").ok()?;
    pause(Duration::from_secs(2), over);
    None
}

fn pause(time: Duration, over: &AtomicBool) {
    let until = Instant::now() + time;
    while Instant::now() < until && !over.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn head(path: &str, length: usize) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
         connection: close\r\n\r\n"
    )
}
