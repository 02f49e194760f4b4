//! Tool slips: after a tool's result the model says what it will do next, and ends its answer without doing it.
//!
//! Agents stop then, for no reason that their users can see. A slip can be written down, and a buffered chat reply can
//! be asked for once more with another seed.

use crate::answer::Answer;
use crate::phase::Serving;
use crate::trace::Entry;
use ds4_engine::{EventStream, FinishReason, Finished, GenerateRequest, Hear, Keep, Sampling};
use ds4_model::{AnswerMemory, Conversation, Message, Prompt, PromptRecord, ToolChoice};
use ds4_units::Tokens;
use std::sync::Arc;

/// How far from its end an answer is looked at.
const LOOK_AT: usize = 400;

/// What announcements begin with, in small letters.
const ANNOUNCEMENTS: [&str; 12] = [
    "let me ",
    "let's ",
    "i'll ",
    "i will ",
    "i'm going to ",
    "i am going to ",
    "now i ",
    "next, i ",
    "next i ",
    "now let ",
    "i need to ",
    "i should ",
];

/// A request whose answer may be a slip, with what is needed to say so and to ask once more.
pub(crate) struct Slip {
    again: Option<Again>,
    entry: Option<Entry>,
}

/// The same request once more.
pub(crate) struct Again {
    pub(crate) serving: Serving,
    pub(crate) memory: Arc<AnswerMemory>,
    pub(crate) conversation: Conversation,
    pub(crate) rendered: Prompt,
    pub(crate) record: PromptRecord,
    pub(crate) sampling: Sampling,
    pub(crate) stop: Vec<String>,
    pub(crate) max_tokens: Tokens,
}

impl Slip {
    pub(crate) fn new(again: Option<Again>, entry: Option<Entry>) -> Slip {
        Slip { again, entry }
    }

    /// What is written of the slip that `answer` is, when slips are written down.
    pub(crate) fn line(&mut self, answer: &Answer, finished: &Finished) -> Option<serde_json::Value> {
        Some(self.entry.take()?.finished(answer, finished))
    }

    /// Asks once more, with `gaps` to hear the time between tokens. `None` when that is not wanted, or the engine takes no more.
    pub(crate) fn ask_again(self, gaps: Option<Hear>) -> Option<EventStream> {
        let again = self.again?;
        let reader = again.serving.codec.read_answer(&again.rendered, &again.conversation, &again.memory);
        let seed = again.sampling.seed.map(|seed| seed.wrapping_add(1));
        let request = GenerateRequest {
            prompt: again.record,
            reader,
            sampling: Sampling { seed, ..again.sampling },
            stop: again.stop,
            max_tokens: again.max_tokens,
            top_logprobs: None,
            prompt_logprobs: false,
            gaps,
            constraints: Vec::new(),
            keep: Keep::Turn,
        };
        again.serving.engine.submit(request).ok()
    }
}

/// Whether the answer to a conversation may be a slip: a tool has just returned, and the model is free to call another.
pub(crate) fn may_slip(conversation: &Conversation) -> bool {
    let free = conversation.tools.is_armed() && conversation.tools.choice == ToolChoice::Auto;
    free && matches!(conversation.messages.last(), Some(Message::ToolResult(_)))
}

/// Whether such an answer is one.
pub(crate) fn is_slip(answer: &Answer, finished: &Finished) -> bool {
    let ended = finished.reason == FinishReason::EndOfTurn && finished.answer.outcome.is_none();
    ended && answer.calls.is_empty() && announces(&answer.content)
}

/// Whether a text ends with the announcement of an action.
fn announces(text: &str) -> bool {
    let text = text.trim_end();
    let from = text.len().saturating_sub(LOOK_AT);
    let from = (from..=text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or(text.len());
    let ending = text[from..].replace('’', "'").to_lowercase();
    let last_line = ending.lines().next_back().unwrap_or_default().trim();
    if last_line.ends_with('?') {
        return false;
    }
    let body = last_line.trim_end_matches(['.', ':', '!', '…']);
    let last_sentence = body.rsplit(['.', '!', '?', ';']).next().unwrap_or_default().trim_start();
    let begins = |text: &str| ANNOUNCEMENTS.iter().any(|announcement| text.starts_with(announcement));
    begins(last_sentence) || begins(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_announced_action_is_a_slip_and_a_report_or_a_question_is_none() {
        for text in [
            "Let me check the tests:",
            "The file is fine. Now I will run it.",
            "Found it.\n\nI’ll fix the import next…\n",
            "Next, I run the build",
        ] {
            assert!(announces(text), "{text}");
        }
        for text in [
            "",
            "Done. All tests pass.",
            "Let me know if you want more.\n\nThe file has 3 lines.",
            "Shall I go on? Let me ask: is it blue?",
            "The command printed: let me in",
        ] {
            assert!(!announces(text), "{text}");
        }
    }
}
