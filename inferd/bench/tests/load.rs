//! The load generator as a process, against a server that misbehaves on purpose.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const EVENTS: &str = "data: {\"choices\":[{\"text\":\"a\",\"finish_reason\":null}]}\n\n: decode\n\n\
    data: {\"choices\":[{\"text\":\"b\",\"finish_reason\":null}]}\n\n";
const END: &str = "data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"length\"}]}\n\n\
    data: {\"choices\":[],\"usage\":{\"prompt_tokens\":32,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n";

/// What the server does with its n-th completion.
type Answer = fn(usize) -> String;

/// Serves in the background for as long as the test runs; returns its address.
fn serve(answer: Answer) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let completions = Arc::new(AtomicUsize::new(0));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let completions = completions.clone();
            std::thread::spawn(move || reply(stream, answer, &completions));
        }
    });
    url
}

fn reply(stream: TcpStream, answer: Answer, completions: &AtomicUsize) {
    let mut reader = BufReader::new(stream);
    let (mut path, mut length) = (String::new(), 0);
    for line in reader.by_ref().lines().map_while(Result::ok).take_while(|line| !line.is_empty()) {
        if let Some(rest) = line.strip_prefix("POST ") {
            path = rest.split(' ').next().unwrap_or_default().to_owned();
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let text = match path.as_str() {
        "/tokenize" => {
            let ids: Vec<String> = (0..64).map(|id: u32| id.to_string()).collect();
            ok("application/json", &format!("{{\"tokens\":[{}]}}", ids.join(",")))
        }
        _ => {
            let prompt: serde_json::Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(prompt["prompt"].as_array().unwrap().len(), 32, "a prompt has the tokens asked for");
            answer(completions.fetch_add(1, Ordering::SeqCst))
        }
    };
    // The client may have given up.
    let _ = reader.get_mut().write_all(text.as_bytes());
}

fn ok(kind: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n{body}")
}

fn loadgen(url: &str, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ds4-loadgen"))
        .args(["--url", url, "--prompt-tokens", "32", "--requests", "8", "--clients", "3"])
        .args(arguments)
        .output()
        .unwrap()
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

#[test]
fn every_answered_request_is_in_the_table_and_in_the_file_and_in_the_picture() {
    let url = serve(|_| ok("text/event-stream", &format!("{EVENTS}{END}")));
    let folder = tempfile::tempdir().unwrap();
    let (csv, plot) = (folder.path().join("run.csv"), folder.path().join("run.svg"));
    let output = loadgen(&url, &["--rate", "200", "--csv", csv.to_str().unwrap(), "--plot", plot.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    let table = stdout(&output);
    assert!(table.contains("8 answered, 0 failed"), "{table}");
    assert!(table.contains("prompt tokens     256 (0 cached)") && table.contains("output tokens     16,"), "{table}");
    let lines: Vec<String> = std::fs::read_to_string(csv).unwrap().lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), 9);
    assert!(lines[1].starts_with("0,answered,") && lines[8].ends_with(",32,0,2"), "{lines:?}");
    assert!(std::fs::read_to_string(plot).unwrap().contains("<polyline"));
}

#[test]
fn refusals_broken_streams_and_errors_are_counted_by_kind_and_not_as_latencies() {
    let url = serve(|index| match index % 4 {
        0 => "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".into(),
        1 => ok("text/event-stream", EVENTS),
        2 => ok("text/event-stream", "data: {\"error\":{\"message\":\"out of pages\"}}\n\n"),
        _ => ok("text/event-stream", &format!("{EVENTS}{END}")),
    });
    let output = loadgen(&url, &[]);
    assert_eq!(output.status.code(), Some(1));
    let table = stdout(&output);
    for expected in [
        "2 answered, 6 failed",
        "2 x HTTP 503",
        "2 x broken: the stream ended early",
        "2 x error in the stream: out of pages",
    ] {
        assert!(table.contains(expected), "{expected}: {table}");
    }
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let output = loadgen("http://127.0.0.1:9", &[]);
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("http://127.0.0.1:9/tokenize") && error.contains("is ds4-server running"), "{error}");
}
