//! What was likely at each position of a prompt.

use crate::support::model::hash_rule;
use crate::support::{Bench, Heard};
use ds4_engine::{EngineOptions, Event, GenerateRequest, PROMPT_LOGPROBS_ROWS, PositionLogprobs, ReuseKind};
use ds4_units::Tokens;

fn bench() -> Bench {
    Bench::new(hash_rule(), 2_000, EngineOptions::default())
}

fn asking(bench: &Bench, prompt: &str, max_tokens: u32) -> GenerateRequest {
    GenerateRequest { top_logprobs: Some(2), prompt_logprobs: true, ..bench.request(prompt, max_tokens) }
}

fn of_prompt(heard: &Heard) -> Vec<PositionLogprobs> {
    let some = |event: &Event| match event {
        Event::PromptLogprobs(some) => Some(some.clone()),
        _ => None,
    };
    heard.events.iter().filter_map(some).flatten().collect()
}

#[test]
fn every_token_of_a_prompt_but_the_first_has_its_probability() {
    let bench = bench();
    let prompt = "a prompt that is longer than what one step may look at, by a good deal, and a little more than that";
    let request = asking(&bench, prompt, 3);
    let tokens = request.prompt.tokens().to_vec();
    assert!(tokens.len() > PROMPT_LOGPROBS_ROWS);
    let heard = bench.complete(request);
    let found = of_prompt(&heard);
    assert_eq!(found.iter().map(|position| position.drawn.token).collect::<Vec<_>>(), tokens[1..]);
    assert!(found.iter().all(|position| position.top.len() == 2 && position.drawn.logprob <= position.top[0].logprob));
    assert_eq!(heard.ids.len(), 3, "the answer follows as ever");
    assert_eq!(heard.answer(), bench.complete(bench.request(prompt, 3)).answer());
    assert!(bench.controls.logits_rows_most() <= PROMPT_LOGPROBS_ROWS, "memory is bounded");
}

#[test]
fn a_warm_bank_is_not_used_because_it_has_no_logits() {
    let bench = bench();
    let first = of_prompt(&bench.complete(asking(&bench, "the same prompt again", 0)));
    let heard = bench.complete(asking(&bench, "the same prompt again", 0));
    assert_eq!(heard.finished().timings.reuse, ReuseKind::Cold);
    assert_eq!(heard.finished().usage.cached_tokens, Tokens(0));
    assert_eq!(of_prompt(&heard), first);
}

#[test]
fn company_changes_nothing() {
    let bench = bench();
    let alone = of_prompt(&bench.complete(asking(&bench, "one prompt among several others", 2)));
    bench.controls.hold();
    let others: Vec<_> = (0..3).map(|n| bench.submit(asking(&bench, &format!("{n}, another prompt"), 5))).collect();
    let this = bench.submit(asking(&bench, "one prompt among several others", 2));
    bench.controls.release();
    assert_eq!(of_prompt(&crate::support::hear(this)), alone);
    drop(others);
}
