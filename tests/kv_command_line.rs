//! `ds4 kv` and `ds4 why-miss` over what a real worker kept.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use anyhow::{Context, Result, ensure};
use ds4_tests::{Owner, Worker, command, demo_model};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A folder in which a worker that was stopped left one conversation of two turns.
struct Kept {
    temporary: TempDir,
    owner: Owner,
}

const FIRST: (&str, &str) = ("Hello, my name is Clara.", "Ok, I will remember that.");

impl Kept {
    fn new() -> Result<Kept> {
        let kept = Kept { temporary: TempDir::new()?, owner: Owner::serving(&demo_model())? };
        let worker = kept.worker()?;
        for messages in [messages(FIRST.1, None), messages(FIRST.1, Some("My dog is called Bimol."))] {
            worker.chat(&messages)?;
        }
        let end = worker.terminate()?;
        ensure!(end.code() == Some(0), "{}", end.output);
        Ok(kept)
    }

    fn folder(&self) -> PathBuf {
        self.temporary.path().join("kv")
    }

    fn worker(&self) -> Result<Worker> {
        let (manifest, folder) = (self.owner.manifest()?, self.folder());
        let mut arguments =
            vec!["--weights".as_ref(), manifest.as_os_str(), "--kv-disk-dir".as_ref(), folder.as_os_str()];
        let limits = ["--kv-cache-min-tokens", "8", "--kv-cache-cold-max-tokens", "1000"];
        arguments.extend(limits.iter().map(|argument| AsRef::<std::ffi::OsStr>::as_ref(*argument)));
        let worker = Worker::start(&demo_model(), 0, &arguments)?;
        worker.wait_until_healthy()?;
        Ok(worker)
    }

    fn kv(&self, arguments: &[&str]) -> Result<Output> {
        Ok(command("ds4")?.arg("kv").args(arguments).arg("--kv-disk-dir").arg(self.folder()).output()?)
    }

    fn list(&self) -> Result<Value> {
        json(&self.kv(&["list", "--json"])?)
    }

    /// The files' paths, the one with the most tokens first.
    fn files(&self) -> Result<Vec<PathBuf>> {
        let list = self.list()?;
        let mut files: Vec<&Value> = list["files"].as_array().context("files")?.iter().collect();
        files.sort_by_key(|file| std::cmp::Reverse(file["tokens"].as_u64()));
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Ok(files.iter().map(|file| self.folder().join(text(&file["folder"])).join(text(&file["file"]))).collect())
    }

    fn why(&self, request: &Value, arguments: &[&str]) -> Result<Output> {
        let path = self.temporary.path().join("request.json");
        fs::write(&path, request.to_string())?;
        let mut why = command("ds4")?;
        why.arg("why-miss").arg(&path).arg("-m").arg(demo_model()).arg("--kv-disk-dir").arg(self.folder());
        Ok(why.args(["--kv-cache-min-tokens", "8"]).args(arguments).output()?)
    }
}

/// A conversation whose first answer is `answer`.
fn messages(answer: &str, question: Option<&str>) -> Value {
    let mut messages = vec![json!({"role": "user", "content": FIRST.0})];
    if let Some(question) = question {
        messages.push(json!({"role": "assistant", "content": answer}));
        messages.push(json!({"role": "user", "content": question}));
    }
    json!(messages)
}

fn request(messages: &Value) -> Value {
    json!({"messages": messages, "temperature": 0, "thinking": {"type": "disabled"}})
}

