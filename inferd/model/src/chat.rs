//! A conversation as every HTTP surface states it and every prompt codec consumes it.
//!
//! Nothing here knows a protocol or a model. Text that people wrote is [`PromptText`], so that printing a conversation
//! for debugging shows sizes only.

use crate::{JsonText, PromptText, ToolUse, json};
use ds4_units::Bytes;

/// A request's conversation and how its next answer is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conversation {
    /// The messages, oldest first.
    pub messages: Vec<Message>,
    /// Whether the next answer reasons before it speaks.
    pub thinking: ThinkingMode,
    /// How much reasoning was asked for; `None` when the request is silent.
    pub effort: Option<Effort>,
    /// What becomes of the reasoning of earlier answers.
    pub past_reasoning: PastReasoning,
    /// The tools offered by the request as a whole. The prompt lists them after the first system text.
    pub tools: ToolUse,
    /// Tool results that end beyond so many bytes of the prompt remind the model how to call tools; `None` reminds
    /// never.
    pub reminder_after: Option<Bytes>,
    /// The last message is the beginning of the answer: it stays open and the model continues it.
    pub prefill: bool,
}

/// Whether an answer begins with reasoning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThinkingMode {
    /// Answer at once.
    #[default]
    Off,
    /// Reason first.
    On,
}

/// How much reasoning is asked for. What a level does is the codec's profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effort {
    /// Less than usual.
    Low,
    /// Thorough.
    High,
    /// As much as the model can.
    Max,
}

/// What becomes of the reasoning in answers before the last question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PastReasoning {
    /// Left out, unless the protocol wants it kept (with tools, usually).
    #[default]
    Drop,
    /// Rendered in every turn.
    Keep,
    /// Left out of every earlier answer, whatever the protocol wants.
    Never,
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Instructions by whoever set up the conversation.
    System(Instructions),
    /// Instructions by the application, in the place of a question.
    Developer(Instructions),
    /// A question or any other text by the user.
    User(UserMessage),
    /// An earlier answer, or the beginning of the next one (see [`Conversation::prefill`]).
    Assistant(AssistantMessage),
    /// What a tool returned.
    ToolResult(ToolResult),
    /// Passing facts, such as the date, that the next answer should know.
    LatestReminder(PromptText),
}

/// The body of a system or developer message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Instructions {
    /// The text; may be empty.
    pub text: PromptText,
    /// Tools offered to the model.
    pub tools: Vec<ToolSchema>,
    /// JSON schema the reply should follow.
    pub response_schema: Option<JsonText>,
    /// A small task the model was trained to do instead of answering.
    pub task: Option<Task>,
}

/// The body of a user message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserMessage {
    /// The text.
    pub text: PromptText,
    /// A small task the model was trained to do instead of answering.
    pub task: Option<Task>,
}

/// The body of an assistant message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AssistantMessage {
    /// Its reasoning; empty when there was none or the client did not send it back.
    pub reasoning: PromptText,
    /// Its visible text.
    pub content: PromptText,
    /// The tools it called, in order.
    pub tool_calls: Vec<ToolCall>,
}

/// What a tool returned to one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolResult {
    /// The id of the call that this answers; may be unknown, and is never a reason to fail.
    pub call_id: String,
    /// What the tool printed.
    pub text: PromptText,
}

/// A tool offered to the model: the object with `name`, `description` and `parameters`, as the client wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolSchema {
    /// The object's JSON text. Key order and number spellings are the client's.
    pub json: JsonText,
}

/// A tool call in an earlier answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCall {
    /// The id that results refer to.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The arguments.
    pub arguments: ToolArguments,
}

/// Arguments of a tool call, kept so that duplicate keys and number spellings survive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolArguments {
    /// The members of a JSON object, in the order they were sent.
    Members(Vec<(PromptText, JsonText)>),
    /// Text that is not a JSON object; it was sent as such and is replayed as such.
    Text(PromptText),
}

impl ToolSchema {
    /// The tool's name, when the object has one.
    pub fn name(&self) -> Option<String> {
        self.member("name")?.to_string_value()
    }

    /// The JSON schema of the arguments, when the object has one.
    pub fn parameters(&self) -> Option<JsonText> {
        self.member("parameters")
    }

