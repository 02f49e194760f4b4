//! Finished conversations are continued, cut back and copied, and never change an answer.

use crate::support::model::{hash_rule, script_rule};
use crate::support::vocabulary::tokens;
use crate::support::{Bench, Heard, hear};
use ds4_engine::{EngineOptions, GenerateRequest, ReuseKind};
use ds4_model::{Conversation, Prompt, PromptCodec, PromptRecord};
use std::sync::Arc;

fn bench(banks: usize) -> Bench {
    Bench::new(hash_rule(), 2_000, EngineOptions { banks, ..EngineOptions::default() })
}

fn reuse(heard: &Heard) -> (ReuseKind, u32) {
    (heard.finished().timings.reuse, heard.finished().usage.cached_tokens.0)
}

fn trusted(bench: &Bench, prompt: &Prompt, max_tokens: u32) -> GenerateRequest {
    GenerateRequest {
        reader: bench.codec.read_answer(prompt, &Conversation::default(), &Arc::default()),
        prompt: PromptRecord::new(prompt, &bench.tokenizer),
        ..bench.request("", max_tokens)
    }
}

#[test]
fn the_next_turn_of_a_conversation_computes_only_what_is_new() {
    let bench = Bench::new(script_rule(tokens("Fine.")), 500, EngineOptions::default());
    let turn = |text: &str| trusted(&bench, &bench.tokenizer.parse_trusted(text), 50);
    let first = bench.complete(turn("<bos><user>How?<assistant></think>"));
    assert_eq!((first.text.as_str(), reuse(&first)), ("Fine.", (ReuseKind::Cold, 0)));
    let next = bench.complete(turn("<bos><user>How?<assistant></think>Fine.<eos><user>Good.<assistant></think>"));
    // The prompt's 8 tokens and the answer's 5; the end mark was drawn but never computed.
    assert_eq!((next.text.as_str(), reuse(&next)), ("Fine.", (ReuseKind::Exact, 13)));
    assert_eq!(bench.controls.banks_open(), 1);
}

#[test]
fn the_same_prompt_again_is_found_before_its_last_token() {
    let bench = bench(4);
    let first = bench.complete(bench.request("again and again", 10));
    let second = bench.complete(bench.request("again and again", 10));
    assert_eq!(first.text, second.text);
    assert_eq!(reuse(&second), (ReuseKind::Fork, 15));
}

#[test]
fn a_bank_that_holds_just_this_prompt_computes_its_last_token_again() {
    let bench = bench(4);
    bench.complete(bench.request("again and again", 1));
    let second = bench.complete(bench.request("again and again", 10));
    assert_eq!(second.finished().usage.completion_tokens.0, 10);
    assert_eq!(reuse(&second), (ReuseKind::Fork, 15));
}

#[test]
fn with_one_bank_a_conversation_is_cut_back_in_place() {
    let bench = bench(1);
    let first = bench.complete(bench.request("again and again", 10));
    let second = bench.complete(bench.request("again and again", 10));
    assert_eq!(first.text, second.text);
    assert_eq!(reuse(&second), (ReuseKind::Partial, 15));
    assert_eq!(bench.controls.banks_open_most(), 1);
}

#[test]
fn a_prompt_shares_the_beginning_of_one_that_is_still_running() {
    let bench = bench(4);
    let shared = "s".repeat(200);
    bench.controls.hold();
    let first = bench.submit(bench.request(&shared, 50));
    bench.controls.allow(4);
    bench.controls.wait_for_steps(5);
    let second = bench.submit(bench.request(&format!("{shared} and more"), 5));
    bench.controls.release();
    assert!(hear(first).end.is_ok());
    assert_eq!(reuse(&hear(second)), (ReuseKind::Fork, 200));
}

#[test]
fn the_least_recently_used_bank_makes_room() {
    let bench = bench(2);
    bench.complete(bench.request("first conversation", 1));
    bench.complete(bench.request("second conversation", 1));
    bench.complete(bench.request("first conversation goes on", 1));
    bench.complete(bench.request("third conversation", 1));
    // The second was the oldest; the first is still there.
    assert_eq!(reuse(&bench.complete(bench.request("first conversation goes on further", 1))).0, ReuseKind::Exact);
    assert_eq!(bench.controls.banks_open_most(), 2);
}

#[test]
fn typed_control_spellings_never_match_control_tokens() {
    let bench = bench(4);
    bench.complete(trusted(&bench, &bench.tokenizer.parse_trusted("<bos><user>hello"), 5));
    let mut typed = bench.codec.render_raw("<user>hello");
    typed.push_text("!");
    let heard = bench.complete(trusted(&bench, &typed, 5));
    assert_eq!(reuse(&heard), (ReuseKind::Cold, 0));
}

#[test]
fn a_reused_beginning_never_changes_an_answer() {
    let warm = bench(3);
    for length in [5, 40, 41, 39, 12, 80, 3, 80, 41] {
        let prompt = "x".repeat(length);
        let expected = bench(1).complete(bench(1).request(&prompt, 12)).text;
        assert_eq!(warm.complete(warm.request(&prompt, 12)).text, expected, "{length}");
    }
}