fn json(output: &Output) -> Result<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).with_context(|| format!("{text}\n{}", String::from_utf8_lossy(&output.stderr)))
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[test]
fn conversations_are_listed_shown_verified_and_pruned() -> Result<()> {
    let kept = Kept::new()?;
    let files = kept.files()?;
    ensure!(!files.is_empty());
    let listed = text(&kept.kv(&["list"])?);
    assert!(listed.contains(&name(&files[0])[..12]) && listed.contains("prompts as "), "{listed}");
    assert!(!listed.contains("Clara"), "what was said is not shown: {listed}");
    let shown = text(&kept.kv(&["show", &name(&files[0])[..8]])?);
    assert!(shown.contains(&name(&files[0])) && !shown.contains("Clara"), "{shown}");
    assert_eq!(kept.kv(&["show", "zz"])?.status.code(), Some(2));
    let verified = kept.kv(&["verify"])?;
    assert_eq!(verified.status.code(), Some(0), "{}", text(&verified));

    let last = files.last().context("a file")?;
    let mut bytes = fs::read(last)?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(last, bytes)?;
    let verified = kept.kv(&["verify", "--json"])?;
    assert_eq!((verified.status.code(), json(&verified)?["damaged"].as_u64()), (Some(30), Some(1)));

    let serving = kept.worker()?;
    assert_eq!(kept.kv(&["prune", "--all"])?.status.code(), Some(6), "a server writes there");
    serving.terminate()?;
    let before = kept.files()?.len();
    let dry = json(&kept.kv(&["prune", "--all", "--dry-run", "--json"])?)?;
    assert_eq!((dry["removed"].as_bool(), dry["files"].as_array().map(Vec::len)), (Some(false), Some(before)));
    assert_eq!(kept.files()?.len(), before);
    assert_eq!(kept.kv(&["prune", "--all"])?.status.code(), Some(0));
    assert!(kept.files()?.is_empty());
    Ok(())
}

#[test]
fn a_request_that_goes_on_says_from_what() -> Result<()> {
    let kept = Kept::new()?;
    let output = kept.why(&request(&messages(FIRST.1, Some("My dog is called Bimol."))), &["--json"])?;
    let why = json(&output)?;
    assert_eq!(output.status.code(), Some(0), "{why}");
    assert!(why["restores"]["tokens"].as_u64() > Some(8), "{why}");
    // The worker agrees.
    let worker = kept.worker()?;
    let reply = worker.chat(&messages(FIRST.1, Some("My dog is called Bimol.")))?;
    assert_eq!(reply["timings"]["reuse_kind"], "disk");
    assert_eq!(reply["timings"]["prefill_cached_tokens"], why["restores"]["tokens"]);
    Ok(())
}

#[test]
fn the_first_byte_that_differs_is_shown_with_both_sides_and_who_says_it() -> Result<()> {
    let kept = Kept::new()?;
    let edited = request(&messages("Ok, I will forget that.", Some("My dog is called Bimol.")));
    let why = json(&kept.why(&edited, &["--json"])?)?;
    let differs = &why["closest"]["differs"];
    assert_eq!(differs["in"], "message 2 (assistant)", "{why}");
    assert!(differs["before"].as_str().is_some_and(|before| before.ends_with("Ok, I will ")), "{why}");
    assert!(differs["kept"].as_str().is_some_and(|side| side.starts_with("remember that.")), "{why}");
    assert!(differs["request"].as_str().is_some_and(|side| side.starts_with("forget that.")), "{why}");
    let lines = text(&kept.why(&edited, &[])?);
    assert!(lines.contains("differs") && lines.contains("message 2 (assistant)"), "{lines}");

    let other = json!([{"role": "user", "content": "Something else altogether, of some length."}]);
    let output = kept.why(&request(&other), &["--json"])?;
    assert_eq!(output.status.code(), Some(31), "{}", text(&output));
    assert_eq!(json(&output)?["closest"]["differs"]["in"], "message 1 (user)");

    // Whether it reasons changes how an answer opens, not whose words differ.
    let reasoning = json!({"messages": edited["messages"], "thinking": {"type": "enabled"}});
    let why = json(&kept.why(&reasoning, &["--json"])?)?;
    assert_eq!(why["closest"]["differs"]["in"], "message 2 (assistant)", "{why}");
    let opening = json!({"messages": messages(FIRST.1, None), "thinking": {"type": "enabled"}});
    let why = json(&kept.why(&opening, &["--json"])?)?;
    assert_eq!(why["closest"]["differs"]["in"], "the opening of the answer, which reasons", "{why}");
    Ok(())
}

#[test]
fn wrong_requests_and_folders_are_named() -> Result<()> {
    let kept = Kept::new()?;
    let output = kept.why(&json!({"messages": []}), &[])?;
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    let output = kept.why(&json!([1]), &[])?;
    assert!(output.status.code() == Some(2) && text(&output).contains("no JSON object"), "{}", text(&output));
    let nowhere = command("ds4")?.args(["kv", "list", "--kv-disk-dir", "/nonexistent/kv"]).output()?;
    assert_eq!(nowhere.status.code(), Some(2), "{}", text(&nowhere));
    Ok(())
}
