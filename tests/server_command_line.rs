//! What `ds4-server` says, and the code it ends with, when it does not serve.

use std::fs;
use std::net::TcpListener;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use ds4_gguf::{Model, writer::Writer};
use ds4_tests::{Finished, Process, Worker, command, demo_model, run};
use ds4_units::TensorType;
use nix::sys::signal::Signal;
use tempfile::TempDir;

fn server(arguments: &[&str]) -> Result<Finished> {
    let mut server = command("ds4-server")?;
    server.args(arguments);
    run(server)
}

fn expect(arguments: &[&str], code: i32, parts: &[&str]) -> Result<()> {
    let end = server(arguments)?;
    for part in parts {
        ensure!(end.output.contains(part), "{arguments:?}: {part:?} is not in:\n{}", end.output);
    }
    ensure!(end.code() == Some(code), "{arguments:?} ended with {}, not {code}:\n{}", end.status, end.output);
    Ok(())
}

#[test]
fn help_teaches_and_lists_the_exit_codes() -> Result<()> {
    let parts = ["ds4-server -m model.gguf", "--weights /run/ds4/weights.json", "DS4_WEIGHTS", "Exit codes:"];
    expect(&["--help"], 0, &parts)?;
    let codes = ["0", "1", "2", "3", "4", "8", "20", "21", "22", "23", "24"].map(|code| format!("\n  {code:>3}  "));
    expect(&["--help"], 0, &codes.each_ref().map(String::as_str))
}

#[test]
fn a_wrong_flag_or_value_ends_with_2_and_is_named() -> Result<()> {
    let model = demo_model();
    let model = model.to_str().expect("a path of UTF-8");
    for (arguments, says) in [
        (&["--frobnicate"][..], "'--frobnicate'"),
        (&["-m", model, "--port", "65536"], "--port"),
        (&["-m", model, "--ctx", "12"], "--ctx"),
        (&["-m", model, "--max-seqs", "0"], "--max-seqs"),
        (&["-m", model, "--kv-disk-space-mb", "5"], "--kv-disk-dir"),
        (&["-m", model, "--mtp-draft", "0"], "--mtp-draft"),
        (&["-m", model, "--mtp-draft", "2", "--port", "0"], "there is no draft block to guess with"),
        (&["-m", model, "--dspark", "x.gguf"], "--dspark is for drafters of another kind"),
        (&["-m", model, "--api-key-file", "/nowhere/keys"], "--api-key-file /nowhere/keys"),
        (&["--port", "0"], "name a GGUF file with -m FILE"),
        (&["-m", model, "--port", "0", "--ctx", "2000000"], "--ctx 2000000 is more than the 1048576 tokens"),
    ] {
        expect(arguments, 2, &[says])?;
    }
    Ok(())
}

#[test]
fn a_model_file_that_cannot_be_served_ends_with_3_and_is_named() -> Result<()> {
    let folder = TempDir::new()?;
    let path = folder.path().join("model.gguf");
    let shown = path.to_string_lossy().into_owned();
    let whole = fs::read(demo_model())?;
    let other = ds4_gguf::writer::Writer::new("llama").to_bytes();
    for (bytes, says) in [
        (&b"<html>not found</html>"[..], "<htm"),
        (&whole[..whole.len() - 64], "incomplete download"),
        (&whole[..1000], "model.gguf"),
        (&other, "llama"),
    ] {
        fs::write(&path, bytes)?;
        for arguments in [&["-m", &shown, "--port", "0"][..], &["-m", &shown, "--check-config"]] {
            expect(arguments, 3, &[says])?;
        }
    }
    fs::remove_file(&path)?;
    expect(&["-m", &shown, "--port", "0"], 3, &[&shown])
}

#[test]
fn an_address_in_use_ends_with_23_and_is_named() -> Result<()> {
    let taken = TcpListener::bind(("127.0.0.1", 0))?;
    let port = taken.local_addr()?.port().to_string();
    let model = demo_model();
    let model = model.to_str().expect("a path of UTF-8");
    expect(&["-m", model, "--port", &port], 23, &[&format!("cannot listen on 127.0.0.1:{port}")])
}

#[test]
fn a_check_of_settings_ends_with_0_without_listening() -> Result<()> {
    let model = demo_model();
    let model = model.to_str().expect("a path of UTF-8");
    expect(&["-m", model, "--check-config"], 0, &["configuration ok"])?;
    let settings = server(&["-m", model, "--print-plan", "--port", "1234"])?;
    let line = |name: &str, value: &str, origin: &str| {
        settings.output.lines().any(|line| line.split_whitespace().eq([name, value, origin]))
    };
    ensure!(line("port", "1234", "flag") && line("host", "127.0.0.1", "default"), "{}", settings.output);
    ensure!(line("id", "ds4-demo-16m", "model") && line("shape", "custom", "model"), "{}", settings.output);
    Ok(())
}

