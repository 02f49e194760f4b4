//! Which finished conversations keep their banks: those of passers-by never, those of running tools for a while.

use crate::support::model::script_rule;
use crate::support::vocabulary::tokens;
use crate::support::{Bench, Heard, TestWatch, hear};
use ds4_engine::{EngineOptions, FinishReason, GenerateRequest, Keep, ReuseKind};
use ds4_model::{
    AnswerEnd, AnswerEvent, AnswerPosition, AnswerReader, AnswerSummary, Conversation, Ending, PromptCodec,
    PromptRecord,
};
use ds4_units::{TokenId, Tokens};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Answers are `Fine.`, and end.
fn bench(banks: usize, room: Option<u64>) -> (Bench, TestWatch) {
    Bench::by_watch(script_rule(tokens("Fine.")), EngineOptions { banks, ..EngineOptions::default() }, room)
}

/// An answer that counts as one that called a tool.
struct Calling(Box<dyn AnswerReader>);

impl AnswerReader for Calling {
    fn push(&mut self, token: TokenId, events: &mut Vec<AnswerEvent>) {
        self.0.push(token, events);
    }

    fn position(&self) -> AnswerPosition {
        self.0.position()
    }

    fn finish(&mut self, ending: Ending, events: &mut Vec<AnswerEvent>) -> AnswerEnd {
        match self.0.finish(ending, events) {
            AnswerEnd::Done(summary) => AnswerEnd::Done(AnswerSummary { calls: 1, ..summary }),
            again => again,
        }
    }
}

/// The next answer to a text in which control tokens are spelled out.
fn turn(bench: &Bench, text: &str) -> GenerateRequest {
    let prompt = bench.tokenizer.parse_trusted(text);
    let reader = bench.codec.read_answer(&prompt, &Conversation::default(), &Arc::default());
    GenerateRequest { reader, prompt: PromptRecord::new(&prompt, &bench.tokenizer), ..bench.request("", 50) }
}

fn calling(bench: &Bench, text: &str) -> GenerateRequest {
    let request = turn(bench, text);
    GenerateRequest { reader: Box::new(Calling(request.reader)), ..request }
}

fn passing(bench: &Bench, text: &str) -> GenerateRequest {
    GenerateRequest { max_tokens: Tokens(1), keep: Keep::Nothing, ..turn(bench, text) }
}

fn question(name: &str) -> String {
    format!("<bos><user>{name} asks about the weather<assistant></think>")
}

/// What comes after the tool has run.
fn follow_up(name: &str) -> String {
    format!("{}Fine.<eos><user>it rains<assistant></think>", question(name))
}

