//! `scripts/demo`: a conversation that survives the death of its worker, with real processes and over HTTP.

use std::io::{Write, stdout};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use ds4_tests::{Finished, Owner, Worker, binary, demo_model, repository};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Loads the model in the repository into a weight owner, talks to a worker over HTTP, kills the worker with SIGKILL,
/// starts another one against the same owner and goes on talking; then has it call a tool.
#[derive(Parser)]
#[command(name = "scripts/demo")]
struct Options {
    /// Stop after the conversation instead of serving on.
    #[arg(long)]
    once: bool,
    /// Loopback port of the worker; 0 takes any free one.
    #[arg(long, default_value_t = 0)]
    port: u16,
}

const BEFORE: [&str; 3] = ["Hello, my name is Clara.", "My dog is called Bimol.", "What is the capital of Peru?"];
const AFTER: &str = "What is my dog's name?";
/// What the model is asked to run; nothing else that it may come up with is.
const COMMAND: &str = "echo ds4-tool-ok";

/// The processes that a stop signal must reach, and whether one has come.
#[derive(Clone, Default)]
struct Children(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    stopping: bool,
    pids: Vec<Pid>,
}

impl Children {
    fn add(&self, pid: Pid) {
        let mut state = self.0.lock().expect("no holder of the lock panics");
        state.pids.push(pid);
        if state.stopping {
            stop(pid);
        }
    }

    fn remove(&self, pid: Pid) {
        self.0.lock().expect("no holder of the lock panics").pids.retain(|known| *known != pid);
    }

    fn stop(&self) {
        let mut state = self.0.lock().expect("no holder of the lock panics");
        state.stopping = true;
        state.pids.iter().copied().for_each(stop);
    }

    fn is_stopping(&self) -> bool {
        self.0.lock().expect("no holder of the lock panics").stopping
    }
}

/// A process that has just ended by itself needs no signal.
fn stop(pid: Pid) {
    kill(pid, Signal::SIGTERM).ok();
}

fn main() -> Result<()> {
    let options = Options::parse();
    let children = Children::default();
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let on_signal = children.clone();
    // Stopping the children ends whatever the demo waits for; it then leaves in order, removing its run directory.
    thread::spawn(move || signals.forever().for_each(|_| on_signal.stop()));
    match converse(&options, &children) {
        Err(error) if !children.is_stopping() => Err(error),
        _ => {
            println!("demo: stopped, nothing is left behind");
            Ok(())
        }
    }
}

fn converse(options: &Options, children: &Children) -> Result<()> {
    let model = demo_model();
    println!("demo: looking for ds4-weightd and ds4-server, building what is not up to date");
    for name in ["ds4-weightd", "ds4-server"] {
        binary(name)?;
    }

    let shown = model.strip_prefix(repository()).unwrap_or(&model);
    println!("demo: ds4-weightd loads {}", shown.display());
    let owner = Owner::start(&model, &[])?;
    children.add(owner.process().pid());
    let manifest = owner.manifest()?;
    println!("demo: the owner (pid {}) holds the weights; manifest {}", owner.process().pid(), manifest.display());

    let (worker, _) = attach(&model, &owner, options.port, children)?;
    let mut conversation = Vec::new();
    for question in BEFORE {
        ask(&worker, &mut conversation, question)?;
    }

    println!("demo: kill -9 {}", worker.process().pid());
    let port = worker.address().port();
    children.remove(worker.process().pid());
    worker.kill()?;

    let (worker, ready) = attach(&model, &owner, port, children)?;
    println!("restart_ready_ms={}", ready.as_millis());
    ask(&worker, &mut conversation, AFTER)?;
    use_a_tool(&worker)?;

    let end = if options.once { worker.terminate()? } else { serve_on(worker)? };
    ensure!(end.status.success(), "the worker ended with {}; it said:\n{}", end.status, end.output);
    let (end, _run_dir) = owner.terminate()?;
    ensure!(end.status.success(), "the owner ended with {}; it said:\n{}", end.status, end.output);
    Ok(())
}

