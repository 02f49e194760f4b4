//! The next prompt says earlier answers exactly as they were sampled.

use super::*;
use crate::deepseek4::prompt::tests::spelled;
use ds4_model::{
    AssistantMessage, Message, PromptCodec, PromptRecord, PromptText, ThinkingMode, ToolArguments, ToolCall,
    ToolResult, UserMessage,
};

/// A block in a spelling that is not the one we would print.
const SAMPLED: &str = "\n<DSML｜tool_calls>\n\n<｜DSML｜invoke name=\"bash\" >\n<｜DSML｜parameter string=\"false\" name=\"env\">{\"a\" :1.50}</｜DSML｜parameter></｜DSML｜invoke>\n</｜DSML｜tool_calls>\n";

/// A first answer, as the client heard it, and the conversation it answers.
struct Turn {
    conversation: Conversation,
    memory: Arc<AnswerMemory>,
    /// What is in the bank: the prompt and what was drawn.
    bank: PromptRecord,
    id: String,
}

fn first_turn() -> Turn {
    let codec = codec(PromptProfile::Release);
    let memory = Arc::new(AnswerMemory::default());
    let conversation = Conversation {
        messages: vec![Message::User(UserMessage { text: PromptText::new("q"), task: None })],
        thinking: ThinkingMode::On,
        tools: tools(),
        ..Conversation::default()
    };
    let prompt = codec.render(&conversation, &memory).expect("renders");
    let mut reader = codec.read_answer(&prompt, &conversation, &memory);
    let mut bank = PromptRecord::new(&prompt, &tokenizer());
    let (mut events, mut id) = (Vec::new(), String::new());
    for token in tokens(&format!("hm hm</think>Looking.{SAMPLED}")) {
        reader.push(token, &mut events);
        bank.push_generated(token, &tokenizer());
    }
    reader.finish(AT_ONCE, &mut events);
    for event in events {
        if let AnswerEvent::Call { event: CallEvent::Start { id: drawn, .. }, .. } = event {
            id = drawn.with_prefix("toolu_");
        }
    }
    Turn { conversation, memory, bank, id }
}

impl Turn {
    /// The prompt of the next turn, after a client that said the answer so.
    fn next(&self, reasoning: &str, arguments: &str) -> Prompt {
        let mut conversation = self.conversation.clone();
        let call = ToolCall { id: self.id.clone(), name: "bash".into(), arguments: ToolArguments::parse(arguments) };
        conversation.messages.extend([
            Message::Assistant(AssistantMessage {
                reasoning: PromptText::new(reasoning),
                content: PromptText::new("Looking."),
                tool_calls: vec![call],
            }),
            Message::ToolResult(ToolResult { call_id: self.id.clone(), text: PromptText::new("done") }),
        ]);
        codec(PromptProfile::Release).render(&conversation, &self.memory).expect("renders")
    }

    fn reused(&self, prompt: &Prompt) -> usize {
        self.bank.overlap(&PromptRecord::new(prompt, &tokenizer())).reused.index()
    }
}

#[test]
fn a_call_that_comes_back_in_other_spelling_is_said_as_it_was_sampled() {
    let turn = first_turn();
    let whole = turn.bank.tokens().len();
    assert_eq!(turn.reused(&turn.next("hm hm", r#"{"env": {"a": 1.5}}"#)), whole);
    assert!(spelled(&turn.next("hm hm", r#"{"env":{"a":1.5}}"#)).contains(SAMPLED));
}

#[test]
fn reasoning_that_did_not_come_back_is_remembered() {
    let turn = first_turn();
    assert_eq!(turn.reused(&turn.next("", r#"{"env":{"a":1.5}}"#)), turn.bank.tokens().len());
    // What the client says counts.
    assert!(spelled(&turn.next("other", "{}")).contains("<think>other</think>"));
}

#[test]
fn an_edited_call_is_printed_as_it_was_edited() {
    let turn = first_turn();
    let text = spelled(&turn.next("hm hm", r#"{"env": {"a": 2}}"#));
    assert!(!text.contains(SAMPLED) && text.contains(r#"string="false">{"a": 2}</"#), "{text}");
}

#[test]
fn a_memory_that_is_switched_off_or_lost_prints_calls_canonically() {
    let mut turn = first_turn();
    turn.memory = Arc::new(AnswerMemory::new(0, 0));
    let text = spelled(&turn.next("hm hm", r#"{"env": {"a": 1.50}}"#));
    assert!(text.contains("Looking.\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"bash\">\n"), "{text}");
}