/// Returns once so many banks are open: a bank is closed a moment after its answer's end was heard.
fn wait_for_banks(bench: &Bench, count: usize) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while bench.controls.banks_open() != count {
        assert!(Instant::now() < deadline, "{} banks are open, not {count}", bench.controls.banks_open());
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn reuse(heard: &Heard) -> ReuseKind {
    heard.finished().timings.reuse
}

#[test]
fn a_passer_by_takes_no_bank_from_a_conversation() {
    let (bench, _) = bench(1, None);
    bench.complete(turn(&bench, &question("ann")));
    for _ in 0..15 {
        bench.complete(passing(&bench, "<bos><user>count me<assistant></think>"));
    }
    wait_for_banks(&bench, 1);
    assert_eq!(bench.controls.banks_open_most(), 2, "one beside, and not kept");
    assert_eq!(reuse(&bench.complete(turn(&bench, &follow_up("ann")))), ReuseKind::Exact);
}

#[test]
fn a_passer_by_takes_a_copy_of_what_it_shares_and_leaves_the_rest_as_it_was() {
    let (bench, _) = bench(2, None);
    bench.complete(turn(&bench, &question("ann")));
    // The very continuation that the bank is kept for, asked for one token only.
    let passed = bench.complete(passing(&bench, &follow_up("ann")));
    assert_eq!((reuse(&passed), passed.finished().reason.clone()), (ReuseKind::Fork, FinishReason::Length));
    wait_for_banks(&bench, 1);
    assert_eq!(reuse(&bench.complete(turn(&bench, &follow_up("ann")))), ReuseKind::Exact);
}

#[test]
fn a_prompt_computed_ahead_is_kept_where_a_bank_is_free() {
    let (bench, _) = bench(2, None);
    let ahead =
        |name: &str| GenerateRequest { max_tokens: Tokens(0), keep: Keep::IfFree, ..turn(&bench, &question(name)) };
    bench.complete(turn(&bench, &question("ann")));
    bench.complete(ahead("bob"));
    bench.complete(ahead("eve"));
    wait_for_banks(&bench, 2);
    assert_eq!(reuse(&bench.complete(turn(&bench, &follow_up("ann")))), ReuseKind::Exact);
    assert_eq!(reuse(&bench.complete(turn(&bench, &question("bob")))), ReuseKind::Fork, "it was kept");
}

#[test]
fn a_bank_waits_for_its_tools_while_others_run_beside_it() {
    let (bench, watch) = bench(1, None);
    let first = bench.complete(calling(&bench, &question("ann")));
    assert_eq!(first.finished().reason, FinishReason::ToolCalls);
    watch.pass(59);
    for name in ["bob", "eve"] {
        bench.complete(turn(&bench, &question(name)));
    }
    assert_eq!(bench.controls.banks_open_most(), 2, "one beside, and no more");
    assert_eq!(reuse(&bench.complete(turn(&bench, &follow_up("ann")))), ReuseKind::Exact);
}

#[test]
fn after_its_grace_a_bank_is_like_any_other() {
    let (bench, watch) = bench(1, None);
    bench.complete(calling(&bench, &question("ann")));
    watch.pass(60);
    bench.complete(turn(&bench, &question("bob")));
    assert_eq!(bench.controls.banks_open_most(), 1);
    assert_eq!(reuse(&bench.complete(turn(&bench, &follow_up("bob")))), ReuseKind::Exact);
}

#[test]
fn a_plain_answer_is_not_waited_for() {
    let (bench, _) = bench(1, None);
    bench.complete(turn(&bench, &question("ann")));
    bench.complete(turn(&bench, &question("bob")));
    assert_eq!(bench.controls.banks_open_most(), 1);
}

#[test]
fn a_client_that_changes_what_it_repeats_still_ends_the_grace() {
    let (bench, _) = bench(1, None);
    bench.complete(calling(&bench, &question("ann")));
    // It left its answer out: only the question is shared, and that is what was waited for.
    let edited = format!("{}Else.<eos><user>it rains<assistant></think>", question("ann"));
    let heard = bench.complete(turn(&bench, &edited));
    assert_eq!((reuse(&heard), bench.controls.banks_open_most()), (ReuseKind::Partial, 1));
}

/// Room for one conversation of 100 tokens, whose tool is running.
fn full_of_ann() -> (Bench, TestWatch) {
    let (bench, watch) = bench(4, Some(100));
    bench.complete(calling(&bench, &question("ann")));
    (bench, watch)
}

fn wants(bench: &Bench, text: &str, tokens: u32) -> GenerateRequest {
    GenerateRequest { max_tokens: Tokens(tokens), ..turn(bench, text) }
}

/// Returns once the engine has looked at everything that waits, more than once.
fn let_it_look() {
    std::thread::sleep(Duration::from_millis(100));
}

#[test]
fn who_needs_the_memory_of_a_running_tool_lets_its_result_pass() {
    let (bench, _) = full_of_ann();
    let bob = bench.submit(wants(&bench, &question("bob"), 50));
    let_it_look();
    assert_eq!((bench.controls.banks_open(), bench.engine.handle().queued()), (1, 1), "bob waits");
    let ann = bench.complete(wants(&bench, &follow_up("ann"), 20));
    assert_eq!(reuse(&ann), ReuseKind::Exact, "ann passed");
    // Ann's answer called nothing this time: nobody is waited for any more.
    assert_eq!(reuse(&hear(bob)), ReuseKind::Cold);
}

#[test]
fn the_wait_for_a_running_tool_has_an_end() {
    let (bench, watch) = full_of_ann();
    let bob = bench.submit(wants(&bench, &question("bob"), 50));
    let_it_look();
    assert_eq!(bench.engine.handle().queued(), 1);
    watch.pass(60);
    assert_eq!(reuse(&hear(bob)), ReuseKind::Cold);
}

#[test]
fn graces_that_are_renewed_for_ever_hold_up_nobody_for_longer_than_one() {
    let (bench, watch) = full_of_ann();
    let bob = bench.submit(wants(&bench, &question("bob"), 50));
    let_it_look();
    watch.pass(40);
    let again = calling(&bench, &follow_up("ann"));
    bench.complete(GenerateRequest { max_tokens: Tokens(20), ..again });
    let_it_look();
    assert_eq!(bench.engine.handle().queued(), 1, "ann's tool runs again");
    watch.pass(20);
    assert_eq!(reuse(&hear(bob)), ReuseKind::Cold);
}

#[test]
fn a_follow_up_that_has_to_wait_finds_its_bank_when_its_turn_comes() {
    let (bench, watch) = bench(1, None);
    bench.complete(calling(&bench, &question("ann")));
    bench.controls.hold();
    let mut begun = bench.controls.steps().len() + 1;
    let bob = bench.submit(turn(&bench, &question("bob")));
    bench.controls.wait_for_steps(begun);
    // Between two steps the engine looks into its inbox.
    let mut next_step = || {
        begun += 1;
        bench.controls.allow(1);
        bench.controls.wait_for_steps(begun);
    };
    watch.pass(40);
    let eve = bench.submit(turn(&bench, &question("eve")));
    next_step();
    watch.pass(10);
    let ann = bench.submit(turn(&bench, &follow_up("ann")));
    next_step();
    // The grace of her calls ends while she waits behind eve.
    watch.pass(20);
    bench.controls.release();
    assert_eq!(reuse(&hear(ann)), ReuseKind::Exact);
    assert!(hear(bob).end.is_ok() && hear(eve).end.is_ok());
}

#[test]
fn a_reader_that_leaves_while_it_is_held_up_is_noticed() {
    let (bench, _) = full_of_ann();
    drop(bench.submit(wants(&bench, &question("bob"), 50)));
    let deadline = Instant::now() + Duration::from_secs(60);
    while bench.engine.handle().observatory().stats().canceled == 0 {
        assert!(Instant::now() < deadline, "{} wait", bench.engine.handle().queued());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(bench.engine.handle().queued(), 0);
}

#[test]
fn a_running_answer_gets_the_memory_of_a_kept_one_even_in_its_grace() {
    let options = EngineOptions { banks: 4, charged_tokens: Tokens(16), ..EngineOptions::default() };
    let (bench, _) = Bench::by_watch(script_rule(tokens("Fine.")), options, Some(200));
    bench.complete(calling(&bench, &question("ann")));
    // A text without an answer's opening goes on for ever.
    let long = bench.complete(bench.request("long", 180));
    assert_eq!(long.finished().usage.completion_tokens, Tokens(180));
    wait_for_banks(&bench, 1);
}

#[test]
fn a_passer_by_that_memory_is_kept_from_keeps_nobody_else_waiting() {
    let (bench, _) = bench(8, Some(1_000));
    bench.complete(bench.request(&"kept ".repeat(100), 10));
    wait_for_banks(&bench, 1);
    bench.controls.hold();
    let runs = bench.submit(bench.request("runs on", 392));
    bench.controls.wait_for_steps(1);
    let passes = GenerateRequest { keep: Keep::Nothing, ..bench.request(&"p".repeat(299), 1) };
    let passes = bench.submit(passes);
    let next = bench.submit(bench.request("next", 195));
    // The kept conversation goes for it, which it may not for who passes.
    bench.controls.allow(20);
    let deadline = Instant::now() + Duration::from_secs(60);
    while bench.engine.handle().observatory().stats().running < 2 {
        assert!(Instant::now() < deadline, "the next one does not run");
        std::thread::sleep(Duration::from_millis(1));
    }
    bench.controls.release();
    assert!([next, passes, runs].into_iter().all(|stream| hear(stream).end.is_ok()));
}
