//! One cell: processes brought into a phase, one of them killed, and what is found afterwards.

use std::ffi::OsString;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ds4_tests::{Answer, PATIENCE, Process, Site, Worker, paths_below};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cell::{Conversation, Outcome, Phase, Running, Victim, Weights};

/// Tries to hit a phase that may be over when the blow falls.
const TRIES: usize = 20;

/// What is asked, and what an undisturbed run answers.
pub(crate) struct Script {
    turns: Vec<(String, String)>,
}

/// Turns before the blow.
const BEFORE: usize = 2;
/// The turn that is running when it falls.
const STRUCK: usize = 2;
/// Turns in all.
const TURNS: usize = 4;

impl Script {
    /// The questions of `asked`, answered by a worker that nobody disturbs. The third one is long, so that computing it
    /// takes a while.
    pub(crate) fn undisturbed(site: &Site) -> Result<Script> {
        let _owner = site.serving_owner()?;
        let worker = site.serving_worker()?;
        let mut script = Script { turns: Vec::new() };
        for question in questions() {
            script.turns.push((question, String::new()));
            let last = script.turns.len() - 1;
            script.turns[last].1 = Answer::to(&worker, &script.messages(last))?.text;
        }
        ensure!(script.turns.iter().all(|(_, answer)| !answer.is_empty()), "an undisturbed run answers");
        Ok(script)
    }

    fn messages(&self, last: usize) -> Value {
        let mut messages = Vec::new();
        for (question, answer) in &self.turns[..last] {
            messages.push(json!({"role": "user", "content": question}));
            messages.push(json!({"role": "assistant", "content": answer}));
        }
        messages.push(json!({"role": "user", "content": self.turns[last].0}));
        json!(messages)
    }

    /// Asks and insists on the undisturbed answer.
    fn ask(&self, worker: &Worker, turn: usize) -> Result<Answer> {
        let answer = Answer::to(worker, &self.messages(turn))?;
        let right = &self.turns[turn].1;
        ensure!(answer.text == *right, "WRONG TOKENS: turn {turn} is {right:?} undisturbed and became {answer:?}");
        Ok(answer)
    }
}

fn questions() -> [String; TURNS] {
    let facts: Vec<String> = (0..24).map(|n| format!("Note {n}: the box number {n} is on shelf {}.", n % 7)).collect();
    [
        "Hello, my name is Clara.".to_owned(),
        "My dog is called Bimol.".to_owned(),
        format!("{} What is the capital of Peru?", facts.join(" ")),
        "What is my dog's name?".to_owned(),
    ]
}

/// Processes of one cell. `None` is one that is dead.
struct Scene<'a> {
    site: Site,
    disk: TempDir,
    script: &'a Script,
    keeper: Option<Process>,
    owner: Option<Process>,
    worker: Option<Worker>,
}

/// How the processes are started.
pub(crate) struct Stage<'a> {
    /// The model's file.
    pub(crate) model: &'a Path,
    /// Further arguments of owners.
    pub(crate) owner_arguments: &'a [OsString],
}

impl Stage<'_> {
    /// A run directory of its own, with conversations kept in `disk` if anywhere.
    pub(crate) fn site(&self, disk: Option<&Path>) -> Result<Site> {
        let mut worker: Vec<OsString> = vec!["--prefill-chunk".into(), "32".into()];
        if let Some(disk) = disk {
            worker.extend(["--kv-disk-dir".into(), disk.into()]);
            worker.extend(["--kv-cache-min-tokens", "8", "--kv-cache-continued-interval-tokens", "32"].map(Into::into));
        }
        Site::new(self.model, self.owner_arguments, &worker)
    }

    /// Strikes until the phase is hit, and says what survived.
    pub(crate) fn strike(&self, script: &Script, phase: Phase, victim: Victim) -> Result<Outcome> {
        for _ in 0..TRIES {
            let disk = TempDir::new().context("a folder for conversations")?;
            let folder = disk.path().join("kv");
            let site = self.site(Some(&folder))?;
            let scene = Scene { site, disk, script, keeper: None, owner: None, worker: None };
            if let Some(outcome) = scene.play(phase, victim)? {
                return Ok(outcome);
            }
        }
        bail!("the phase was over before the blow {TRIES} times")
    }
}