#[test]
fn a_plan_says_what_conversations_cost_and_how_many_fit_and_one_that_cannot_be_kept_ends_with_2() -> Result<()> {
    let model = demo_model();
    let model = model.to_str().expect("a path of UTF-8");
    let plan = server(&["-m", model, "--print-plan", "-c", "20000", "--max-seqs", "7"])?;
    // Length, how many fit and what each costs; what steps take is not known without an owner, and comes off that.
    let fit = |tokens: &str| {
        let line = plan.output.lines().find_map(|line| line.strip_prefix(&format!("{tokens} tokens")))?;
        line.trim_start().strip_prefix("at most ")?.split_whitespace().next()?.parse::<u64>().ok()
    };
    let counts = ["1024", "4096", "16384", "20000"].map(fit);
    ensure!(counts.iter().all(Option::is_some) && counts.is_sorted_by(|short, long| short >= long), "{}", plan.output);
    ensure!(
        plan.output.contains("weights to load") && plan.output.contains("banks                      7"),
        "{}",
        plan.output
    );
    expect(
        &["-m", model, "--check-config", "--max-seqs", "65536"],
        2,
        &["65536 conversations need", "before they hold"],
    )?;
    expect(&["-m", model, "--check-config", "--mem-floor-gb", "60000"], 2, &["one conversation of 32768 tokens needs"])
}

#[test]
fn a_model_that_memory_has_no_room_for_ends_with_4_when_checked_and_when_loaded() -> Result<()> {
    let folder = TempDir::new()?;
    let path = folder.path().join("model.gguf");
    add_hole(&demo_model(), &path)?;
    let model = path.to_str().expect("a path of UTF-8");
    let short = "not enough memory";
    expect(&["-m", model, "--port", "0"], 4, &[short])?;
    expect(&["-m", model, "--check-config"], 4, &[short])?;
    // A plan is shown all the same: it says what is wanted of which memory.
    expect(&["-m", model, "--print-plan"], 4, &["weights to load            4096.0", "for conversations", short])
}

/// Writes `model` with one tensor more, of 4 TiB, which takes no room on disk.
fn add_hole(model: &Path, to: &Path) -> Result<()> {
    const NAME: &str = "zz.hole.weight";
    const LEN: u64 = 4 << 40;
    let copy = Writer::copy_of(&Model::open(model)?)?;
    let mut bytes = copy.tensor(NAME, TensorType::F32, &[64], vec![0; 256]).to_bytes();
    let name = bytes.windows(NAME.len()).position(|window| window == NAME.as_bytes()).context("the tensor's name")?;
    // After the name: the number of dimensions, then the only one.
    let dim = name + NAME.len() + 4;
    bytes[dim..dim + 8].copy_from_slice(&(LEN / 4).to_le_bytes());
    fs::write(to, &bytes)?;
    fs::OpenOptions::new().write(true).open(to)?.set_len(bytes.len() as u64 + LEN)?;
    Ok(())
}

#[test]
fn a_stop_while_waiting_for_the_owner_ends_with_8() -> Result<()> {
    let folder = TempDir::new()?;
    let manifest = folder.path().join("weights.json");
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut server = command("ds4-server")?;
        server.arg("-m").arg(demo_model()).arg("--weights").arg(&manifest).args(["--wait", "600", "--port", "0"]);
        let server = Process::start(server)?;
        server.wait_for_line("waiting")?;
        server.signal(signal)?;
        let end = server.finish()?;
        ensure!(end.code() == Some(8), "{signal}: {}\n{}", end.status, end.output);
    }
    Ok(())
}

#[test]
fn a_setting_from_the_environment_counts_and_a_flag_wins() -> Result<()> {
    let model = demo_model();
    let mut from_environment = command("ds4-server")?;
    from_environment.env("DS4_MODEL", &model).env("DS4_PORT", "0").args(["--host", "127.0.0.1"]);
    let server = Process::start(from_environment)?;
    server.wait_for_line("ready")?;
    drop(server);
    let mut flag_wins = command("ds4-server")?;
    flag_wins.env("DS4_PORT", "99999").args(["--print-plan", "--port", "0", "-m"]).arg(&model);
    let end = run(flag_wins)?;
    ensure!(end.code() == Some(0), "{}", end.output);
    Ok(())
}

#[test]
fn the_model_offered_is_named_after_its_file_or_by_the_operator() -> Result<()> {
    let worker = Worker::start(&demo_model(), 0, &["--model-id".as_ref(), "my-model".as_ref()])?;
    worker.wait_until_healthy()?;
    let list: serde_json::Value = serde_json::from_str(&worker.get("/v1/models")?.body)?;
    assert_eq!(list["data"][0]["id"], "my-model");
    Ok(())
}