    fn member(&self, name: &str) -> Option<JsonText> {
        self.json.members()?.into_iter().find_map(|(key, value)| (key == name).then_some(value))
    }
}

impl ToolCall {
    /// Bytes of text in it.
    pub fn text_len(&self) -> usize {
        self.id.len() + self.name.len() + self.arguments.text_len()
    }
}

impl ToolArguments {
    /// Bytes of text in it.
    pub fn text_len(&self) -> usize {
        match self {
            ToolArguments::Members(members) => {
                members.iter().map(|(key, value)| key.as_str().len() + value.as_str().len()).sum()
            }
            ToolArguments::Text(text) => text.as_str().len(),
        }
    }

    /// Whether both say the same: as JSON objects, whatever the order of their keys and the spelling of their numbers,
    /// or as text. Of equal keys the last counts, as nearly every reader of JSON has it.
    pub fn equals_as_json(&self, other: &ToolArguments) -> bool {
        match (self, other) {
            (ToolArguments::Members(mine), ToolArguments::Members(theirs)) => json::same_members(mine, theirs),
            (ToolArguments::Text(mine), ToolArguments::Text(theirs)) => mine == theirs,
            _ => false,
        }
    }

    /// Reads the arguments text of a call. Blank text means no arguments.
    pub fn parse(text: &str) -> ToolArguments {
        if text.trim().is_empty() {
            return ToolArguments::Members(Vec::new());
        }
        let members = JsonText::parse(text).ok().and_then(|json| json.members());
        match members {
            Some(members) => {
                ToolArguments::Members(members.into_iter().map(|(key, value)| (PromptText::new(key), value)).collect())
            }
            None => ToolArguments::Text(PromptText::new(text)),
        }
    }
}

/// Small tasks some models are trained to do on a question instead of answering it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Task {
    Action,
    Query,
    Authority,
    Domain,
    Title,
    ReadUrl,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_keep_duplicates_order_and_number_spellings() {
        let ToolArguments::Members(members) = ToolArguments::parse(r#" {"b": 1.50, "a": "x", "b": 1e2} "#) else {
            panic!("an object");
        };
        let spelled: Vec<_> = members.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(spelled, [("b", "1.50"), ("a", "\"x\""), ("b", "1e2")]);
    }

    #[test]
    fn arguments_that_are_no_object_stay_the_text_they_were() {
        for text in ["[1]", "{\"a\": ", "plain", "7"] {
            assert_eq!(ToolArguments::parse(text), ToolArguments::Text(PromptText::new(text)));
        }
        for text in ["", " \n", "{}", " { } "] {
            assert_eq!(ToolArguments::parse(text), ToolArguments::Members(vec![]), "{text:?}");
        }
    }

    #[test]
    fn arguments_are_equal_whatever_their_spelling_and_different_when_edited() {
        let same = |a: &str, b: &str| ToolArguments::parse(a).equals_as_json(&ToolArguments::parse(b));
        assert!(same(r#"{"a": 1.50, "b": {"x": [1, 2], "y": "\u00e9"}}"#, r#"{"b":{"y":"é","x":[1.0,2]},"a":1.5}"#));
        assert!(same(r#"{"a": 1, "a": 2}"#, r#"{"a":2}"#));
        assert!(same("", "{}"));
        for edited in [r#"{"a": 2}"#, r#"{"a": "1"}"#, r#"{"a": 1, "b": 1}"#, "{}", "a", r#"{"A": 1}"#] {
            assert!(!same(r#"{"a": 1}"#, edited), "{edited}");
        }
        assert!(!same(r#"{"a": 9007199254740993}"#, r#"{"a": 9007199254740992}"#));
        let deep = format!("{{\"a\": {}{}}}", "[".repeat(9_000), "]".repeat(9_000));
        assert!(same(&deep, &deep));
    }

    #[test]
    fn debug_output_hides_what_people_wrote() {
        let message = Message::User(UserMessage { text: PromptText::new("secret"), task: None });
        assert!(!format!("{message:?}").contains("secret"));
        let call = ToolArguments::parse(r#"{"secret": "secret"}"#);
        assert!(!format!("{call:?}").contains("secret"));
    }
}
