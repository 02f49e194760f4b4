//! Conversations in memory that outlive their worker, because a keeper holds it.

use anyhow::{Result, ensure};
use ds4_tests::{Answer, Site, TURNS, Worker, demo_model, messages};

fn site() -> Result<Site> {
    Site::new(&demo_model(), &[], &[])
}

fn ask(worker: &Worker, turn: usize) -> Result<Answer> {
    let answer = Answer::to(worker, &messages(turn))?;
    ensure!(answer.text == TURNS[turn].1, "asked {:?}, answered {answer:?}", TURNS[turn].0);
    Ok(answer)
}

/// Blocks until the keeper has what the worker has.
fn until_parked(worker: &Worker, conversations: u64) -> Result<()> {
    worker.wait_for_stat("parked", "conversations", |count| count == conversations)?;
    Ok(())
}

#[test]
fn a_killed_worker_s_conversation_goes_on_in_its_memory_with_the_same_answer() -> Result<()> {
    let site = site()?;
    let _keeper = site.keeper()?;
    let _owner = site.serving_owner()?;
    let first = site.serving_worker()?;
    (0..3).try_for_each(|turn| ask(&first, turn).map(drop))?;
    until_parked(&first, 1)?;
    first.kill()?;

    let second = site.serving_worker()?;
    let answer = ask(&second, 3)?;
    assert_eq!(answer.reuse, "adopted");
    assert!(answer.cached > answer.computed, "{answer:?}");
    assert!(second.process().output().contains("conversations taken over in memory"));
    // And once more: what was taken over is still parked, under the new worker.
    second.kill()?;
    let third = site.serving_worker()?;
    assert_eq!(ask(&third, 3)?.reuse, "adopted");
    assert_eq!(third.stat("cache", "admits_adopted")?, 1);
    Ok(())
}

#[test]
fn a_worker_killed_in_the_middle_of_an_answer_leaves_the_prompt_it_has_computed() -> Result<()> {
    let site = site()?;
    let _keeper = site.keeper()?;
    let _owner = site.serving_owner()?;
    let first = site.serving_worker()?;
    (0..2).try_for_each(|turn| ask(&first, turn).map(drop))?;
    until_parked(&first, 1)?;
    let mut events = first.stream(&messages(2))?;
    // Whatever a client has seen, the keeper has the memory of.
    let begun = events.next_text()?.unwrap_or_default();
    assert!(TURNS[2].1.starts_with(&begun), "{begun:?}");
    first.kill()?;
    let second = site.serving_worker()?;
    let again = ask(&second, 2)?;
    assert_eq!(again.reuse, "adopted");
    assert!(again.cached > again.computed, "{again:?}");
    ask(&second, 3)?;
    Ok(())
}

#[test]
fn a_keeper_that_comes_late_or_comes_again_gets_what_there_is() -> Result<()> {
    let site = site()?;
    let _owner = site.serving_owner()?;
    let first = site.serving_worker()?;
    ask(&first, 0)?;
    first.kill()?;
    let second = site.serving_worker()?;
    assert_eq!(ask(&second, 1)?.reuse, "cold");
    // A keeper that comes later gets what there is.
    let keeper = site.keeper()?;
    until_parked(&second, 1)?;
    // And one that comes after it has died.
    keeper.kill()?;
    second.wait_for_stat("parked", "keepers_lost", |lost| lost == 1)?;
    let _keeper = site.keeper()?;
    until_parked(&second, 1)?;
    second.kill()?;
    let third = site.serving_worker()?;
    assert_eq!(ask(&third, 2)?.reuse, "adopted");
    Ok(())
}
