//! Clients as they should be: they ask, read everything as it comes, and ask again.

use ds4_tests::stream;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// What good clients got.
#[derive(Default)]
pub(crate) struct Good {
    pub(crate) answered: u64,
    pub(crate) tokens: u64,
    /// What went wrong, if anything.
    pub(crate) failures: Vec<String>,
    pub(crate) slowest: Duration,
}

/// One answer.
pub(crate) struct Answer {
    pub(crate) gaps: Vec<Duration>,
    tokens: u64,
    took: Duration,
    failure: Option<String>,
}

impl Good {
    pub(crate) fn take(&mut self, answer: &Answer) {
        self.tokens += answer.tokens;
        self.slowest = self.slowest.max(answer.took);
        match &answer.failure {
            Some(failure) => self.failures.push(failure.clone()),
            None => self.answered += 1,
        }
    }
}

/// A text that rambles on: hot enough that the model hardly ever ends it.
pub(crate) fn request(seed: u64, tokens: u64) -> Value {
    let name = ["Clara", "Bimol", "Peru", "Lima", "Oslo"][seed as usize % 5];
    json!({
        "prompt": format!("{seed} Hello, my name is {name}. What is the capital of {name}? "),
        "max_tokens": tokens, "temperature": 1.9, "min_p": 0, "top_p": 1, "seed": seed + 1, "stream": true,
    })
}

/// Asks once and reads the answer to its end.
pub(crate) fn ask(address: SocketAddr, seed: u64) -> Answer {
    let began = Instant::now();
    let mut answer = Answer { gaps: Vec::new(), tokens: 0, took: Duration::ZERO, failure: None };
    if let Err(error) = read(address, seed, &mut answer) {
        answer.failure = Some(format!("{error:#}"));
    }
    answer.took = began.elapsed();
    answer
}

fn read(address: SocketAddr, seed: u64, answer: &mut Answer) -> anyhow::Result<()> {
    let events = stream(address, "/v1/completions", &request(seed, 48).to_string())?;
    let (mut last, mut finished) = (None::<Instant>, false);
    for data in events {
        let data = data?;
        if data == "[DONE]" {
            anyhow::ensure!(finished, "[DONE] without a finish reason");
            return Ok(());
        }
        let chunk: Value = serde_json::from_str(&data)?;
        anyhow::ensure!(chunk["error"].is_null(), "{}", chunk["error"]);
        let choice = &chunk["choices"][0];
        finished |= choice["finish_reason"].is_string();
        if choice["text"].as_str().is_some_and(|text| !text.is_empty()) {
            let now = Instant::now();
            answer.gaps.extend(last.map(|last| now - last));
            answer.tokens += 1;
            last = Some(now);
        }
    }
    anyhow::bail!("the stream ended without [DONE]")
}