impl Scene<'_> {
    /// `None` when the phase was over before the blow fell.
    fn play(mut self, phase: Phase, victim: Victim) -> Result<Option<Outcome>> {
        self.keeper = Some(self.site.keeper()?);
        match phase {
            Phase::Load => self.during_load(victim),
            Phase::Import => self.during_import(victim),
            _ => self.during_an_answer(phase, victim),
        }
    }

    fn during_load(&mut self, victim: Victim) -> Result<Option<Outcome>> {
        self.worker = Some(self.site.worker()?);
        let owner = self.site.owner()?;
        owner.wait_for_line("starting")?;
        owner.signal(Signal::SIGSTOP)?;
        let is_loading = !owner.output().contains("weights parked");
        self.owner = Some(owner);
        self.kill(victim)?;
        if let Some(owner) = &self.owner {
            owner.signal(Signal::SIGCONT)?;
        }
        let outcome = self.go_on(Running::None, None)?;
        Ok(is_loading.then_some(outcome))
    }

    fn during_import(&mut self, victim: Victim) -> Result<Option<Outcome>> {
        self.owner = Some(self.site.serving_owner()?);
        let worker = self.site.worker()?;
        worker.process().signal(Signal::SIGSTOP)?;
        let is_importing = !worker.process().output().contains(" ready ");
        self.worker = Some(worker);
        self.kill(victim)?;
        if let Some(worker) = &self.worker {
            worker.process().signal(Signal::SIGCONT)?;
        }
        let outcome = self.go_on(Running::None, None)?;
        Ok(is_importing.then_some(outcome))
    }

    fn during_an_answer(&mut self, phase: Phase, victim: Victim) -> Result<Option<Outcome>> {
        self.owner = Some(self.site.serving_owner()?);
        let worker = self.site.serving_worker()?;
        (0..BEFORE).try_for_each(|turn| self.script.ask(&worker, turn).map(drop))?;
        worker.wait_for_stat("parked", "conversations", |count| count > 0)?;
        let folder = self.disk.path().join("kv");
        ensure!(until(|| files(&folder) > 0), "the conversation was never saved");
        let (computed, saved) = (worker.stat("cache", "tokens_prefilled_computed")?, files(&folder));
        let (messages, right) = (self.script.messages(STRUCK), &self.script.turns[STRUCK].1);

        let heard = Mutex::new(Heard::default());
        let in_time = std::thread::scope(|scope| -> Result<bool> {
            scope.spawn(|| listen(&worker, &messages, &heard));
            let now = || heard.lock().unwrap_or_else(PoisonError::into_inner).clone();
            match phase {
                Phase::Decode => until(|| !now().text.is_empty() || now().whole),
                Phase::Save => until(|| files(&folder) > saved || has_temporary(&folder)),
                _ => until(|| worker.stat("cache", "tokens_prefilled_computed").is_ok_and(|now| now > computed)),
            };
            if phase == Phase::Shutdown {
                self.signal(victim, &worker, Signal::SIGTERM)?;
            }
            self.signal(victim, &worker, Signal::SIGKILL)?;
            let now = now();
            Ok(!now.whole && (phase != Phase::Prefill || now.text.is_empty()))
        })?;
        self.worker = Some(worker);
        self.kill(victim)?;
        let Heard { text, whole } = heard.into_inner().unwrap_or_else(PoisonError::into_inner);
        ensure!(right.starts_with(&text), "WRONG TOKENS: {right:?} undisturbed began with {text:?}");
        ensure!(!whole || text == *right, "WRONG TOKENS: {right:?} undisturbed ended as {text:?}");
        let outcome = self.go_on(if whole { Running::Whole } else { Running::Cut }, Some(STRUCK))?;
        // A blow between a bank's growth and its parking leaves it in doubt; then it comes from disk, and says so.
        let in_doubt =
            self.worker.as_ref().is_some_and(|worker| worker.process().output().contains("is not taken over"));
        Ok((in_time && !in_doubt).then_some(outcome))
    }

    fn signal(&self, victim: Victim, worker: &Worker, signal: Signal) -> Result<()> {
        if matches!(victim, Victim::Worker | Victim::WorkerAndKeeper) {
            worker.process().signal(signal)?;
        }
        if victim == Victim::Owner {
            self.owner.as_ref().context("an owner")?.signal(signal)?;
        }
        if matches!(victim, Victim::Keeper | Victim::WorkerAndKeeper) {
            self.keeper.as_ref().context("a keeper")?.signal(signal)?;
        }
        Ok(())
    }

    fn kill(&mut self, victim: Victim) -> Result<()> {
        if matches!(victim, Victim::Worker | Victim::WorkerAndKeeper)
            && let Some(worker) = self.worker.take()
        {
            worker.kill()?;
        }
        if victim == Victim::Owner
            && let Some(owner) = self.owner.take()
        {
            owner.kill()?;
        }
        if matches!(victim, Victim::Keeper | Victim::WorkerAndKeeper)
            && let Some(keeper) = self.keeper.take()
        {
            keeper.kill()?;
        }
        Ok(())
    }

    /// Starts what is dead, asks on, and says what was found.
    fn go_on(&mut self, running: Running, struck: Option<usize>) -> Result<Outcome> {
        if self.keeper.is_none() {
            self.keeper = Some(self.site.keeper()?);
        }
        let weights = match &self.owner {
            Some(owner) => {
                owner.wait_for_line("ready manifest=")?;
                Weights::Held
            }
            None => {
                let owner = self.site.serving_owner()?;
                let taken = owner.output().contains("weights taken back");
                self.owner = Some(owner);
                if taken { Weights::TakenBack } else { Weights::Loaded }
            }
        };
        // A worker whose owner died while it was attaching ends and says so; its supervisor starts another.
        let lives = self.worker.as_ref().is_some_and(|worker| worker.wait_until_healthy().is_ok());
        if !lives {
            self.worker = Some(self.site.serving_worker()?);
        }
        let worker = self.worker.as_ref().context("a worker")?;
        let mut conversation = Conversation::None;
        // Where nothing was said yet the short turns are enough.
        let turns = if struck.is_some() { STRUCK..TURNS } else { 0..BEFORE };
        for turn in turns {
            let answer = self.script.ask(worker, turn)?;
            if struck == Some(turn) {
                conversation = match answer.reuse.as_str() {
                    _ if lives => Conversation::Live,
                    "adopted" => Conversation::Adopted,
                    "disk" => Conversation::Disk,
                    _ => Conversation::Cold,
                };
            }
        }
        Ok(Outcome { weights, conversation, running })
    }
}

/// What a client heard.
#[derive(Clone, Debug, Default)]
struct Heard {
    text: String,
    whole: bool,
}

/// Asks and listens until the answer ends or breaks off.
fn listen(worker: &Worker, messages: &Value, heard: &Mutex<Heard>) {
    let heard = || heard.lock().unwrap_or_else(PoisonError::into_inner);
    // A worker that dies before it has begun to answer has said nothing.
    let Ok(mut events) = worker.stream(messages) else { return };
    while let Ok(next) = events.next_text() {
        match next {
            Some(text) => heard().text.push_str(&text),
            None => return heard().whole = true,
        }
    }
}

fn files(folder: &Path) -> usize {
    paths_below(folder)
        .unwrap_or_default()
        .iter()
        .filter(|path| path.extension().is_some_and(|end| end == "kv"))
        .count()
}

/// Whether something is being written.
fn has_temporary(folder: &Path) -> bool {
    paths_below(folder).unwrap_or_default().iter().any(|path| path.to_string_lossy().contains(".tmp"))
}

fn until(mut done: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if done() {
            return true;
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    false
}
