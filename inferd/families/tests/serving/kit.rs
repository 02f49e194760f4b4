//! A bench that speaks the family's protocol, and what its requests hear of calls.

use crate::support::model::{Rule, dialogue_rule};
use crate::support::vocabulary::tokens;
use crate::support::{Bench, Heard};
use ds4_engine::{CallEvent, EngineOptions, Event};
use ds4_families::deepseek4::{DeepSeek4Codec, PromptProfile};
use ds4_model::{
    AnswerMemory, CallId, Conversation, JsonText, Message, PromptText, ThinkingMode, ToolSchema, ToolUse, UserMessage,
};
use std::path::Path;

pub(crate) type FamilyBench = Bench<DeepSeek4Codec>;

pub(crate) const END: &str = "<｜end▁of▁sentence｜>";

/// A sound block with one call.
pub(crate) const CALL: &str = "\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"bash\">\n<｜DSML｜parameter name=\"command\" \
     string=\"true\">ls</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>";

/// A model that gives these answers in turn; control tokens in them are spelled out.
pub(crate) fn scripted(answers: &[&str]) -> FamilyBench {
    bench(dialogue_rule(answers.iter().map(|answer| tokens(answer)).collect()))
}

pub(crate) fn bench(rule: Rule) -> FamilyBench {
    Bench::over(rule, 20_000, EngineOptions::default(), |tokenizer| {
        DeepSeek4Codec::new(tokenizer, PromptProfile::Release).expect("all markers")
    })
}

/// As [`scripted`], keeping conversations in `folder`. `memory` hears what those that are there remember.
pub(crate) fn scripted_on_disk(answers: &[&str], folder: &Path, memory: &AnswerMemory) -> FamilyBench {
    let rule = dialogue_rule(answers.iter().map(|answer| tokens(answer)).collect());
    let codec = |tokenizer| DeepSeek4Codec::new(tokenizer, PromptProfile::Release).expect("all markers");
    Bench::over_disk(rule, 20_000, EngineOptions::default(), (folder, 100), codec, memory)
}

/// A question with one tool.
pub(crate) fn question(thinking: ThinkingMode) -> Conversation {
    let schema = r#"{"name": "bash", "parameters": {"properties": {"command": {"type": "string"}}}}"#;
    let schemas = vec![ToolSchema { json: JsonText::parse(schema).expect("JSON") }];
    Conversation {
        messages: vec![Message::User(UserMessage { text: PromptText::new("q"), task: None })],
        thinking,
        tools: ToolUse { schemas, ..ToolUse::default() },
        ..Conversation::default()
    }
}

/// A call as it was heard.
#[derive(Debug, PartialEq)]
pub(crate) struct Call {
    pub(crate) id: CallId,
    pub(crate) name: String,
    pub(crate) json: String,
}

/// The calls a request heard.
pub(crate) fn calls(heard: &Heard) -> Vec<Call> {
    let mut calls: Vec<Call> = Vec::new();
    for event in &heard.events {
        let Event::Call(delta) = event else { continue };
        match &delta.event {
            CallEvent::Start { id, name, .. } => calls.push(Call { id: *id, name: name.clone(), json: String::new() }),
            CallEvent::Arguments { index, json } => calls[*index as usize].json.push_str(json),
            CallEvent::End { .. } => {}
        }
    }
    calls
}

/// Names and arguments.
pub(crate) fn named(calls: &[Call]) -> Vec<(&str, &str)> {
    calls.iter().map(|call| (call.name.as_str(), call.json.as_str())).collect()
}
