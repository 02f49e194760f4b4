//! What the model wrote in earlier answers, so that the next prompt can say it exactly the same way.
//!
//! Clients return calls with other spacing or key order, and many leave reasoning out. A prompt that says an answer
//! in other bytes than the model sampled shares only its beginning with the state that is kept.

mod lru;
mod sampled;
mod visible;

pub use sampled::{SampledCalls, SampledPart};
pub use visible::VisibleKey;

use crate::{CallId, Message, PromptText, ToolCall};
use lru::Lru;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Calls remembered when the operator names no number.
pub const REMEMBERED_CALLS_MAX: usize = 100_000;

/// Bytes of remembered text, calls and reasoning each.
pub const REMEMBERED_BYTES_MAX: usize = 256 << 20;

/// Remembers sampled answers, least recently used first to go. Shared by request handlers and readers; no call blocks
/// but for another's look-up.
#[derive(Debug)]
pub struct AnswerMemory {
    calls: Mutex<Lru<CallId, Arc<SampledCalls>>>,
    reasoning: Mutex<Lru<VisibleKey, PromptText>>,
}

impl Default for AnswerMemory {
    fn default() -> AnswerMemory {
        AnswerMemory::new(REMEMBERED_CALLS_MAX, REMEMBERED_BYTES_MAX)
    }
}

impl AnswerMemory {
    /// A memory of at most so many calls (and as many answers' reasoning) and so many bytes of each. A memory of none
    /// is one that is switched off.
    pub fn new(entries: usize, bytes: usize) -> AnswerMemory {
        AnswerMemory { calls: Mutex::new(Lru::new(entries, bytes)), reasoning: Mutex::new(Lru::new(entries, bytes)) }
    }

    /// Remembers a part of an answer. A block of calls is found by each of its calls' ids, and charged once for each.
    pub fn remember(&self, part: SampledPart) {
        match part {
            SampledPart::Calls(sampled) => {
                let bytes = sampled.text_len();
                let mut calls = lock(&self.calls);
                let ids = sampled.ids().unwrap_or_default();
                ids.into_iter().for_each(|id| calls.insert(id, sampled.clone(), bytes));
            }
            SampledPart::Reasoning(key, text) => {
                let bytes = text.as_str().len();
                lock(&self.reasoning).insert(key, text, bytes);
            }
        }
    }

    /// What is remembered of a conversation's answers.
    pub fn sampled_parts(&self, messages: &[Message]) -> Vec<SampledPart> {
        let mut key = VisibleKey::start();
        let mut parts = Vec::new();
        for message in messages {
            key.push(message);
            let Message::Assistant(answer) = message else { continue };
            if answer.reasoning.as_str().is_empty() {
                parts.extend(self.recall_reasoning(key).map(|text| SampledPart::Reasoning(key, text)));
            }
            if !answer.tool_calls.is_empty() {
                parts.extend(self.recall_calls(&answer.tool_calls).map(SampledPart::Calls));
            }
        }
        parts
    }

    /// The block these calls were sampled in: all of its calls, in order, with equal names and arguments equal as JSON.
    /// An edited call is never replaced by what it was.
    pub fn recall_calls(&self, calls: &[ToolCall]) -> Option<Arc<SampledCalls>> {
        let ids: Vec<CallId> = calls.iter().map(|call| CallId::parse(&call.id)).collect::<Option<_>>()?;
        let mut known = lock(&self.calls);
        let sampled = known.get(ids.first()?)?;
        let is_same = |id: &CallId| known.peek(id).is_some_and(|other| Arc::ptr_eq(other, &sampled));
        if !ids.iter().all(is_same) {
            return None;
        }
        drop(known);
        let same = sampled.calls.len() == calls.len()
            && sampled.calls.iter().zip(calls).all(|(mine, theirs)| {
                CallId::parse(&mine.id) == CallId::parse(&theirs.id)
                    && mine.name == theirs.name
                    && mine.arguments.equals_as_json(&theirs.arguments)
            });
        same.then_some(sampled)
    }

    /// The reasoning of the answer that `key` ends with.
    pub fn recall_reasoning(&self, key: VisibleKey) -> Option<PromptText> {
        lock(&self.reasoning).get(&key)
    }

    /// For each message that is an answer without reasoning: the reasoning it is remembered with.
    pub fn restore_reasoning(&self, messages: &[Message]) -> Vec<Option<PromptText>> {
        let mut key = VisibleKey::start();
        messages
            .iter()
            .map(|message| {
                key.push(message);
                match message {
                    Message::Assistant(answer) if answer.reasoning.as_str().is_empty() => self.recall_reasoning(key),
                    _ => None,
                }
            })
            .collect()
    }
}

/// The maps hold no half-made state, so a panic elsewhere costs nothing.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