/// A worker that serves, and the time from its execution to `/health` saying so.
fn attach(model: &Path, owner: &Owner, port: u16, children: &Children) -> Result<(Worker, Duration)> {
    let worker = Worker::start(model, port, &["--weights".as_ref(), owner.manifest()?.as_os_str()])?;
    children.add(worker.process().pid());
    let ready = worker.wait_until_healthy()?;
    let (pid, address) = (worker.process().pid(), worker.address());
    println!("demo: a worker (pid {pid}) serves http://{address}/v1, {} ms after it was started", ready.as_millis());
    Ok((worker, ready))
}

/// Asks the next question of the conversation, printing the answer piece by piece as it arrives.
fn ask(worker: &Worker, conversation: &mut Vec<Value>, question: &str) -> Result<()> {
    println!("  you> {question}");
    conversation.push(json!({"role": "user", "content": question}));
    print!("  ds4> ");
    let mut answer = String::new();
    let mut events = worker.stream(&json!(conversation))?;
    while let Some(text) = events.next_text()? {
        print!("{text}");
        stdout().flush()?;
        answer.push_str(&text);
    }
    println!();
    conversation.push(json!({"role": "assistant", "content": answer}));
    Ok(())
}

/// Offers a shell, runs what the model calls it with, and has the model say what came out.
fn use_a_tool(worker: &Worker) -> Result<()> {
    let question = format!("Run `{COMMAND}` and tell me its output.");
    println!("  you> {question}");
    let mut messages = vec![json!({"role": "user", "content": question})];
    let message = reply_with_a_shell(worker, &messages)?;
    let call = &message["tool_calls"][0];
    let said = |part| call["function"][part].as_str().with_context(|| format!("no call in {message}"));
    let arguments = said("arguments")?;
    println!("  ds4> calls {} with {arguments}", said("name")?);
    let command = serde_json::from_str::<Value>(arguments)?["command"].take();
    ensure!(command == COMMAND, "the model wants to run {command} and not what it was asked to");
    let output = Command::new("sh").args(["-c", COMMAND]).output().context("sh")?;
    let output = String::from_utf8_lossy(&output.stdout).into_owned();
    print!("   sh> {output}");
    let result = json!({"role": "tool", "tool_call_id": call["id"], "content": output});
    messages.extend([message, result]);
    let message = reply_with_a_shell(worker, &messages)?;
    println!("  ds4> {}", message["content"].as_str().with_context(|| format!("no text in {message}"))?);
    Ok(())
}

/// The model's next message, with a shell on offer.
fn reply_with_a_shell(worker: &Worker, messages: &[Value]) -> Result<Value> {
    let shell = json!({"type": "function", "function": {
        "name": "bash",
        "description": "Run a shell command and return what it prints.",
        "parameters": {
            "type": "object",
            "properties": {"command": {"type": "string", "description": "The command"}},
            "required": ["command"],
        },
    }});
    let body = json!({
        "messages": messages, "tools": [shell], "temperature": 0, "thinking": {"type": "disabled"},
    });
    let reply = worker.post("/v1/chat/completions", &body.to_string())?;
    ensure!(reply.status == 200, "{} {}", reply.status, reply.body);
    let mut reply: Value = serde_json::from_str(&reply.body)?;
    Ok(reply["choices"][0]["message"].take())
}

/// Blocks until the worker ends: a signal to the demo stops it.
fn serve_on(worker: Worker) -> Result<Finished> {
    let address = worker.address();
    println!("demo: serving on; stop with Ctrl-C. Another terminal can ask, for instance:");
    println!("  curl -N http://{address}/v1/chat/completions -H 'content-type: application/json' -d '");
    println!(
        "    {{\"messages\":[{{\"role\":\"user\",\"content\":\"Which writer wrote Moby Dick?\"}}],\"stream\":true}}'"
    );
    worker.wait_for_end()
}
