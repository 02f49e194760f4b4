//! Conversations that outlive their worker: killed, stopped, and with damaged files.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ds4_tests::{Owner, PATIENCE, Worker, command, demo_model, paths_below};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A worker that keeps even short conversations in `folder`.
fn worker(owner: &Owner, folder: &Path) -> Result<Worker> {
    worker_saving_every(owner, folder, "16")
}

/// The same, with so many tokens between two saves of a conversation.
fn worker_saving_every(owner: &Owner, folder: &Path, interval: &str) -> Result<Worker> {
    let manifest = owner.manifest()?;
    let arguments: [&OsStr; 10] = [
        "--weights".as_ref(),
        manifest.as_os_str(),
        "--kv-disk-dir".as_ref(),
        folder.as_os_str(),
        "--kv-cache-min-tokens".as_ref(),
        "8".as_ref(),
        "--kv-cache-cold-max-tokens".as_ref(),
        "1000".as_ref(),
        "--kv-cache-continued-interval-tokens".as_ref(),
        interval.as_ref(),
    ];
    let worker = Worker::start(&demo_model(), 0, &arguments)?;
    worker.wait_until_healthy()?;
    Ok(worker)
}

/// What a conversation says and what the reference answers.
const TURNS: [(&str, &str); 4] = [
    ("Hello, my name is Clara.", "Ok, I will remember that."),
    ("My dog is called Bimol.", "Ok, I will remember that."),
    ("What is the capital of Peru?", "The capital of Peru is Lima."),
    ("What is my dog's name?", "Your dog is called Bimol."),
];

/// The messages up to and with question `last`.
fn messages(last: usize) -> Value {
    let mut messages = Vec::new();
    for (question, answer) in &TURNS[..last] {
        messages.push(json!({"role": "user", "content": question}));
        messages.push(json!({"role": "assistant", "content": answer}));
    }
    messages.push(json!({"role": "user", "content": TURNS[last].0}));
    json!(messages)
}

/// Asks question `last`, checks the answer, and returns how its bank began and how many tokens it had and needed.
fn ask(worker: &Worker, last: usize) -> Result<(String, u64, u64)> {
    let reply = worker.chat(&messages(last))?;
    let text = reply["choices"][0]["message"]["content"].as_str().unwrap_or_default();
    ensure!(text == TURNS[last].1, "asked {:?}, answered {text:?}", TURNS[last].0);
    let timings = &reply["timings"];
    let number = |name: &str| timings[name].as_u64().with_context(|| format!("no {name} in {reply}"));
    let kind = timings["reuse_kind"].as_str().unwrap_or_default().to_owned();
    Ok((kind, number("prefill_cached_tokens")?, number("prefill_tokens")?))
}

/// Files below the folder, which may not be there yet.
fn with_suffix(folder: &Path, suffix: &str) -> Vec<PathBuf> {
    let paths = paths_below(folder).unwrap_or_default().into_iter();
    paths.filter(|path| path.extension().is_some_and(|found| found == suffix)).collect()
}

fn stored(folder: &Path) -> Vec<PathBuf> {
    with_suffix(folder, "kv")
}

