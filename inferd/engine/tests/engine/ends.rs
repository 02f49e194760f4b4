//! What an answer says and how it ends.

use crate::support::model::{hash_rule, script_rule};
use crate::support::vocabulary::{ASSISTANT, BOS, THINK, USER, tokens};
use crate::support::{Bench, Heard};
use ds4_engine::{Channel, EngineOptions, Event, FinishReason, GenerateRequest, ReuseKind};
use ds4_model::{Conversation, Prompt, PromptCodec, PromptRecord};
use ds4_units::{TokenId, Tokens};
use std::sync::Arc;

/// A bench whose model says `answer` to every question.
fn scripted(answer: &str) -> Bench {
    Bench::new(script_rule(tokens(answer)), 1_000, EngineOptions::default())
}

/// A question that is answered after `opening`.
fn question(bench: &Bench, opening: TokenId, max_tokens: u32) -> GenerateRequest {
    let mut prompt = Prompt::new();
    prompt.push_control(BOS);
    prompt.push_control(USER);
    prompt.push_text("Why?");
    prompt.push_control(ASSISTANT);
    prompt.push_control(opening);
    GenerateRequest {
        reader: bench.codec.read_answer(&prompt, &Conversation::default(), &Arc::default()),
        prompt: PromptRecord::new(&prompt, &bench.tokenizer),
        ..bench.request("", max_tokens)
    }
}

fn ask(answer: &str, stop: &[&str], max_tokens: u32) -> Heard {
    let bench = scripted(answer);
    let stop = stop.iter().map(|stop| stop.to_string()).collect();
    bench.complete(GenerateRequest { stop, ..question(&bench, crate::support::vocabulary::THINK_END, max_tokens) })
}

#[test]
fn an_answer_ends_where_the_model_ends_it() {
    let heard = ask("Because.", &[], 100);
    assert_eq!(heard.text, "Because.");
    assert_eq!(heard.ids, tokens("Because."));
    let finished = heard.finished();
    assert_eq!(finished.reason, FinishReason::EndOfTurn);
    assert_eq!(finished.usage.prompt_tokens, Tokens(8));
    assert_eq!(finished.usage.completion_tokens, Tokens(8));
    assert_eq!(finished.usage.reasoning_tokens, Tokens(0));
    assert_eq!(finished.timings.reuse, ReuseKind::Cold);
    assert!(matches!(heard.events[0], Event::Started(_)));
}

#[test]
fn a_budget_ends_an_answer_with_length() {
    let heard = ask("Because.", &[], 3);
    assert_eq!((heard.text.as_str(), &heard.finished().reason), ("Bec", &FinishReason::Length));
    assert_eq!(heard.finished().usage.completion_tokens, Tokens(3));
}

#[test]
fn a_budget_of_nothing_fills_the_bank_and_draws_nothing() {
    let heard = ask("Because.", &[], 0);
    assert_eq!((heard.text.as_str(), &heard.finished().reason), ("", &FinishReason::Length));
    assert_eq!(heard.finished().timings.first_token, None);
}

#[test]
fn a_stop_string_across_tokens_ends_the_answer_before_it() {
    let heard = ask("Yes.\n\nHuman: more", &["\n\nHuman:"], 100);
    assert_eq!(heard.text, "Yes.");
    assert_eq!(heard.finished().reason, FinishReason::StopString("\n\nHuman:".into()));
}

#[test]
fn a_half_stop_string_at_the_end_is_text() {
    let heard = ask("Yes.\n\nHu", &["\n\nHuman:"], 100);
    assert_eq!((heard.text.as_str(), &heard.finished().reason), ("Yes.\n\nHu", &FinishReason::EndOfTurn));
}

#[test]
fn no_delta_ends_inside_a_character() {
    let heard = ask("a😀é", &[], 100);
    let texts: Vec<&str> = deltas(&heard).map(|(_, text)| text).collect();
    assert_eq!(texts, ["a", "😀", "é"]);
    assert_eq!(heard.ids.len(), 7);
}

#[test]
fn a_character_cut_by_the_budget_becomes_one_replacement_character() {
    let heard = ask("a😀", &[], 4);
    assert_eq!(heard.text, "a\u{FFFD}");
    assert_eq!(heard.ids.len(), 4);
}

#[test]
fn reasoning_is_its_own_channel_and_no_stop_string_fires_in_it() {
    let bench = scripted("hm STOP</think>Yes STOP no");
    let heard = bench.complete(GenerateRequest { stop: vec!["STOP".into()], ..question(&bench, THINK, 100) });
    let of = |channel| deltas(&heard).filter(|(found, _)| *found == channel).map(|(_, text)| text).collect::<String>();
    assert_eq!(of(Channel::Reasoning), "hm STOP");
    assert_eq!(of(Channel::Content), "Yes ");
    assert_eq!(heard.finished().reason, FinishReason::StopString("STOP".into()));
    assert_eq!(heard.finished().usage.reasoning_tokens, Tokens(7));
}

#[test]
fn an_answer_that_ends_while_reasoning_counts_as_cut_off() {
    let bench = scripted("hm");
    let heard = bench.complete(question(&bench, THINK, 100));
    assert_eq!((heard.text.as_str(), &heard.finished().reason), ("hm", &FinishReason::Length));
    assert_eq!(heard.finished().usage.reasoning_tokens, Tokens(2));
}

#[test]
fn the_budget_is_cut_to_the_room_that_is_left() {
    let bench = Bench::new(hash_rule(), 20, EngineOptions::default());
    let heard = bench.complete(bench.request("twelve chars", 1_000));
    assert_eq!(heard.finished().usage.completion_tokens, Tokens(7));
    assert_eq!(heard.finished().reason, FinishReason::Length);
}

#[test]
fn log_probabilities_come_for_every_drawn_token_the_last_included() {
    let bench = scripted("ok");
    let request = question(&bench, crate::support::vocabulary::THINK_END, 100);
    let heard = bench.complete(GenerateRequest { top_logprobs: Some(2), ..request });
    let positions: Vec<_> = heard
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Logprobs(position) => Some(position),
            _ => None,
        })
        .collect();
    let drawn: Vec<TokenId> = positions.iter().map(|position| position.drawn.token).collect();
    assert_eq!(drawn, tokens("ok<eos>"));
    assert!(positions.iter().all(|position| position.top.len() == 2 && position.top[0] == position.drawn));
}

fn deltas(heard: &Heard) -> impl Iterator<Item = (Channel, &str)> {
    heard.events.iter().filter_map(|event| match event {
        Event::Delta(delta) => Some((delta.channel, delta.text.as_str())),
        _ => None,
    })
}
