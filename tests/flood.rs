//! Large bodies from many clients at once: refused as the budget says, and memory stays within its bounds.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Barrier;
use std::thread;

use anyhow::{Context, Result, ensure};
use ds4_tests::{PATIENCE, Worker, demo_model, peak_memory};

const MIB: usize = 1 << 20;
/// What the server takes for one body, and for all bodies together.
const BODY: usize = 64 * MIB;
const BODIES: usize = 256 * MIB;
const CLIENTS: usize = 50;

/// A client with a body of 64 MiB, which asks before it sends.
struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    /// Announces the body and waits for the verdict: 100 to go on, or the status of a refusal.
    fn announce(address: SocketAddr) -> Result<(Client, u16)> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             expect: 100-continue\r\ncontent-length: {BODY}\r\nconnection: close\r\n\r\n"
        );
        let mut client = Client { stream: BufReader::new(stream) };
        client.stream.get_mut().write_all(head.as_bytes())?;
        let status = client.status()?;
        Ok((client, status))
    }

    fn status(&mut self) -> Result<u16> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let status = line.split(' ').nth(1).with_context(|| format!("a status line, not {line:?}"))?;
        Ok(status.parse()?)
    }

    fn rest(&mut self) -> Result<String> {
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest)?;
        Ok(String::from_utf8_lossy(&rest).into_owned())
    }

    /// Sends the body: `text` around a filling of `fill`.
    fn send(&mut self, (before, after): (&str, &str), fill: u8) -> Result<()> {
        let chunk = vec![fill; MIB];
        let out = self.stream.get_mut();
        out.write_all(before.as_bytes())?;
        let mut left = BODY - before.len() - after.len();
        while left > 0 {
            let len = left.min(MIB);
            out.write_all(&chunk[..len])?;
            left -= len;
        }
        out.write_all(after.as_bytes())?;
        Ok(())
    }
}

/// Fifty clients at once; returns what became of the admitted ones.
fn flood(worker: &Worker, frame: (&str, &str), fill: u8) -> Result<Vec<u16>> {
    let decided = Barrier::new(CLIENTS);
    let replies = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                scope.spawn(|| -> Result<Option<u16>> {
                    let announced = Client::announce(worker.address());
                    decided.wait();
                    let (mut client, status) = announced?;
                    if status != 100 {
                        let rest = client.rest()?;
                        ensure!(status == 429 && rest.to_lowercase().contains("retry-after: 5"), "{status} {rest}");
                        return Ok(None);
                    }
                    client.stream.read_line(&mut String::new())?;
                    client.send(frame, fill)?;
                    client.status().map(Some)
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().expect("no panic")).collect::<Result<Vec<_>>>()
    })?;
    Ok(replies.into_iter().flatten().collect())
}

/// What a worker may take beyond its idle size: the bodies, and as much again where they are parsed and rendered, two at
/// a time on two cores.
const MEMORY: usize = 3 * BODIES;

#[test]
fn fifty_bodies_of_64_mib_are_refused_beyond_the_budget_and_memory_keeps_within_it() -> Result<()> {
    let worker = Worker::start(&demo_model(), 0, &[])?;
    worker.wait_until_healthy()?;
    let idle = peak_memory(worker.process().pid())?;
    // A small request in much white space is answered.
    let hello = r#"{"max_tokens": 1, "messages": [{"role": "user", "content": "Hello"}]"#;
    let admitted = flood(&worker, (hello, "}"), b' ')?;
    assert_eq!(admitted, [200; BODIES / BODY]);
    let padded = peak_memory(worker.process().pid())?;
    ensure!(padded - idle < BODIES + BODIES / 4, "bodies alone took {} MiB", (padded - idle) / MIB);
    // One word of 64 MiB is found too long for the context without being tokenised.
    let word = r#"{"messages": [{"role": "user", "content": ""#;
    let admitted = flood(&worker, (word, "\"}]}"), b'a')?;
    assert_eq!(admitted, [400; BODIES / BODY]);
    let filled = peak_memory(worker.process().pid())?;
    ensure!(filled - idle < MEMORY, "words took {} MiB", (filled - idle) / MIB);
    println!("peak memory in MiB: idle {}, padded {}, words {}", idle / MIB, padded / MIB, filled / MIB);
    // Whoever found no room was counted.
    ensure!(worker.stat("sheds", "queue_bytes")? == 2 * (CLIENTS - BODIES / BODY) as u64);
    ensure!(worker.get("/health")?.status == 200);
    Ok(())
}
