//! Malformed blocks: a second attempt where nobody saw the first.

use crate::kit::{CALL, END, calls, named, question, scripted};
use ds4_engine::{Event, FinishReason};
use ds4_model::{CallRelease, ThinkingMode, ToolOutcome};
use ds4_units::Tokens;
use std::sync::Arc;

const BAD: &str = "First.\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke>";

#[test]
fn a_malformed_block_is_answered_by_an_error_and_the_model_tries_again() {
    let bench = scripted(&[BAD, &format!("Second.{CALL}")]);
    let mut conversation = question(ThinkingMode::Off);
    conversation.tools.release = CallRelease::Whole;
    let heard = bench.complete(bench.ask(&conversation, &Arc::default(), 5_000));
    let place = heard.events.iter().position(|event| *event == Event::Retrying).expect("a second attempt");
    let after: String = heard.events[place..].iter().filter_map(text).collect();
    assert_eq!((heard.text.as_str(), after.as_str()), ("First.Second.", "Second."));
    assert_eq!(named(&calls(&heard)), [("bash", r#"{"command":"ls"}"#)]);
    let finished = heard.finished();
    assert_eq!((&finished.reason, finished.answer.outcome), (&FinishReason::ToolCalls, Some(ToolOutcome::Retried)));
    // Both attempts are paid for, what the model was told is not.
    let drawn = crate::support::vocabulary::tokens(&format!("{BAD}Second.{CALL}")).len();
    assert_eq!(finished.usage.completion_tokens, Tokens(drawn as u32));
}

#[test]
fn a_second_failure_is_text_and_never_an_error() {
    let bench = scripted(&[BAD, &format!("{BAD} rest{END}")]);
    let mut conversation = question(ThinkingMode::Off);
    conversation.tools.release = CallRelease::Whole;
    let heard = bench.complete(bench.ask(&conversation, &Arc::default(), 5_000));
    assert_eq!(heard.text, format!("First.{BAD} rest"));
    assert_eq!(heard.finished().reason, FinishReason::EndOfTurn);
    assert_eq!(heard.finished().answer.outcome, Some(ToolOutcome::Failed));
}

#[test]
fn a_block_that_was_seen_is_not_tried_again() {
    let seen = CALL.replace("</｜DSML｜parameter>", "</｜DSML｜parameter>x");
    let bench = scripted(&[&seen, CALL]);
    let heard = bench.complete(bench.ask(&question(ThinkingMode::Off), &Arc::default(), 5_000));
    assert!(!heard.events.contains(&Event::Retrying));
    assert_eq!((heard.finished().answer.calls, heard.text.as_str()), (0, ""));
    assert_eq!(heard.finished().reason, FinishReason::EndOfTurn);
}

#[test]
fn a_budget_that_is_used_up_leaves_no_second_attempt() {
    let bench = scripted(&[BAD, CALL]);
    let mut conversation = question(ThinkingMode::Off);
    conversation.tools.release = CallRelease::Whole;
    let spent = crate::support::vocabulary::tokens(BAD).len() as u32;
    let heard = bench.complete(bench.ask(&conversation, &Arc::default(), spent + 5));
    assert!(!heard.events.contains(&Event::Retrying));
    assert_eq!((heard.text.as_str(), &heard.finished().reason), (BAD, &FinishReason::EndOfTurn));
}

fn text(event: &Event) -> Option<String> {
    match event {
        Event::Delta(delta) => Some(delta.text.clone()),
        _ => None,
    }
}
