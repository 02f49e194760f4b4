//! A worker whose weights cannot be had, or are not its model's, ends with a code and a remedy. It never serves.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use ds4_tests::{Finished, Owner, Worker, command, demo_model, run};
use serde_json::json;
use tempfile::TempDir;

/// Runs a worker for `model` that takes its weights from `manifest`, to its end.
fn attach(model: &Path, manifest: &Path, arguments: &[&str]) -> Result<Finished> {
    let mut server = command("ds4-server")?;
    server.arg("-m").arg(model).arg("--weights").arg(manifest).args(["--host", "127.0.0.1", "--port", "0"]);
    server.args(arguments);
    run(server)
}

fn expect(end: &Finished, code: i32, parts: &[&str]) -> Result<()> {
    for part in parts {
        ensure!(end.output.contains(part), "{part:?} is not in:\n{}", end.output);
    }
    ensure!(end.code() == Some(code), "ended with {}, not {code}:\n{}", end.status, end.output);
    Ok(())
}

/// A copy of the demo model, changed at one byte in the middle of its tensors.
fn one_byte_differs(folder: &TempDir) -> Result<PathBuf> {
    let path = folder.path().join("ds4-demo-16m.gguf");
    fs::copy(demo_model(), &path)?;
    let file = File::options().read(true).write(true).open(&path)?;
    let middle = file.metadata()?.len() / 2;
    let mut byte = [0];
    file.read_exact_at(&mut byte, middle)?;
    file.write_all_at(&[byte[0] ^ 1], middle)?;
    Ok(path)
}

#[test]
fn without_a_manifest_it_says_how_to_get_one() -> Result<()> {
    let folder = TempDir::new()?;
    let manifest = folder.path().join("weights.json");
    let path = manifest.to_string_lossy().into_owned();
    let end = attach(&demo_model(), &manifest, &[])?;
    expect(&end, 20, &["there is no owner", &path, "ds4-weightd --base", "leave out --weights"])
}

#[test]
fn a_truncated_or_edited_manifest_is_refused_as_such() -> Result<()> {
    let model = demo_model();
    let owner = Owner::serving(&model)?;
    let path = owner.manifest()?;
    let whole = fs::read_to_string(&path)?;
    let edited = whole.replacen("\"generation\"", "\"Generation\"", 1);
    ensure!(edited != whole, "the manifest has a generation");
    for text in [&whole[..whole.len() / 2], &whole[..whole.len() - 3], &edited, ""] {
        fs::write(&path, text)?;
        expect(&attach(&model, &path, &[])?, 20, &["the manifest is truncated or edited"])?;
    }
    fs::write(&path, &whole)?;
    Worker::attached(&model, &owner)?;
    Ok(())
}

#[test]
fn a_manifest_that_others_may_write_is_not_believed() -> Result<()> {
    let model = demo_model();
    let owner = Owner::serving(&model)?;
    let path = owner.manifest()?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666))?;
    expect(&attach(&model, &path, &[])?, 20, &["others may write", "chmod go-w"])
}

#[test]
fn a_dead_owners_manifest_is_named_stale() -> Result<()> {
    let model = demo_model();
    let owner = Owner::serving(&model)?;
    let path = owner.manifest()?;
    let pid = format!("pid {}", owner.process().pid());
    let _run_dir = owner.kill()?;
    expect(&attach(&model, &path, &[])?, 20, &["is stale", &pid, "Start ds4-weightd again"])?;
    fs::remove_file(path.with_extension("json.sock"))?;
    expect(&attach(&model, &path, &[])?, 20, &["is stale", &pid, "Start ds4-weightd again"])
}

#[test]
fn a_file_that_differs_in_one_byte_is_refused_by_its_content() -> Result<()> {
    let folder = TempDir::new()?;
    let other = one_byte_differs(&folder)?;
    ensure!(fs::metadata(&other)?.len() == fs::metadata(demo_model())?.len(), "the sizes are equal");
    let owner = Owner::serving(&demo_model())?;
    let end = attach(&other, &owner.manifest()?, &[])?;
    let remedy = format!("ds4-weightd --base {}", other.display());
    expect(&end, 22, &["are not those of the worker's file, though names and sizes agree", &remedy])?;
    let manifest: serde_json::Value = serde_json::from_str(&fs::read_to_string(owner.manifest()?)?)?;
    let root = manifest["models"][0]["content_root"].as_str().context("a content root")?;
    ensure!(end.output.contains(root), "the owner's digest {root} is not in:\n{}", end.output);
    Ok(())
}

#[test]
fn an_equal_copy_of_the_file_is_accepted_by_its_content() -> Result<()> {
    let folder = TempDir::new()?;
    let copy = folder.path().join("copy.gguf");
    fs::copy(demo_model(), &copy)?;
    let owner = Owner::serving(&demo_model())?;
    let worker = Worker::attached(&copy, &owner)?;
    let question = json!([{"role": "user", "content": "Could you tell me the capital of Japan?"}]);
    assert_eq!(worker.answer(&question)?, "The capital of Japan is Tokyo.");
    Ok(())
}

#[test]
fn a_worker_told_to_wait_serves_once_its_owner_is_ready() -> Result<()> {
    let model = demo_model();
    let run_dir = TempDir::new()?;
    let manifest = run_dir.path().join("weights.json");
    let arguments: [&OsStr; 4] = ["--weights".as_ref(), manifest.as_os_str(), "--wait".as_ref(), "120".as_ref()];
    let worker = Worker::start(&model, 0, &arguments)?;
    let health = worker.get("/health")?;
    assert_eq!((health.status, health.body.as_str()), (503, r#"{"status":"loading"}"#));
    let chat = worker.post("/v1/chat/completions", r#"{"messages":[{"role":"user","content":"Hello"}]}"#)?;
    let error: serde_json::Value = serde_json::from_str(&chat.body)?;
    let expected = json!({"error": {
        "message": "the model is loading; retry shortly", "type": "server_error", "param": null, "code": null,
    }});
    assert_eq!((chat.status, error), (503, expected));
    assert_eq!(chat.headers["retry-after"], "1");

    let mut owner = Owner::command(&model, run_dir.path(), &[])?;
    owner.args(["--drain-timeout", "0"]);
    let _owner = ds4_tests::Process::start(owner)?;
    worker.wait_until_healthy()?;
    let question = json!([{"role": "user", "content": "Could you tell me the capital of Japan?"}]);
    assert_eq!(worker.answer(&question)?, "The capital of Japan is Tokyo.");
    Ok(())
}
