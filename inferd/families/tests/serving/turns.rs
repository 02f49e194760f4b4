//! The next turn finds the bank of the one before, whatever the client did to the answer.

use crate::kit::{CALL, END, FamilyBench, calls, question, scripted};
use ds4_engine::ReuseKind;
use ds4_model::{
    AnswerMemory, AssistantMessage, Conversation, Message, PromptText, ThinkingMode, ToolArguments, ToolCall,
    ToolResult,
};
use std::sync::Arc;

/// Asks, and goes on with what a client made of the answer.
fn two_turns(bench: &FamilyBench, change: impl FnOnce(&mut AssistantMessage)) -> (u32, u32, ReuseKind) {
    let memory = Arc::new(AnswerMemory::default());
    let mut conversation: Conversation = question(ThinkingMode::On);
    let heard = bench.complete(bench.ask(&conversation, &memory, 5_000));
    let first = heard.finished().usage;
    let call = &calls(&heard)[0];
    let id = call.id.with_prefix("call_");
    let mut answer = AssistantMessage {
        reasoning: PromptText::new("hm"),
        content: PromptText::new("Let me look."),
        tool_calls: vec![ToolCall {
            id: id.clone(),
            name: call.name.clone(),
            arguments: ToolArguments::parse(&call.json),
        }],
    };
    change(&mut answer);
    let result = Message::ToolResult(ToolResult { call_id: id, text: PromptText::new("a file") });
    conversation.messages.extend([Message::Assistant(answer), result]);
    let second = bench.complete(bench.ask(&conversation, &memory, 5_000));
    let usage = second.finished().usage;
    // The last drawn token of the first answer was never computed.
    let whole = first.prompt_tokens.0 + first.completion_tokens.0 - 1;
    (usage.cached_tokens.0, whole, second.finished().timings.reuse)
}

fn bench() -> FamilyBench {
    scripted(&[
        &format!("hm</think>Let me look.{}", CALL.replace("\">\n<", "\" >\n\n<")),
        &format!("ok</think>Done.{END}"),
    ])
}

#[test]
fn a_turn_that_comes_back_as_it_was_costs_its_new_tokens_only() {
    let (cached, whole, reuse) = two_turns(&bench(), |_| {});
    assert_eq!((cached, reuse), (whole, ReuseKind::Exact));
}

#[test]
fn hidden_reasoning_and_other_spelling_cost_nothing() {
    let (cached, whole, reuse) = two_turns(&bench(), |answer| {
        answer.reasoning = PromptText::default();
        answer.tool_calls[0].arguments = ToolArguments::parse("{ \"command\" : \"l\\u0073\" }");
    });
    assert_eq!((cached, reuse), (whole, ReuseKind::Exact));
}

#[test]
fn an_edited_call_is_computed_as_it_was_edited() {
    let (cached, whole, _) =
        two_turns(&bench(), |answer| answer.tool_calls[0].arguments = ToolArguments::parse("{\"command\": \"rm\"}"));
    assert!(cached < whole, "{cached} of {whole}");
}
