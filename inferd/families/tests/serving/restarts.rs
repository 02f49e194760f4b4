//! What an answer said exactly outlives the process with its conversation.

use crate::kit::{CALL, END, FamilyBench, calls, question, scripted_on_disk};
use crate::support::Heard;
use ds4_engine::ReuseKind;
use ds4_model::{
    AnswerMemory, AssistantMessage, Message, PromptText, ThinkingMode, ToolArguments, ToolCall, ToolResult,
};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// A worker's first turn, after which it was stopped or is as if killed; its folder is there for the next one.
struct Ended {
    folder: TempDir,
    first: Heard,
    /// Tokens of the first turn that were computed.
    whole: u32,
}

impl Ended {
    /// What it wrote while it lived, and when it stopped.
    fn stopped() -> Ended {
        Ended::after(|worker| worker.engine.stop().unwrap())
    }

    /// What it wrote by itself: it is not stopped.
    fn killed() -> Ended {
        Ended::after(|worker| {
            // The engine is done with the first turn when it takes the next request.
            worker.complete(worker.request("something else", 1));
            while worker.engine.handle().observatory().disk().unwrap().waiting > 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::mem::forget(worker);
        })
    }

    fn after(end: impl FnOnce(FamilyBench)) -> Ended {
        let folder = tempfile::tempdir().unwrap();
        let worker = worker(&folder, &AnswerMemory::default());
        let first = worker.complete(worker.ask(&question(ThinkingMode::On), &Arc::default(), 5_000));
        let usage = first.finished().usage;
        // The last drawn token was never computed.
        let whole = usage.prompt_tokens.0 + usage.completion_tokens.0 - 1;
        end(worker);
        Ended { folder, first, whole }
    }

    /// The second turn at the next worker, as a client asks for it that spells arguments its own way and sends no
    /// reasoning. `is_remembered`: whether requests know what the next worker has found of the first one's answers.
    fn second_turn(&self, arguments: &str, is_remembered: bool) -> Heard {
        let memory = Arc::new(AnswerMemory::default());
        let next = worker(&self.folder, &memory);
        let memory = if is_remembered { memory } else { Arc::default() };
        let mut conversation = question(ThinkingMode::On);
        let call = &calls(&self.first)[0];
        let id = call.id.with_prefix("toolu_");
        let call = ToolCall { id: id.clone(), name: call.name.clone(), arguments: ToolArguments::parse(arguments) };
        let answer = AssistantMessage {
            reasoning: PromptText::default(),
            content: PromptText::new("Let me look."),
            tool_calls: vec![call],
        };
        let result = Message::ToolResult(ToolResult { call_id: id, text: PromptText::new("a file") });
        conversation.messages.extend([Message::Assistant(answer), result]);
        next.complete(next.ask(&conversation, &memory, 5_000))
    }
}

/// White space where nobody would print it: a client's arguments do not tell that it was there.
fn worker(folder: &TempDir, memory: &AnswerMemory) -> FamilyBench {
    let odd = CALL.replace("\">\n<", "\" >\n\n<");
    let answers = [format!("hm</think>Let me look.{odd}"), format!("ok</think>Done.{END}")];
    scripted_on_disk(&answers.each_ref().map(String::as_str), &folder.path().join("kv"), memory)
}

const RESPELLED: &str = "{ \"command\" : \"l\\u0073\" }";

#[test]
fn a_stopped_worker_s_answers_are_said_again_exactly_by_the_next_one() {
    let ended = Ended::stopped();
    let second = ended.second_turn(RESPELLED, true);
    let finished = second.finished();
    assert_eq!((finished.timings.reuse, finished.usage.cached_tokens.0), (ReuseKind::Disk, ended.whole));
    assert_eq!(second.text, "okDone.");
}

#[test]
fn a_killed_worker_s_answer_of_which_the_disk_has_the_beginning_has_its_end_there_too() {
    let ended = Ended::killed();
    let second = ended.second_turn(RESPELLED, true);
    let finished = second.finished();
    assert_eq!((finished.timings.reuse, finished.usage.cached_tokens.0), (ReuseKind::Disk, ended.whole));
}

#[test]
fn an_edited_call_is_computed_as_it_was_edited_after_a_restart_too() {
    let ended = Ended::stopped();
    let edited = ended.second_turn("{\"command\": \"rm\"}", true);
    assert!(edited.finished().usage.cached_tokens.0 < ended.whole);
}

#[test]
fn without_what_was_remembered_less_is_found() {
    let ended = Ended::stopped();
    let second = ended.second_turn(RESPELLED, false);
    assert!(second.finished().usage.cached_tokens.0 < ended.whole, "the tests above would pass without any memory");
}
