//! Answers, token by token.

mod calls;
mod failures;
mod properties;
mod replay;

use super::*;
use crate::deepseek4::prompt::PromptProfile;
use crate::deepseek4::prompt::tests::{codec, tokenizer};
use ds4_model::{CallEvent, JsonText, Prompt, ToolSchema};
use ds4_units::Tokens;

/// What a reader made of an answer.
#[derive(Clone, Debug, Default, PartialEq)]
struct Heard {
    reasoning: String,
    content: String,
    calls: Vec<HeardCall>,
    end: AnswerSummary,
    /// The model was asked once more, with this.
    again: Option<Prompt>,
}

/// A call, put together from its fragments.
#[derive(Clone, Debug, Default, PartialEq)]
struct HeardCall {
    name: String,
    json: String,
    ended: bool,
}

impl Heard {
    /// Adds events, which must come in an order that makes sense.
    fn add(&mut self, events: Vec<AnswerEvent>) -> usize {
        let mut accounted = 0;
        for event in events {
            match event {
                AnswerEvent::Text { channel, text, tokens } => {
                    assert!(!text.is_empty() && self.calls.is_empty(), "text after a call, or none: {text:?}");
                    accounted += tokens;
                    match channel {
                        Channel::Reasoning => self.reasoning += &text,
                        Channel::Content => self.content += &text,
                    }
                }
                AnswerEvent::Call { event, tokens } => {
                    accounted += tokens;
                    self.add_call(event);
                }
            }
        }
        accounted
    }

    fn add_call(&mut self, event: CallEvent) {
        match event {
            CallEvent::Start { index, name, .. } => {
                assert_eq!(index as usize, self.calls.len());
                assert!(self.calls.iter().all(|call| call.ended), "two calls at once");
                self.calls.push(HeardCall { name, ..HeardCall::default() });
            }
            CallEvent::Arguments { index, json } => {
                assert!(!json.is_empty() && index as usize + 1 == self.calls.len());
                self.calls[index as usize].json += &json;
            }
            CallEvent::End { index } => {
                assert_eq!(index as usize + 1, self.calls.len());
                self.calls[index as usize].ended = true;
            }
        }
    }

    /// Names and arguments of complete calls.
    fn complete(&self) -> Vec<(&str, &str)> {
        self.calls.iter().filter(|call| call.ended).map(|call| (call.name.as_str(), call.json.as_str())).collect()
    }
}

/// The protocol over the reference vocabulary.
fn protocol() -> Arc<Protocol> {
    codec(PromptProfile::Release).protocol
}