/// Waits until the worker has written at least `count` files: saving is nobody's to wait for but a test's.
fn wait_for_files(folder: &Path, count: usize) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while stored(folder).len() < count {
        if Instant::now() > deadline {
            bail!("only {:?} were written", stored(folder));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

#[test]
fn a_killed_worker_s_conversation_goes_on_from_disk_with_the_same_answer() -> Result<()> {
    let owner = Owner::serving(&demo_model())?;
    let temporary = TempDir::new()?;
    let folder = temporary.path().join("kv");
    let first = worker(&owner, &folder)?;
    for turn in 0..3 {
        ask(&first, turn)?;
    }
    wait_for_files(&folder, 3)?;
    first.kill()?;

    let second = worker(&owner, &folder)?;
    let (kind, cached, computed) = ask(&second, 3)?;
    assert_eq!(kind, "disk");
    assert!(cached > computed, "{cached} tokens restored, {computed} computed");
    assert!(second.process().output().contains("conversations on disk"));
    Ok(())
}

#[test]
fn a_stopped_worker_leaves_everything_and_the_next_one_computes_the_new_turn_only() -> Result<()> {
    let owner = Owner::serving(&demo_model())?;
    let temporary = TempDir::new()?;
    let folder = temporary.path().join("kv");
    let first = worker(&owner, &folder)?;
    for turn in 0..3 {
        ask(&first, turn)?;
    }
    let (kind, cached, computed) = ask(&first, 3)?;
    assert_eq!(kind, "exact", "a bank in memory is better than a file");
    let end = first.terminate()?;
    assert_eq!(end.code(), Some(0), "{}", end.output);

    let second = worker(&owner, &folder)?;
    assert_eq!(ask(&second, 2)?.0, "disk");
    // The last question again: its own prompt is on disk up to where the answer began.
    let (kind, again, left) = ask(&second, 3)?;
    assert!(matches!(kind.as_str(), "disk" | "exact" | "fork" | "partial"), "{kind}");
    assert!(again + left == cached + computed && again > 0);
    Ok(())
}

#[test]
fn damaged_files_are_set_aside_and_cost_nothing_but_time() -> Result<()> {
    let owner = Owner::serving(&demo_model())?;
    let temporary = TempDir::new()?;
    let folder = temporary.path().join("kv");
    let first = worker(&owner, &folder)?;
    ask(&first, 0)?;
    ask(&first, 1)?;
    wait_for_files(&folder, 2)?;
    first.kill()?;

    for path in stored(&folder) {
        let mut bytes = fs::read(&path)?;
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        fs::write(&path, bytes)?;
    }
    let second = worker(&owner, &folder)?;
    assert_eq!(ask(&second, 2)?.0, "cold");
    let bad = with_suffix(&folder, "bad");
    assert!(!bad.is_empty());
    assert!(second.process().output().contains("damaged"));
    Ok(())
}

/// The reply to a conversation with a shell on offer, after some reasoning.
fn ask_with_a_shell(worker: &Worker, messages: &[Value]) -> Result<Value> {
    let shell = json!({"type": "function", "function": {
        "name": "bash",
        "description": "Run a shell command and return what it prints.",
        "parameters": {
            "type": "object",
            "properties": {"command": {"type": "string", "description": "The command"}},
            "required": ["command"],
        },
    }});
    let body = json!({"messages": messages, "tools": [shell], "temperature": 0, "thinking": {"type": "enabled"}});
    let reply = worker.post("/v1/chat/completions", &body.to_string())?;
    ensure!(reply.status == 200, "{} {}", reply.status, reply.body);
    Ok(serde_json::from_str(&reply.body)?)
}

/// What an agent sends after a turn with a call: without the reasoning, arguments in another spelling, and the result.
fn with_result(question: &Value, reply: &Value) -> Result<Vec<Value>> {
    let mut message = reply["choices"][0]["message"].clone();
    let fields = message.as_object_mut().context("a message")?;
    let reasoning = fields.remove("reasoning_content").context("the answer has no reasoning to leave out")?;
    ensure!(!reasoning.as_str().unwrap_or_default().is_empty(), "the answer has no reasoning to leave out");
    let call = &mut message["tool_calls"][0];
    let arguments = call["function"]["arguments"].as_str().context("no call")?.to_owned();
    call["function"]["arguments"] = arguments.replace("{\"", "{ \n \"").replace("\":", "\" : ").into();
    let result = json!({"role": "tool", "tool_call_id": call["id"], "content": "ds4-tool-ok\n"});
    Ok(vec![question.clone(), message, result])
}

/// Tokens of the conversations in the folder, as `ds4 kv list` has them.
fn kept_tokens(folder: &Path) -> Result<Vec<u64>> {
    let output = command("ds4")?.args(["kv", "list", "--json", "--kv-disk-dir"]).arg(folder).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let list: Value = serde_json::from_slice(&output.stdout)?;
    let files = list["files"].as_array().context("files")?;
    Ok(files.iter().filter_map(|file| file["tokens"].as_u64()).collect())
}

#[test]
fn what_a_killed_worker_sampled_is_said_again_byte_by_byte_by_the_next_one() -> Result<()> {
    let owner = Owner::serving(&demo_model())?;
    let temporary = TempDir::new()?;
    let question = json!({"role": "user", "content": "Run `echo ds4-tool-ok` and tell me its output."});
    let undisturbed = worker(&owner, &temporary.path().join("undisturbed"))?;
    let first = ask_with_a_shell(&undisturbed, std::slice::from_ref(&question))?;
    let wanted = ask_with_a_shell(&undisturbed, &with_result(&question, &first)?)?;

    let folder = temporary.path().join("kv");
    // The disk has the beginning of the call long before its end.
    let killed = worker_saving_every(&owner, &folder, "40")?;
    let reply = ask_with_a_shell(&killed, std::slice::from_ref(&question))?;
    let count = |name: &str| reply["usage"][name].as_u64().context("usage");
    // The token that ends the call was drawn and never computed.
    let turn = count("prompt_tokens")? + count("completion_tokens")? - 1;
    let deadline = Instant::now() + PATIENCE;
    while !kept_tokens(&folder)?.contains(&turn) {
        ensure!(Instant::now() < deadline, "{turn} tokens were never saved: {:?}", kept_tokens(&folder)?);
        std::thread::sleep(Duration::from_millis(10));
    }
    killed.kill()?;

    let next = worker(&owner, &folder)?;
    let answer = ask_with_a_shell(&next, &with_result(&question, &reply)?)?;
    let timings = &answer["timings"];
    assert_eq!((timings["reuse_kind"].as_str(), timings["prefill_cached_tokens"].as_u64()), (Some("disk"), Some(turn)));
    assert_eq!(answer["choices"][0]["message"]["content"], wanted["choices"][0]["message"]["content"]);
    let stats: Value = serde_json::from_str(&next.get_json("/v1/stats")?)?;
    let disk = &stats["kv_disk"];
    assert_eq!((disk["restores"].as_u64(), disk["tokens_saved"].as_u64()), (Some(1), Some(turn)));
    assert_eq!(disk["hits"]["inside_text"].as_u64(), Some(1), "it ends before the last token of a text: {stats}");
    let metrics = next.get("/metrics")?.body;
    assert!(metrics.contains("ds4_kv_disk_hits_total{kind=\"inside_text\"} 1"), "{metrics}");
    Ok(())
}

#[test]
fn a_folder_that_others_may_open_is_refused_before_anything_is_served() -> Result<()> {
    let temporary = TempDir::new()?;
    fs::set_permissions(temporary.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let arguments: [&OsStr; 2] = ["--kv-disk-dir".as_ref(), temporary.path().as_os_str()];
    let end = Worker::start(&demo_model(), 0, &arguments)?.wait_for_end()?;
    assert_eq!(end.code(), Some(2), "{}", end.output);
    assert!(end.output.contains("chmod 700"), "{}", end.output);
    Ok(())
}
