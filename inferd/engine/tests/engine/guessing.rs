//! Answers are the same with guesses and without, whatever the guesses are worth.

use crate::support::model::{DRAFT_ROWS, hash_rule, script_rule};
use crate::support::vocabulary::{ASSISTANT, BOS, THINK, USER, tokens};
use crate::support::{Bench, Heard, hear};
use ds4_engine::{
    EngineOptions, Event, FinishReason, GenerateRequest, RequestFault, Sampling, SpeculationOptions, Stats,
};
use ds4_model::{ConstraintFault, ConstraintScope, Prompt, PromptRecord, TokenConstraint, TokenSet};
use ds4_units::TokenId;

fn options(ahead: Option<usize>) -> EngineOptions {
    let speculation = ahead.map(|ahead| SpeculationOptions { ahead, margin: 0.0 });
    EngineOptions { banks: 4, speculation, ..EngineOptions::default() }
}

/// Allows only letters that are not what the one before was.
#[derive(Default)]
struct NoTwins(Option<TokenId>);

impl TokenConstraint for NoTwins {
    fn scope(&self) -> ConstraintScope {
        ConstraintScope::Content
    }

    fn allow(&mut self, allowed: &mut TokenSet) -> Result<(), ConstraintFault> {
        let last = self.0;
        allowed.clear();
        (97..123).map(TokenId).filter(|&token| Some(token) != last).for_each(|token| allowed.insert(token));
        Ok(())
    }

    fn commit(&mut self, token: TokenId) -> Result<(), ConstraintFault> {
        self.0 = Some(token);
        Ok(())
    }

    fn restart(&mut self) {
        self.0 = None;
    }
}

/// Requests of all kinds: greedy and drawn, masked, with logarithms, with stop strings, and of many lengths.
fn request(bench: &Bench, nth: usize) -> GenerateRequest {
    let mut request = bench.request(&format!("{nth}: once upon a time"), 3 + (nth as u32 * 7) % 60);
    match nth % 5 {
        0 => {}
        1 => request.sampling = Sampling { seed: Some(nth as u64), ..Sampling::DEFAULT },
        2 => request.constraints = vec![Box::new(NoTwins::default())],
        3 => {
            request.top_logprobs = Some(2);
            request.sampling = Sampling { temperature: 0.3, seed: Some(7), ..Sampling::DEFAULT };
        }
        _ => request.stop = vec![String::from_utf8(vec![b'a' + (nth % 26) as u8]).unwrap()],
    }
    request
}

/// What does not depend on time and on steps: text and tokens joined, logarithms, the end.
fn essence(heard: &Heard) -> (String, Vec<TokenId>, Vec<String>, String) {
    let logprobs = heard.events.iter().filter(|event| matches!(event, Event::Logprobs(_)));
    let finished = heard.finished();
    let end = format!("{:?} {:?}", finished.reason, finished.usage);
    (heard.text.clone(), heard.ids.clone(), logprobs.map(|event| format!("{event:?}")).collect(), end)
}

/// All requests, so many at a time, each followed by its next turn.
fn run(bench: &Bench, company: usize) -> Vec<(String, Vec<TokenId>, Vec<String>, String)> {
    let mut all = Vec::new();
    let numbers: Vec<usize> = (0..20).collect();
    for group in numbers.chunks(company) {
        let streams: Vec<_> = group.iter().map(|&nth| bench.submit(request(bench, nth))).collect();
        for (stream, &nth) in streams.into_iter().zip(group) {
            let heard = hear(stream);
            let text = format!("{nth}: once upon a time{} and so", heard.text);
            all.push(essence(&heard));
            all.push(essence(&bench.complete(bench.request(&text, 6))));
        }
    }
    all
}

fn stats(bench: &Bench) -> Stats {
    bench.engine.handle().observatory().stats()
}

#[test]
fn answers_are_the_same_with_guesses_and_without() {
    let want = run(&Bench::new(hash_rule(), 2_000, options(None)), 1);
    let (mut guesses, mut right) = (0, 0);
    for (ahead, wrong_every, company) in [(1, 0, 1), (3, 3, 1), (4, 2, 3), (2, 1, 2), (7, 5, 4)] {
        let bench = Bench::new(hash_rule(), 2_000, options(Some(ahead)));
        bench.controls.guess_wrong_every(wrong_every);
        let got = run(&bench, company);
        for (nth, (got, want)) in got.iter().zip(&want).enumerate() {
            assert_eq!(got, want, "answer {nth} with {ahead} guesses, every {wrong_every}th wrong, {company} at once");
        }
        let stats = stats(&bench);
        assert!(stats.guesses_right <= stats.guesses);
        assert!(wrong_every != 1 || stats.guesses_right == 0, "{stats:?}");
        guesses += stats.guesses;
        right += stats.guesses_right;
    }
    assert!(guesses > 50 && right > 20, "{guesses} guesses, {right} right: the test says nothing");
}