/// Tools of every kind of parameter.
fn tools() -> ToolUse {
    let schema = |json: &str| ToolSchema { json: JsonText::parse(json).expect("JSON") };
    let schemas = vec![
        schema(
            r#"{"name": "bash", "parameters": {"properties": {"command": {"type": "string"}, "timeout": {"type": "integer"}, "quiet": {"type": "boolean"}, "env": {"type": "object"}}}}"#,
        ),
        schema(
            r#"{"name": "edit", "parameters": {"properties": {"path": {"type": "string"}, "text": {"type": "string"}}}}"#,
        ),
        schema(r#"{"name": "now"}"#),
    ];
    ToolUse { schemas, ..ToolUse::default() }
}

const AT_ONCE: Ending = Ending::EndOfTurn { room: Tokens(0) };

/// Reads tokens until the reader says that it has enough, then ends.
fn read_with(tools: ToolUse, opens: Channel, tokens: &[TokenId], ending: Ending) -> Heard {
    let conversation = Conversation { tools, ..Conversation::default() };
    let mut reader = Reader::new(protocol(), opens, &conversation, &Arc::default());
    hear(&mut reader, tokens, ending)
}

fn hear(reader: &mut Reader, tokens: &[TokenId], ending: Ending) -> Heard {
    let mut heard = Heard::default();
    let (mut events, mut pushed, mut accounted) = (Vec::new(), 0, 0);
    for &token in tokens {
        if reader.next() == NextToken::Complete {
            break;
        }
        reader.push(token, &mut events);
        pushed += 1;
        accounted += heard.add(std::mem::take(&mut events));
        assert!(accounted <= pushed);
    }
    let ending = if reader.next() == NextToken::Complete && ending == Ending::OutOfTokens { AT_ONCE } else { ending };
    match reader.finish(ending, &mut events) {
        AnswerEnd::Done(end) => heard.end = end,
        AnswerEnd::Again(tail) => heard.again = Some(tail),
    }
    accounted += heard.add(events);
    assert!(accounted <= pushed);
    assert_eq!(heard.calls.iter().filter(|call| call.ended).count(), heard.end.calls as usize);
    heard
}

/// Tokens of text in which control tokens are spelled out.
fn tokens(text: &str) -> Vec<TokenId> {
    tokenizer().encode(&tokenizer().parse_trusted(text))
}

/// Reads an answer without tools.
fn read(channel: Channel, text: &str) -> (String, String, bool) {
    read_tokens(channel, &tokens(text))
}

fn read_tokens(channel: Channel, tokens: &[TokenId]) -> (String, String, bool) {
    let heard = read_with(ToolUse::default(), channel, tokens, AT_ONCE);
    (heard.reasoning, heard.content, heard.end.reasoning_open)
}

fn parts(reasoning: &str, content: &str, reasoning_open: bool) -> (String, String, bool) {
    (reasoning.to_owned(), content.to_owned(), reasoning_open)
}

#[test]
fn reasoning_ends_at_the_control_token() {
    assert_eq!(read(Channel::Reasoning, "easy: 日本</think>\n\nIt is 4."), parts("easy: 日本", "\n\nIt is 4.", false));
    assert_eq!(read(Channel::Reasoning, "</think>4"), parts("", "4", false));
    assert_eq!(read(Channel::Content, "4"), parts("", "4", false));
}

#[test]
fn an_answer_that_never_leaves_reasoning_says_so() {
    assert_eq!(read(Channel::Reasoning, "hm"), parts("hm", "", true));
    assert_eq!(read(Channel::Reasoning, ""), parts("", "", true));
}

#[test]
fn a_marker_the_prompt_already_gave_is_dropped_and_any_other_is_text() {
    assert_eq!(read(Channel::Reasoning, "<think>hm</think>4"), parts("hm", "4", false));
    assert_eq!(read(Channel::Content, "</think>4"), parts("", "4", false));
    assert_eq!(read(Channel::Content, "use </think> and <think>"), parts("", "use </think> and <think>", false));
    assert_eq!(read(Channel::Reasoning, "a<think>b</think></think>c"), parts("a<think>b", "</think>c", false));
}

#[test]
fn the_spelling_of_the_end_in_ordinary_tokens_is_a_quotation() {
    let tokenizer = tokenizer();
    let mut tokens = Vec::new();
    tokenizer.encode_text("write </think> here", &mut tokens);
    assert_eq!(read_tokens(Channel::Reasoning, &tokens), parts("write </think> here", "", true));
}

#[test]
fn without_tools_an_answer_ends_where_markup_begins_and_other_control_tokens_are_nothing() {
    let answer = "ok<｜User｜> x \n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">";
    assert_eq!(read(Channel::Content, answer), parts("", "ok x", false));
    assert_eq!(read(Channel::Content, "use <tool_calls> or 2 <"), parts("", "use <tool_calls> or 2 <", false));
}

#[test]
fn what_follows_plain_text_is_text_markup_included() {
    let text = "</think>a \n\n<｜DSML｜tool_calls>\n";
    let heard = hear(&mut Reader::raw(protocol()), &tokens(text), AT_ONCE);
    assert_eq!((heard.content.as_str(), heard.reasoning.as_str()), (text, ""));
}

#[test]
fn a_character_cut_off_by_a_marker_belongs_to_the_channel_before_it() {
    let tokenizer = tokenizer();
    let byte = |spelling| tokenizer.token(spelling).expect("a byte token");
    let end_think = tokenizer.control("</think>").expect("the marker");
    let tokens = [byte("ð"), byte("Ł"), end_think, byte("Ã"), byte("©"), byte("ð")];
    assert_eq!(read_tokens(Channel::Reasoning, &tokens), parts("\u{FFFD}", "é\u{FFFD}", false));
}

#[test]
fn ids_outside_the_vocabulary_are_nothing() {
    assert_eq!(read_tokens(Channel::Content, &[TokenId(u32::MAX)]), parts("", "", false));
}
