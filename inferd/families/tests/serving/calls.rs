//! What a request with tools hears.

use crate::kit::{CALL, END, bench, calls, named, question, scripted};
use crate::support::vocabulary::{SIZE, tokens};
use ds4_engine::{Event, FinishReason, GenerateRequest, Sampling};
use ds4_model::{
    AnswerMemory, ConstraintFault, ConstraintScope, ThinkingMode, TokenConstraint, TokenSet, ToolChoice, ToolOutcome,
};
use ds4_units::{TokenId, Tokens};
use std::sync::Arc;

const ROOM: u32 = 5_000;

#[test]
fn an_answer_with_a_call_ends_with_the_call() {
    let bench = scripted(&[&format!("hm</think>Let me look.{CALL} and more")]);
    let heard = bench.complete(bench.ask(&question(ThinkingMode::On), &Arc::default(), ROOM));
    assert_eq!(heard.text, "hmLet me look.");
    assert_eq!(named(&calls(&heard)), [("bash", r#"{"command":"ls"}"#)]);
    let finished = heard.finished();
    assert_eq!((&finished.reason, finished.answer.outcome), (&FinishReason::ToolCalls, Some(ToolOutcome::Ok)));
    // Every drawn token is named once, those of the markup with the call.
    let ids = heard.events.iter().flat_map(|event| match event {
        Event::Delta(delta) => delta.token_ids.clone(),
        Event::Call(delta) => delta.token_ids.clone(),
        _ => Vec::new(),
    });
    let all: Vec<TokenId> = ids.collect();
    assert_eq!(all, tokens(&format!("hm</think>Let me look.{CALL}")));
    assert_eq!(finished.usage.completion_tokens, Tokens(all.len() as u32));
    assert_eq!(finished.usage.reasoning_tokens, Tokens(2));
}

#[test]
fn a_fragment_comes_within_one_step_of_its_tokens() {
    let bench = scripted(&[&format!("</think>{CALL}")]);
    bench.controls.hold();
    let mut stream = bench.submit(bench.ask(&question(ThinkingMode::On), &Arc::default(), ROOM));
    // Up to the value's two letters, and no further.
    let before = tokens(&format!("</think>{CALL}")).len()
        - tokens("</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>").len();
    let prompt = tokens("x").len();
    bench.controls.allow(before + prompt + 1);
    let mut json = String::new();
    while json != r#"{"command":"ls"# {
        let event = stream.blocking_next().expect("an event");
        if let Event::Call(delta) = event
            && let ds4_engine::CallEvent::Arguments { json: fragment, .. } = delta.event
        {
            json.push_str(&fragment);
        }
    }
    bench.controls.release();
}

#[test]
fn a_budget_that_ends_inside_a_call_is_length_and_after_it_is_not() {
    let exact = tokens(&format!("</think>{CALL}")).len() as u32;
    for cut in [10, 40, exact - 1] {
        let bench = scripted(&[&format!("</think>{CALL}")]);
        let heard = bench.complete(bench.ask(&question(ThinkingMode::On), &Arc::default(), cut));
        assert_eq!(heard.finished().reason, FinishReason::Length, "{cut}");
    }
    let bench = scripted(&[&format!("</think>{CALL}")]);
    let heard = bench.complete(bench.ask(&question(ThinkingMode::On), &Arc::default(), exact));
    assert_eq!(heard.finished().reason, FinishReason::ToolCalls);
}

#[test]
fn stop_strings_fire_in_text_and_not_in_arguments() {
    let bench = scripted(&[&format!("</think>a{CALL}")]);
    let ask = |stop: &str| {
        let request = bench.ask(&question(ThinkingMode::On), &Arc::default(), ROOM);
        bench.complete(GenerateRequest { stop: vec![stop.to_owned()], ..request })
    };
    assert_eq!(ask("ls").finished().reason, FinishReason::ToolCalls);
    assert_eq!(ask("a").finished().reason, FinishReason::StopString("a".into()));
    // Text that could still have become a stop string is text once a call comes.
    let heard = ask("ab");
    assert_eq!((heard.text.as_str(), calls(&heard).len()), ("a", 1));
}

#[test]
fn a_forced_call_needs_no_wish_of_the_model() {
    let opening = "\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"bash\">\n";
    let rest = "<｜DSML｜parameter name=\"command\" string=\"true\">ls</｜DSML｜parameter>\n</｜DSML｜invoke>";
    // What stands where the beginning is given would be another token each time.
    let unwilling = "x".repeat(tokens(opening).len());
    let bench = scripted(&[&format!("hm</think>{unwilling}{rest}")]);
    let mut conversation = question(ThinkingMode::On);
    conversation.tools.choice = ToolChoice::Named("bash".into());
    conversation.tools.parallel = false;
    let heard = bench.complete(bench.ask(&conversation, &Arc::default(), ROOM));
    assert_eq!(named(&calls(&heard)), [("bash", r#"{"command":"ls"}"#)]);
    assert_eq!((heard.text.as_str(), &heard.finished().reason), ("hm", &FinishReason::ToolCalls));
    let all = tokens(&format!("hm</think>{opening}{rest}\n</｜DSML｜tool_calls>")).len();
    assert_eq!(heard.finished().usage.completion_tokens, Tokens(all as u32));
}

#[test]
fn without_tools_markup_ends_the_answer_and_is_not_shown() {
    let bench = scripted(&[&format!("ok{CALL}")]);
    let mut conversation = question(ThinkingMode::Off);
    conversation.tools.choice = ToolChoice::Forbidden;
    let heard = bench.complete(bench.ask(&conversation, &Arc::default(), ROOM));
    assert_eq!((heard.text.as_str(), &heard.finished().reason), ("ok", &FinishReason::EndOfTurn));
}

/// A model that knows its markup only just: whatever is syntax is barely the likeliest.
fn hesitant() -> crate::support::model::Rule {
    let plan = tokens(&format!("{}{END}", CALL.trim_start()));
    let (opening, payload) = (tokens("<｜DSML｜tool_calls>").len(), tokens("ls"));
    Box::new(move |history| {
        let answer = history.iter().rposition(|&token| token == crate::support::vocabulary::FAMILY_ASSISTANT);
        let said = history.len() - answer.map_or(history.len(), |at| at + 2).min(history.len());
        let next = plan.get(said).copied().unwrap_or(plan[plan.len() - 1]);
        // The model must decide to call: the opening is certain. So is the value, whose letters are sampled.
        let value = payload.contains(&next) && said > opening;
        let certain = said < opening || value;
        let weight = if certain { 50.0 } else { 0.01 };
        (0..SIZE).map(|id| if id == next.index() { weight } else { 0.0 }).collect()
    })
}

#[test]
fn syntax_is_drawn_greedily_at_any_temperature() {
    for seed in 1..6 {
        let bench = bench(hesitant());
        let request = bench.ask(&question(ThinkingMode::Off), &Arc::default(), ROOM);
        let sampling = Sampling { seed: Some(seed), min_p: 0.0, ..Sampling::DEFAULT };
        let heard = bench.complete(GenerateRequest { sampling, ..request });
        let call = calls(&heard);
        assert_eq!(call.len(), 1, "{}", heard.text);
        assert_eq!(call[0].name, "bash");
    }
}

/// Allows capital letters and the end only, in the text of the answer.
struct Capitals {
    end: TokenId,
    seen: usize,
}

impl TokenConstraint for Capitals {
    fn scope(&self) -> ConstraintScope {
        ConstraintScope::Content
    }

    fn allow(&mut self, allowed: &mut TokenSet) -> Result<(), ConstraintFault> {
        allowed.clear();
        (b'A'..=b'Z').for_each(|letter| allowed.insert(TokenId(u32::from(letter))));
        if self.seen > 2 {
            allowed.clear();
            allowed.insert(self.end);
        }
        Ok(())
    }

    fn commit(&mut self, token: TokenId) -> Result<(), ConstraintFault> {
        self.seen += 1;
        if token.0 < 256 { Ok(()) } else { Err(ConstraintFault("no letter".into())) }
    }

    fn restart(&mut self) {
        self.seen = 0;
    }
}

#[test]
fn a_grammar_holds_the_text_and_leaves_the_reasoning_alone() {
    let bench = scripted(&["hm</think>never"]);
    let request = bench.ask(&question(ThinkingMode::On), &Arc::new(AnswerMemory::default()), ROOM);
    let constraint: Box<dyn TokenConstraint> = Box::new(Capitals { end: tokens(END)[0], seen: 0 });
    let heard = bench.complete(GenerateRequest { constraints: vec![constraint], ..request });
    assert!(heard.text.starts_with("hm") && heard.text.len() == 5, "{}", heard.text);
    assert!(heard.text[2..].bytes().all(|byte| byte.is_ascii_uppercase()), "{}", heard.text);
    assert_eq!(heard.finished().reason, FinishReason::EndOfTurn);
}