#[test]
fn a_stop_string_inside_of_right_guesses_ends_the_answer_there() {
    let bench = Bench::new(script_rule(tokens("one two three four five six seven")), 2_000, options(Some(6)));
    let question = || {
        let mut prompt = Prompt::new();
        [BOS, USER].into_iter().for_each(|token| prompt.push_control(token));
        prompt.push_text("Count.");
        [ASSISTANT, THINK].into_iter().for_each(|token| prompt.push_control(token));
        GenerateRequest { prompt: PromptRecord::new(&prompt, &bench.tokenizer), ..bench.request("", 40) }
    };
    // Times are measured by the first answer, so that the second has guesses.
    assert_eq!(bench.complete(question()).finished().reason, FinishReason::EndOfTurn);
    let stopped = GenerateRequest { stop: vec!["ee f".to_owned()], ..question() };
    let heard = bench.complete(stopped);
    assert_eq!(heard.text, "one two thr");
    assert_eq!(heard.finished().reason, FinishReason::StopString("ee f".to_owned()));
    // The bank holds what was computed of the answer, and no guess beyond it: the next turn goes on from it.
    let again = bench.complete(question());
    assert_eq!(again.text, "one two three four five six seven");
}

#[test]
fn a_failing_step_with_guesses_fails_as_one_without() {
    let bench = Bench::new(hash_rule(), 2_000, options(Some(3)));
    bench.complete(bench.request("warm", 40));
    let want = bench.complete(bench.request("others", 30)).answer();
    bench.controls.hold();
    let (first, second) = (bench.submit(bench.request("others", 30)), bench.submit(bench.request("again", 30)));
    for step in 50..60 {
        bench.controls.fail_step(step);
    }
    bench.controls.release();
    // Whatever fails, what is heard before it is the beginning of the answer.
    let heard = hear(first);
    assert!(want.0.starts_with(&heard.text), "{} is no beginning of {}", heard.text, want.0);
    drop(second);
}

#[test]
fn guesses_that_a_bank_cannot_take_end_the_request_and_its_bank() {
    let bench = Bench::new(hash_rule(), 2_000, options(Some(2)));
    bench.controls.refuse_guesses();
    let ends: Vec<Heard> = (0..6).map(|nth| bench.complete(bench.request(&format!("{nth}"), 60))).collect();
    assert!(ends.iter().any(|heard| matches!(&heard.end, Err(RequestFault::Step(_)))), "nothing was guessed");
    let failed = ends.iter().filter(|heard| heard.end.is_err()).count();
    // The last request is heard to end before its bank is closed.
    assert!(bench.controls.banks_open() <= ends.len() - failed + 1);
}

#[test]
fn no_step_with_guesses_has_too_many_rows_and_long_prompts_beside_answers_push_guesses_aside() {
    let bench = Bench::new(hash_rule(), 3_000, options(Some(7)));
    bench.complete(bench.request("warm", 60));
    let writing = bench.submit(bench.request("writing", 400));
    let long = "long ".repeat(300);
    let reading: Vec<_> = (0..3).map(|nth| bench.submit(bench.request(&format!("{nth}{long}"), 30))).collect();
    let text = hear(writing).text;
    reading.into_iter().for_each(|stream| assert!(hear(stream).end.is_ok()));
    assert_eq!(text.len(), 400);
    // The model itself refuses a step of guesses with more rows than these.
    assert!(stats(&bench).guesses > 0 && DRAFT_ROWS < 300);
}

#[test]
fn readers_that_leave_take_their_guesses_with_them() {
    let bench = Bench::new(hash_rule(), 2_000, options(Some(4)));
    bench.complete(bench.request("warm", 60));
    for nth in 0..10 {
        let mut stream = bench.submit(bench.request(&format!("leaving {nth}"), 500));
        for _ in 0..5 + nth {
            stream.blocking_next();
        }
        drop(stream);
    }
    let heard = bench.complete(bench.request("staying", 30));
    assert_eq!(heard.text.len(), 30);
}
