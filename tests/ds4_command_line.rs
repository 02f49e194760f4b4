//! `ds4` as a command: answers on standard output, exact dumps, a clean stop, and its exit codes.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Output, Stdio};

use anyhow::{Context, Result, ensure};
use ds4_tests::{Owner, command, demo_model, repository};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

const QUESTION: &str = "Could you tell me the capital of Japan?";
const ANSWER: &str = "The capital of Japan is Tokyo.\n";

fn ds4<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Result<Output> {
    Ok(command("ds4")?.args(arguments).stdin(Stdio::null()).output()?)
}

/// `ds4` with the demo model, greedy and not thinking.
fn ask(arguments: &[&str]) -> Result<Output> {
    let model = demo_model();
    let model = model.to_str().context("a path of UTF-8")?;
    ds4(["-m", model, "--no-think", "--temperature", "0"].iter().chain(arguments))
}

fn expect_answer(output: &Output, answer: &str) -> Result<()> {
    ensure!(output.status.success(), "{}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout), answer);
    Ok(())
}

#[test]
fn standard_output_carries_the_answer_alone() -> Result<()> {
    expect_answer(&ask(&["-p", QUESTION])?, ANSWER)
}

#[test]
fn a_question_may_come_through_a_pipe() -> Result<()> {
    let mut child = command("ds4")?;
    child.arg("-m").arg(demo_model()).args(["--no-think", "--temperature", "0", "-p", "-"]);
    let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    child.stdin.take().context("standard input is piped")?.write_all(QUESTION.as_bytes())?;
    expect_answer(&child.wait_with_output()?, ANSWER)
}

#[test]
fn an_owners_weights_give_the_same_answer() -> Result<()> {
    let model = demo_model();
    let owner = Owner::serving(&model)?;
    let manifest = owner.manifest()?;
    let manifest = manifest.to_str().context("a path of UTF-8")?;
    // The manifest names the model: it need not be given.
    expect_answer(&ds4(["--weights", manifest, "--no-think", "--temperature", "0", "-p", QUESTION])?, ANSWER)
}

#[test]
fn dumped_tokens_are_those_of_the_reference_and_typed_control_tokens_are_text() -> Result<()> {
    let ids = |output: &Output| -> Result<Vec<u32>> {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().map(|line| Ok(line.split_whitespace().next().context("an id")?.parse()?)).collect()
    };
    let hello = ask(&["-p", "Hello, good morning!", "--dump-tokens"])?;
    assert_eq!(ids(&hello)?, [0, 3030, 2541, 14, 417, 965, 1635, 3, 3031, 3049]);
    let typed = ids(&ask(&["-p", "<｜User｜>", "--dump-tokens"])?)?;
    let user = typed.iter().filter(|id| **id == 3030).count();
    assert_eq!(user, 1, "only the protocol's own: {typed:?}");
    Ok(())
}

#[test]
fn dumped_log_probabilities_cover_every_position_and_are_private() -> Result<()> {
    let folder = TempDir::new()?;
    let path = folder.path().join("out.json");
    let shown = path.to_str().context("a path of UTF-8")?;
    let output = ask(&["-p", QUESTION, "--dump-logprobs", shown, "--logprobs-top-k", "3"])?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let dump: Value = serde_json::from_str(&fs::read_to_string(&path)?)?;
    let positions = dump["positions"].as_array().context("positions")?;
    let text: String = positions.iter().filter_map(|position| position["text"].as_str()).collect();
    assert_eq!(text.trim_end_matches("<｜end▁of▁sentence｜>"), ANSWER.trim_end());
    for position in positions {
        let top = position["top"].as_array().context("alternatives")?;
        assert_eq!(top.len(), 3);
        assert_eq!(top[0]["id"], position["id"], "greedy takes the likeliest: {position}");
    }
    assert_eq!(fs::metadata(&path)?.permissions().mode() & 0o777, 0o600);
    Ok(())
}

#[test]
fn an_interrupt_ends_the_answer_and_keeps_what_was_written() -> Result<()> {
    // A random model: it has nothing to say and never stops saying it.
    let model = repository().join("tests/fixtures/oracle/flash-micro.gguf");
    let mut child = command("ds4")?;
    child.arg("-m").arg(model).args(["-p", "Go on.", "--raw", "--temperature", "0"]);
    let mut child = child.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let mut output = BufReader::new(child.stdout.take().context("standard output is piped")?);
    let first = output.fill_buf()?.len();
    ensure!(first > 0, "it ended without an answer: {}", child.wait()?);
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT)?;
    let mut text = Vec::new();
    output.read_to_end(&mut text)?;
    ensure!(text.len() >= first, "what was written stays");
    let end = child.wait()?;
    ensure!(end.code() == Some(130), "{end}");
    Ok(())
}

#[test]
fn what_cannot_be_done_ends_with_its_code_and_says_why() -> Result<()> {
    let model = demo_model();
    let model = model.to_str().context("a path of UTF-8")?;
    let nowhere = TempDir::new()?;
    let absent = nowhere.path().join("absent");
    let absent = absent.to_str().context("a path of UTF-8")?;
    for (arguments, code, says) in [
        (&["-m", model][..], 2, "--prompt"),
        (&["-p", "Hello"], 2, "name a GGUF file with -m FILE"),
        (&["-m", model, "-p", "Hello", "--temperature", "3"], 2, "--temperature"),
        (&["-m", model, "-p", "Hello", "--raw", "--no-think"], 2, "--no-think"),
        (&["-m", absent, "-p", "Hello"], 3, absent),
        (&["-m", model, "--weights", absent, "-p", "Hello"], 20, "there is no owner"),
    ] {
        let output = ds4(arguments)?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(error.contains(says), "{arguments:?}: {says:?} is not in:\n{error}");
        ensure!(output.status.code() == Some(code), "{arguments:?} ended with {}, not {code}:\n{error}", output.status);
        ensure!(output.stdout.is_empty(), "{arguments:?} wrote an answer");
    }
    Ok(())
}
