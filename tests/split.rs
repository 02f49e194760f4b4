//! Owner and workers as separate processes: weights stay while workers come, go and die.

use anyhow::{Context, Result};
use ds4_tests::{Owner, Worker, demo_model};
use serde_json::{Value, json};

/// A conversation that needs its first turn to answer the last one, and the answer of the reference.
fn recall() -> (Value, &'static str) {
    let messages = json!([
        {"role": "user", "content": "Hello, my name is Clara."},
        {"role": "assistant", "content": "Ok, I will remember that."},
        {"role": "user", "content": "My dog is called Bimol."},
        {"role": "assistant", "content": "Ok, I will remember that."},
        {"role": "user", "content": "What is the capital of Peru?"},
        {"role": "assistant", "content": "The capital of Peru is Lima."},
        {"role": "user", "content": "What is my dog's name?"},
    ]);
    (messages, "Your dog is called Bimol.")
}

fn asks(question: &str) -> Value {
    json!([{"role": "user", "content": question}])
}

#[test]
fn a_whole_conversation_runs_through_the_split() -> Result<()> {
    let model = demo_model();
    let owner = Owner::serving(&model)?;
    let worker = Worker::attached(&model, &owner)?;
    let mut messages = Vec::new();
    for (question, answer) in [
        ("Hello, my name is Clara.", "Ok, I will remember that."),
        ("My dog is called Bimol.", "Ok, I will remember that."),
        ("What is the capital of Peru?", "The capital of Peru is Lima."),
        ("What is my dog's name?", "Your dog is called Bimol."),
    ] {
        messages.push(json!({"role": "user", "content": question}));
        assert_eq!(worker.stream(&json!(messages))?.rest_of_text()?, answer, "streamed");
        assert_eq!(worker.answer(&json!(messages))?, answer, "whole");
        messages.push(json!({"role": "assistant", "content": answer}));
    }
    Ok(())
}

#[test]
fn a_worker_killed_while_streaming_is_replaced_by_one_that_answers_the_same() -> Result<()> {
    let model = demo_model();
    let owner = Owner::serving(&model)?;
    let (messages, expected) = recall();

    let worker = Worker::attached(&model, &owner)?;
    let mut events = worker.stream(&messages)?;
    let first = events.next_text()?.context("an answer begins with text")?;
    assert!(expected.starts_with(&first), "{first}");
    worker.kill()?;

    let worker = Worker::attached(&model, &owner)?;
    assert_eq!(worker.answer(&messages)?, expected);
    Ok(())
}

#[test]
fn a_worker_serves_on_when_its_owner_is_killed() -> Result<()> {
    let model = demo_model();
    let owner = Owner::serving(&model)?;
    let worker = Worker::attached(&model, &owner)?;
    let _run_dir = owner.kill()?;
    let (messages, expected) = recall();
    assert_eq!(worker.answer(&messages)?, expected);
    let health = worker.get("/health")?;
    assert_eq!(health.status, 200, "{}", health.body);
    Ok(())
}

#[test]
fn two_workers_share_one_owner_and_agree() -> Result<()> {
    let model = demo_model();
    let owner = Owner::serving(&model)?;
    let one = Worker::attached(&model, &owner)?;
    let two = Worker::attached(&model, &owner)?;
    let question = asks("Could you tell me the capital of Japan?");
    let expected = "The capital of Japan is Tokyo.";
    assert_eq!(one.answer(&question)?, expected);
    one.kill()?;
    assert_eq!(two.answer(&question)?, expected);
    Ok(())
}

#[test]
fn a_worker_without_an_owner_loads_the_model_itself_and_answers_the_same() -> Result<()> {
    let model = demo_model();
    let worker = Worker::start(&model, 0, &[])?;
    worker.wait_until_healthy()?;
    let (messages, expected) = recall();
    assert_eq!(worker.answer(&messages)?, expected);
    Ok(())
}
