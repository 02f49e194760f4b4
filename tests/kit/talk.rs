//! A conversation with the model in the repository, whose answers are known.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::worker::Worker;

/// What is asked, and what the reference answers.
pub const TURNS: [(&str, &str); 4] = [
    ("Hello, my name is Clara.", "Ok, I will remember that."),
    ("My dog is called Bimol.", "Ok, I will remember that."),
    ("What is the capital of Peru?", "The capital of Peru is Lima."),
    ("What is my dog's name?", "Your dog is called Bimol."),
];

/// The messages up to and with question `last`.
pub fn messages(last: usize) -> Value {
    let mut messages = Vec::new();
    for (question, answer) in &TURNS[..last] {
        messages.push(json!({"role": "user", "content": question}));
        messages.push(json!({"role": "assistant", "content": answer}));
    }
    messages.push(json!({"role": "user", "content": TURNS[last].0}));
    json!(messages)
}

/// What came of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The text.
    pub text: String,
    /// How its bank began.
    pub reuse: String,
    /// Prompt tokens that needed no computing.
    pub cached: u64,
    /// Prompt tokens that were computed.
    pub computed: u64,
}

impl Answer {
    /// Asks and listens to the end.
    pub fn to(worker: &Worker, messages: &Value) -> Result<Answer> {
        let reply = worker.chat(messages)?;
        let timings = &reply["timings"];
        let number = |name: &str| timings[name].as_u64().with_context(|| format!("no {name} in {reply}"));
        let word = |value: &Value| value.as_str().map(str::to_owned).with_context(|| format!("no text in {reply}"));
        Ok(Answer {
            text: word(&reply["choices"][0]["message"]["content"])?,
            reuse: word(&timings["reuse_kind"])?,
            cached: number("prefill_cached_tokens")?,
            computed: number("prefill_tokens")?,
        })
    }
}
