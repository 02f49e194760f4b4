//! Conversations that outlive their bank and their process.

use crate::support::model::hash_rule;
use crate::support::{Bench, Heard, hear};
use ds4_engine::{DiskStats, EngineOptions, EventStream, ReuseKind};
use std::path::Path;
use std::time::Duration;

const NEVER: u32 = 0;

fn bench(folder: &Path, banks: usize, interval: u32) -> Bench {
    Bench::with_disk(hash_rule(), EngineOptions { banks, ..EngineOptions::default() }, folder, interval)
}

fn private_folder() -> (tempfile::TempDir, std::path::PathBuf) {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().join("kv");
    (temporary, folder)
}

fn reuse(heard: &Heard) -> (ReuseKind, u32) {
    (heard.finished().timings.reuse, heard.finished().usage.cached_tokens.0)
}

fn stats(bench: &Bench) -> DiskStats {
    bench.engine.handle().observatory().disk().expect("there is a folder")
}

fn quarantined(bench: &Bench) -> u64 {
    stats(bench).quarantined.iter().sum()
}

/// Returns once `done` holds of the disk.
fn wait_for(bench: &Bench, done: impl Fn(&DiskStats) -> bool) {
    for _ in 0..30_000 {
        if done(&stats(bench)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    panic!("the disk never came so far: {:?}", stats(bench));
}

/// What an engine that keeps nothing answers.
fn undisturbed(prompt: &str, tokens: u32) -> String {
    let bench = Bench::new(hash_rule(), 2_000, EngineOptions::default());
    bench.complete(bench.request(prompt, tokens)).text
}

#[test]
fn a_stopped_engine_leaves_its_conversations_to_the_next_one() {
    let (_temporary, folder) = private_folder();
    let first = bench(&folder, 4, NEVER);
    let answer = first.complete(first.request("how are you today", 20)).text;
    first.engine.stop().unwrap();
    let second = bench(&folder, 4, NEVER);
    assert!(stats(&second).files > 0);
    let prompt = format!("how are you today{answer} and tomorrow");
    let heard = second.complete(second.request(&prompt, 20));
    // The prompt's 18 tokens and the answer's 20, of which the last was drawn and never computed.
    assert_eq!(reuse(&heard), (ReuseKind::Disk, 37));
    assert_eq!(heard.text, undisturbed(&prompt, 20));
    assert_eq!(second.controls.steps()[0], [prompt.len() - 37]);
}

#[test]
fn a_killed_engine_loses_no_more_than_the_last_interval() {
    let (_temporary, folder) = private_folder();
    // Never stopped: what it wrote by itself is all there is.
    let killed = bench(&folder, 4, 16);
    let answer = killed.complete(killed.request("a question of some length, and more", 40)).text;
    wait_for(&killed, |stats| stats.saves.iter().sum::<u64>() >= 3);
    let second = bench(&folder, 4, 16);
    let prompt = format!("a question of some length, and more{answer}?");
    let heard = second.complete(second.request(&prompt, 10));
    let (kind, cached) = reuse(&heard);
    assert_eq!(kind, ReuseKind::Disk);
    assert!(cached as usize + 1 + 16 >= 35 + 40, "{cached} tokens were restored");
    assert_eq!(heard.text, undisturbed(&prompt, 10));
}

#[test]
fn a_conversation_whose_bank_was_needed_comes_back() {
    let (_temporary, folder) = private_folder();
    let bench = bench(&folder, 1, NEVER);
    let answer = bench.complete(bench.request("the first conversation", 10)).text;
    bench.complete(bench.request("another one altogether", 10));
    wait_for(&bench, |stats| stats.saves[2] == 1);
    let prompt = format!("the first conversation{answer} goes on");
    let heard = bench.complete(bench.request(&prompt, 10));
    assert_eq!(reuse(&heard), (ReuseKind::Disk, 32));
    assert_eq!(heard.text, undisturbed(&prompt, 10));
    assert_eq!(bench.controls.banks_open(), 1);
}

#[test]
fn a_prompt_is_saved_where_its_next_turn_may_part_from_it() {
    let (_temporary, folder) = private_folder();
    let bench = bench(&folder, 1, NEVER);
    bench.complete(bench.request("the same question", 10));
    wait_for(&bench, |stats| stats.saves[0] == 1);
    bench.complete(bench.request("something else", 10));
    let again = bench.complete(bench.request("the same question", 10));
    assert_eq!(reuse(&again), (ReuseKind::Disk, 17));
}

#[test]
fn what_a_bank_has_is_not_read_from_disk() {
    let (_temporary, folder) = private_folder();
    let bench = bench(&folder, 4, 8);
    let answer = bench.complete(bench.request("a conversation that goes on", 20)).text;
    wait_for(&bench, |stats| stats.saves.iter().sum::<u64>() > 0);
    let heard = bench.complete(bench.request(&format!("a conversation that goes on{answer} and on"), 5));
    assert_eq!(reuse(&heard).0, ReuseKind::Exact);
    assert_eq!(stats(&bench).loads, 0);
}

#[test]
fn a_stored_bank_that_the_model_refuses_is_set_aside_and_the_answer_is_the_same() {
    let (_temporary, folder) = private_folder();
    let first = bench(&folder, 4, NEVER);
    first.complete(first.request("how are you today", 20));
    first.engine.stop().unwrap();
    let second = bench(&folder, 4, NEVER);
    second.controls.refuse_images();
    let prompt = "how are you today, and tomorrow";
    let heard = second.complete(second.request(prompt, 20));
    assert_eq!(reuse(&heard).0, ReuseKind::Cold);
    assert_eq!(heard.text, undisturbed(prompt, 20));
    assert_eq!(quarantined(&second), 1);
    assert_eq!(second.controls.banks_open(), 1);
}

#[test]
fn a_restore_that_succeeds_and_holds_another_length_is_not_believed() {
    let (_temporary, folder) = private_folder();
    let first = bench(&folder, 4, NEVER);
    first.complete(first.request("how are you today", 20));
    first.engine.stop().unwrap();
    let second = bench(&folder, 4, NEVER);
    second.controls.shorten_images();
    let prompt = "how are you today, and tomorrow";
    let heard = second.complete(second.request(prompt, 20));
    assert_eq!(reuse(&heard), (ReuseKind::Cold, 0));
    assert_eq!(heard.text, undisturbed(prompt, 20));
    assert_eq!((quarantined(&second), second.controls.banks_open()), (1, 1));
}

/// An engine with a stored conversation, and one that writes a token whenever a step is allowed.
fn with_a_writer(folder: &Path) -> (Bench, String, EventStream) {
    let first = bench(folder, 4, NEVER);
    let answer = first.complete(first.request("how are you today", 20)).text;
    first.engine.stop().unwrap();
    let second = bench(folder, 4, NEVER);
    second.controls.hold();
    let writer = second.submit(second.request("somebody else writes", 1_000));
    second.controls.wait_for_steps(1);
    (second, format!("how are you today{answer} and tomorrow"), writer)
}

/// Allows one step after the other until so many parts have come.
fn step_until_parts(bench: &Bench, parts: usize) {
    for _ in 0..900 {
        if bench.controls.parts_came().len() >= parts {
            return;
        }
        bench.controls.allow(1);
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("{} of {parts} parts came", bench.controls.parts_came().len());
}

#[test]
fn whoever_writes_has_a_step_between_any_two_parts_of_a_conversation_that_comes_back() {
    let (_temporary, folder) = private_folder();
    let (bench, prompt, writer) = with_a_writer(&folder);
    bench.controls.import_in_parts(5);
    let restored = bench.submit(bench.request(&prompt, 20));
    step_until_parts(&bench, 5);
    bench.controls.release();
    let heard = hear(restored);
    assert_eq!(reuse(&heard), (ReuseKind::Disk, 37));
    assert_eq!(heard.text, undisturbed(&prompt, 20));
    let came = bench.controls.parts_came();
    assert!(came.len() == 5 && came.windows(2).all(|pair| pair[0] < pair[1]), "{came:?}");
    assert_eq!(hear(writer).finished().usage.completion_tokens.0, 1_000);
}

#[test]
fn a_client_that_leaves_while_its_conversation_comes_back_leaves_no_bank_behind() {
    let (_temporary, folder) = private_folder();
    let (bench, prompt, writer) = with_a_writer(&folder);
    bench.controls.import_in_parts(usize::MAX);
    let restored = bench.submit(bench.request(&prompt, 20));
    step_until_parts(&bench, 3);
    assert_eq!(bench.controls.banks_open(), 2);
    drop(restored);
    bench.controls.release();
    hear(writer);
    assert_eq!(bench.controls.banks_open(), 1);
}

#[test]
fn a_prompt_that_parts_from_what_is_stored_leaves_its_own_end_behind() {
    let (_temporary, folder) = private_folder();
    let shared = "a beginning that several conversations share, word by word";
    let prompt = |end: &str| format!("{shared} and then {end} for quite a while, so that it is worth keeping");
    let saves = |bench: &Bench| stats(bench).saves.iter().sum::<u64>();
    let first = bench(&folder, 4, 16);
    first.complete(first.request(&prompt("it rains"), 20));
    first.engine.stop().unwrap();
    // Never stopped: what it wrote by itself is all there is.
    let second = bench(&folder, 4, 16);
    let before = saves(&second);
    let parted = second.complete(second.request(&prompt("the sun shines"), 20));
    let (kind, cached) = reuse(&parted);
    assert_eq!(kind, ReuseKind::Cold, "{cached}: the first one's file goes beyond what both have in common");
    wait_for(&second, |stats| stats.saves.iter().sum::<u64>() > before);
    let third = bench(&folder, 4, 16);
    let again = third.complete(third.request(&prompt("the sun shines"), 20));
    assert_eq!(reuse(&again).0, ReuseKind::Disk);
    assert_eq!(again.text, parted.text);
}

#[test]
fn a_restored_conversation_that_cannot_be_computed_is_tried_once_from_nothing() {
    let (_temporary, folder) = private_folder();
    let first = bench(&folder, 4, NEVER);
    first.complete(first.request("how are you today", 20));
    first.engine.stop().unwrap();
    let second = bench(&folder, 4, NEVER);
    second.controls.fail_step(0);
    let prompt = "how are you today, and tomorrow";
    let heard = second.complete(second.request(prompt, 20));
    assert_eq!(reuse(&heard), (ReuseKind::Cold, 0));
    assert_eq!(heard.text, undisturbed(prompt, 20));
    assert_eq!(quarantined(&second), 1);
    // It is not tried again: what the second one leaves is its own.
    second.engine.stop().unwrap();
    let third = bench(&folder, 4, NEVER);
    let again = third.complete(third.request(prompt, 20));
    assert_eq!((reuse(&again).0, again.text), (ReuseKind::Disk, undisturbed(prompt, 20)));
    assert_eq!(quarantined(&third), 0);
}

#[test]
fn two_requests_for_one_stored_conversation_both_get_their_answer() {
    let (_temporary, folder) = private_folder();
    let first = bench(&folder, 4, NEVER);
    first.complete(first.request("how are you today", 20));
    first.engine.stop().unwrap();
    let second = bench(&folder, 4, NEVER);
    let prompts = ["how are you today, and tomorrow", "how are you today, or yesterday"];
    let streams = prompts.map(|prompt| second.submit(second.request(prompt, 20)));
    for (stream, prompt) in streams.into_iter().zip(prompts) {
        assert_eq!(crate::support::hear(stream).text, undisturbed(prompt, 20));
    }
    assert!(second.controls.banks_open_most() <= 4);
}

/// A machine for 1,000 tokens with a conversation of 620 on disk, and the prompt of its next turn.
fn with_a_long_one_stored() -> (tempfile::TempDir, Bench, String) {
    let (temporary, folder) = private_folder();
    let first = bench(&folder, 4, NEVER);
    let question = "q".repeat(599);
    let answer = first.complete(first.request(&question, 20)).text;
    first.engine.stop().unwrap();
    let second = Bench::with_disk_and_room(hash_rule(), EngineOptions::default(), &folder, 1_000);
    (temporary, second, format!("{question}{answer}!"))
}

#[test]
fn whoever_does_not_fit_beside_a_conversation_that_comes_back_waits_for_it() {
    let (_temporary, second, next) = with_a_long_one_stored();
    // Both are there at the first turn with nothing left to run.
    second.controls.hold();
    let before = second.submit(second.request("before", 1));
    second.controls.wait_for_steps(1);
    let comes_back = second.submit(second.request(&next, 20));
    let beside = second.submit(second.request("beside", 500));
    second.controls.release();
    hear(before);
    assert_eq!(reuse(&hear(comes_back)).0, ReuseKind::Disk);
    assert_eq!(hear(beside).finished().usage.completion_tokens.0, 500);
}

#[test]
fn whoever_has_no_memory_for_a_conversation_on_disk_looks_for_it_when_there_is() {
    let (_temporary, second, next) = with_a_long_one_stored();
    second.controls.hold();
    let before = second.submit(second.request("before", 593));
    second.controls.wait_for_steps(1);
    let comes_back = second.submit(second.request(&next, 20));
    second.controls.allow(100);
    second.controls.wait_for_steps(100);
    assert_eq!(stats(&second).loads, 0, "it is not read while there is nothing to read it to");
    second.controls.release();
    assert_eq!(hear(before).finished().usage.completion_tokens.0, 593);
    assert_eq!(reuse(&hear(comes_back)), (ReuseKind::Disk, 619));
}
