//! Building a conversation from what a client replays, whatever protocol it speaks.
//!
//! Instructions at the very front become the system text. Later ones are said where they stand, as part of the user's
//! turn: they do not change the beginning of the prompt, and an answer still follows them.

use ds4_model::{AssistantMessage, Instructions, Message, PromptText, ToolCall, ToolResult, UserMessage};
use std::collections::HashSet;

/// Between texts that become one.
const GAP: &str = "\n\n";

/// A conversation's messages as they were sent, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Transcript {
    entries: Vec<Message>,
}

impl Transcript {
    pub(crate) fn instructions(&mut self, text: impl Into<String>) {
        let text = PromptText::new(text);
        self.entries.push(Message::System(Instructions { text, ..Instructions::default() }));
    }

    pub(crate) fn user(&mut self, text: impl Into<String>) {
        self.entries.push(Message::User(UserMessage { text: PromptText::new(text), task: None }));
    }

    pub(crate) fn result(&mut self, call_id: &str, text: impl Into<String>) {
        let result = ToolResult { call_id: call_id.to_owned(), text: PromptText::new(text) };
        self.entries.push(Message::ToolResult(result));
    }

    /// A whole answer. Two answers in a row are one turn of the model.
    pub(crate) fn answer(&mut self, answer: AssistantMessage) {
        match self.entries.last_mut() {
            Some(Message::Assistant(last)) => {
                last.reasoning = joined(&last.reasoning, &answer.reasoning, GAP);
                last.content = joined(&last.content, &answer.content, GAP);
                last.tool_calls.extend(answer.tool_calls);
            }
            _ => self.entries.push(Message::Assistant(answer)),
        }
    }

    /// All that `next` says, after this.
    pub(crate) fn append(&mut self, next: &Transcript) {
        for entry in &next.entries {
            match entry {
                Message::Assistant(answer) => self.answer(answer.clone()),
                entry => self.entries.push(entry.clone()),
            }
        }
    }

    /// Whether nothing was said but results, and what the user says after them. Gives the calls that are answered.
    pub(crate) fn only_results(&self) -> Option<Vec<String>> {
        let results = self.entries.iter().map_while(|entry| match entry {
            Message::ToolResult(result) => Some(result.call_id.clone()),
            _ => None,
        });
        let ids: Vec<String> = results.collect();
        let rest = self.entries[ids.len()..].iter();
        let answers = !ids.is_empty() && rest.clone().all(|entry| matches!(entry, Message::User(_)));
        answers.then_some(ids)
    }

    /// The calls of the answer at the end, and those of all earlier answers.
    pub(crate) fn calls_of_last_answer(&self) -> (Vec<String>, HashSet<&str>) {
        let calls = |entry: &'_ Message| match entry {
            Message::Assistant(answer) => answer.tool_calls.iter().map(|call| call.id.clone()).collect(),
            _ => Vec::new(),
        };
        let (last, earlier) = match self.entries.split_last() {
            Some((last, earlier)) => (calls(last), earlier),
            None => (Vec::new(), &[][..]),
        };
        let earlier = earlier.iter().flat_map(|entry| match entry {
            Message::Assistant(answer) => answer.tool_calls.as_slice(),
            _ => &[],
        });
        (last, earlier.map(|call| call.id.as_str()).collect())
    }

    /// Bytes of all texts.
    pub(crate) fn text_len(&self) -> usize {
        let of = |text: &PromptText| text.as_str().len();
        let lengths = self.entries.iter().map(|entry| match entry {
            Message::System(body) | Message::Developer(body) => of(&body.text),
            Message::User(user) => of(&user.text),
            Message::Assistant(answer) => {
                let calls: usize = answer.tool_calls.iter().map(ToolCall::text_len).sum();
                of(&answer.reasoning) + of(&answer.content) + calls
            }
            Message::ToolResult(result) => of(&result.text),
            Message::LatestReminder(text) => of(text),
        });
        lengths.sum()
    }

    /// Whether the last entry is the beginning of the answer: an answer without calls.
    pub(crate) fn ends_open(&self) -> bool {
        matches!(self.entries.last(), Some(Message::Assistant(answer)) if answer.tool_calls.is_empty())
    }

    /// Whether it holds calls or their results.
    pub(crate) fn has_calls(&self) -> bool {
        self.entries.iter().any(|entry| match entry {
            Message::Assistant(answer) => !answer.tool_calls.is_empty(),
            Message::ToolResult(_) => true,
            _ => false,
        })
    }

    /// The messages to render: leading instructions are one system text, later ones a part of the user's turn.
    pub(crate) fn messages(&self) -> Vec<Message> {
        let mut messages: Vec<Message> = Vec::with_capacity(self.entries.len());
        for entry in &self.entries {
            match (messages.as_mut_slice(), entry) {
                ([Message::System(first)], Message::System(next)) => first.text = joined(&first.text, &next.text, GAP),
                ([], Message::System(_)) => messages.push(entry.clone()),
                (_, Message::System(late)) => {
                    messages.push(Message::User(UserMessage { text: late.text.clone(), task: None }));
                }
                _ => messages.push(entry.clone()),
            }
        }
        if let [Message::System(_)] = messages.as_slice() {
            // Only a question opens an answer.
            messages.push(Message::User(UserMessage::default()));
        }
        messages
    }
}

/// Both texts, `gap` between them when neither is empty.
fn joined(first: &PromptText, next: &PromptText, gap: &str) -> PromptText {
    match (first.as_str(), next.as_str()) {
        ("", next) => PromptText::new(next),
        (first, "") => PromptText::new(first),
        (first, next) => PromptText::new(format!("{first}{gap}{next}")),
    }
}
