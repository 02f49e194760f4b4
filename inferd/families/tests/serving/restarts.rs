//! What an answer said exactly outlives the process with its conversation.

use crate::kit::{CALL, END, FamilyBench, calls, question, scripted_on_disk};
use crate::support::Heard;
use ds4_engine::ReuseKind;
use ds4_model::{
    AnswerMemory, AssistantMessage, Message, PromptText, ThinkingMode, ToolArguments, ToolCall, ToolResult,
};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// White space where nobody would print it: a client's arguments do not tell that it was there.
fn bench(folder: &Path, memory: &AnswerMemory) -> FamilyBench {
    let odd = CALL.replace("\">\n<", "\" >\n\n<");
    scripted_on_disk(&[&format!("hm</think>Let me look.{odd}"), &format!("ok</think>Done.{END}")], folder, memory)
}

/// The first turn; returns what was heard and its tokens that were computed.
fn first_turn(bench: &FamilyBench) -> (Heard, u32) {
    let heard = bench.complete(bench.ask(&question(ThinkingMode::On), &Arc::default(), 5_000));
    let usage = heard.finished().usage;
    // The last drawn token was never computed.
    let whole = usage.prompt_tokens.0 + usage.completion_tokens.0 - 1;
    (heard, whole)
}

/// The second turn, as a client asks for it that spells arguments its own way and sends no reasoning.
fn second_turn(bench: &FamilyBench, memory: &Arc<AnswerMemory>, first: &Heard, arguments: &str) -> Heard {
    let mut conversation = question(ThinkingMode::On);
    let call = &calls(first)[0];
    let id = call.id.with_prefix("toolu_");
    let call = ToolCall { id: id.clone(), name: call.name.clone(), arguments: ToolArguments::parse(arguments) };
    let answer = AssistantMessage {
        reasoning: PromptText::default(),
        content: PromptText::new("Let me look."),
        tool_calls: vec![call],
    };
    let result = Message::ToolResult(ToolResult { call_id: id, text: PromptText::new("a file") });
    conversation.messages.extend([Message::Assistant(answer), result]);
    bench.complete(bench.ask(&conversation, memory, 5_000))
}

const RESPELLED: &str = "{ \"command\" : \"l\\u0073\" }";

#[test]
fn a_stopped_worker_s_answers_are_said_again_exactly_by_the_next_one() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().join("kv");
    let stopped = bench(&folder, &AnswerMemory::default());
    let (first, whole) = first_turn(&stopped);
    stopped.engine.stop().unwrap();

    let memory = Arc::new(AnswerMemory::default());
    let next = bench(&folder, &memory);
    let second = second_turn(&next, &memory, &first, RESPELLED);
    let finished = second.finished();
    assert_eq!((finished.timings.reuse, finished.usage.cached_tokens.0), (ReuseKind::Disk, whole));
    assert_eq!(second.text, "okDone.");
}

#[test]
fn a_killed_worker_s_answer_of_which_the_disk_has_the_beginning_has_its_end_there_too() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().join("kv");
    // Never stopped: what it wrote by itself is all there is.
    let killed = bench(&folder, &AnswerMemory::default());
    let (first, whole) = first_turn(&killed);
    // The engine is done with the first turn when it takes the next request.
    killed.complete(killed.request("something else", 1));
    while killed.engine.handle().observatory().disk().unwrap().waiting > 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let memory = Arc::new(AnswerMemory::default());
    let next = bench(&folder, &memory);
    let second = second_turn(&next, &memory, &first, RESPELLED);
    assert_eq!((second.finished().timings.reuse, second.finished().usage.cached_tokens.0), (ReuseKind::Disk, whole));
}

#[test]
fn an_edited_call_is_computed_as_it_was_edited_after_a_restart_too() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().join("kv");
    let stopped = bench(&folder, &AnswerMemory::default());
    let (first, whole) = first_turn(&stopped);
    stopped.engine.stop().unwrap();
    let memory = Arc::new(AnswerMemory::default());
    let next = bench(&folder, &memory);
    let edited = second_turn(&next, &memory, &first, "{\"command\": \"rm\"}");
    assert!(edited.finished().usage.cached_tokens.0 < whole);
}

#[test]
fn without_what_was_remembered_less_is_found() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().join("kv");
    let stopped = bench(&folder, &AnswerMemory::default());
    let (first, whole) = first_turn(&stopped);
    stopped.engine.stop().unwrap();
    let next = bench(&folder, &AnswerMemory::default());
    let second = second_turn(&next, &Arc::default(), &first, RESPELLED);
    assert!(second.finished().usage.cached_tokens.0 < whole, "the tests above would pass without any memory");
}
