//! `--trace`: every request with its prompt and its answer, one JSON object a line. The one place where what people
//! wrote leaves the process other than as a reply. Headers are not written, so keys are not.

use crate::answer::{Answer, Call};
use crate::caller::Caller;
use crate::generate::spelled;
use crate::phase::Serving;
use crate::state::unix_time;
use ds4_engine::{Finished, RequestFault};
use ds4_model::Prompt;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, Write};
use std::sync::mpsc::{SyncSender, sync_channel};

/// Lines that wait to be written. What comes when so many wait is left out, with a warning: a slow disk must not hold
/// up answers.
const WAITING_MAX: usize = 256;

/// What is written down of requests.
#[derive(Default)]
pub struct Traces {
    /// All of them.
    pub all: Option<Trace>,
    /// Those whose answers announce a tool call and make none.
    pub slips: Option<Trace>,
}

impl From<Option<Trace>> for Traces {
    fn from(all: Option<Trace>) -> Traces {
        Traces { all, slips: None }
    }
}

/// Where traces go.
pub struct Trace {
    lines: SyncSender<Value>,
}

impl Trace {
    /// Writes to `file`, on a thread of its own.
    ///
    /// # Errors
    /// When the operating system gives no thread.
    pub fn new(mut file: File) -> io::Result<Trace> {
        let (lines, waiting) = sync_channel::<Value>(WAITING_MAX);
        std::thread::Builder::new().name("trace".into()).spawn(move || {
            for line in waiting {
                if let Err(error) = file.write_all(format!("{line}\n").as_bytes()) {
                    tracing::warn!(%error, "cannot write the trace");
                }
            }
        })?;
        Ok(Trace { lines })
    }

    pub(crate) fn write(&self, line: Value) {
        if self.lines.try_send(line).is_err() {
            tracing::warn!("a trace line was left out: the disk is too slow");
        }
    }
}

/// A request on its way to its line.
#[derive(Clone)]
pub(crate) struct Entry(Value);

impl Entry {
    pub(crate) fn new(caller: &Caller, path: &str, body: Value, prompt: &Prompt, serving: &Serving) -> Entry {
        Entry(json!({
            "request_id": caller.request_id,
            "path": path,
            "time": unix_time(),
            "request": body,
            "prompt": spelled(prompt, serving),
        }))
    }

    pub(crate) fn finished(self, answer: &Answer, finished: &Finished) -> Value {
        let mut line = self.ended("completed", answer);
        line["finish"] = json!(format!("{:?}", finished.reason));
        line["usage"] = crate::usage::openai(&finished.usage);
        line["timings"] = crate::usage::timings(&finished.timings, &finished.usage);
        if let Some(outcome) = finished.answer.outcome {
            line["tool_calls_result"] = outcome.name().into();
        }
        if let Some(fault) = &finished.answer.fault {
            line["tool_calls_fault"] = json!({"problem": fault.problem, "excerpt": fault.excerpt.as_str()});
        }
        line
    }

    pub(crate) fn failed(self, answer: &Answer, fault: &RequestFault) -> Value {
        let mut line = self.ended("failed", answer);
        line["fault"] = fault.to_string().into();
        line
    }

    pub(crate) fn canceled(self, answer: &Answer) -> Value {
        self.ended("canceled", answer)
    }

    fn ended(self, outcome: &str, answer: &Answer) -> Value {
        let call = |call: &Call| json!({"name": call.name, "arguments": call.arguments, "complete": call.complete});
        let mut line = self.0;
        line["outcome"] = outcome.into();
        line["reasoning"] = answer.reasoning.as_str().into();
        line["content"] = answer.content.as_str().into();
        line["calls"] = answer.calls.iter().map(call).collect();
        line
    }
}
