//! A child process whose output is kept, and which never outlives its handle.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use signal_hook::consts::SIGINT;

/// How long a wait may take before the test is stopped as hung.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Standard output and standard error of one child, line by line as they came.
#[derive(Default)]
struct Log {
    state: Mutex<LogState>,
    changed: Condvar,
}

#[derive(Default)]
struct LogState {
    lines: Vec<String>,
    streams_open: usize,
}

impl Log {
    fn state(&self) -> MutexGuard<'_, LogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn follow(self: &Arc<Self>, stream: impl Read + Send + 'static) -> JoinHandle<()> {
        self.state().streams_open += 1;
        let log = self.clone();
        thread::spawn(move || {
            for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
                log.state().lines.push(String::from_utf8_lossy(&line).into_owned());
                log.changed.notify_all();
            }
            log.state().streams_open -= 1;
            log.changed.notify_all();
        })
    }
}

/// Undoes what a shell does to commands in its background: they ignore SIGINT, and so would our children until they
/// handle it, which the tests of their first moments would take for a lost signal. A signal that has a handler here is
/// at its default in a new program; this handler does what the default does.
fn heed_interrupts() -> Result<()> {
    let status = fs::read_to_string("/proc/self/status").context("this process's signals")?;
    let ignored =
        status.lines().find_map(|line| line.strip_prefix("SigIgn:")).context("SigIgn in /proc/self/status")?;
    let ignored = u64::from_str_radix(ignored.trim(), 16).context("SigIgn is a mask")?;
    if ignored & (1 << (SIGINT - 1)) != 0 {
        signal_hook::flag::register_conditional_default(SIGINT, Arc::new(AtomicBool::new(true)))?;
    }
    Ok(())
}

/// A running child process. Dropping it kills it with SIGKILL, waits for it, and prints its output if the test is
/// failing.
pub struct Process {
    name: String,
    child: Child,
    log: Arc<Log>,
    followers: Vec<JoinHandle<()>>,
    started: Instant,
}

impl Process {
    /// Starts `command`, keeping what it prints. Standard input is empty.
    pub fn start(mut command: Command) -> Result<Process> {
        let name = command.get_program().to_string_lossy().rsplit('/').next().unwrap_or_default().to_owned();
        heed_interrupts()?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let started = Instant::now();
        let mut child = command.spawn().with_context(|| format!("{name} cannot be started"))?;
        let log = Arc::new(Log::default());
        let output = child.stdout.take().context("standard output is piped")?;
        let errors = child.stderr.take().context("standard error is piped")?;
        let followers = vec![log.follow(output), log.follow(errors)];
        Ok(Process { name, child, log, followers, started })
    }

    /// The process id.
    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    /// Time since just before the process was executed.
    pub fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// Everything printed so far, standard output and standard error in the order of arrival.
    pub fn output(&self) -> String {
        self.log.state().lines.join("\n")
    }

    /// Blocks until `find` accepts a line, past or coming, and returns what it made of it. An error, with the output,
    /// when the process closes its output first.
    pub fn wait_for<T>(&self, what: &str, find: impl Fn(&str) -> Option<T>) -> Result<T> {
        let deadline = Instant::now() + PATIENCE;
        let mut state = self.log.state();
        let mut seen = 0;
        loop {
            if let Some(found) = state.lines[seen..].iter().find_map(|line| find(line)) {
                return Ok(found);
            }
            seen = state.lines.len();
            if state.streams_open == 0 || Instant::now() >= deadline {
                bail!("{} never said {what}; it said:\n{}", self.name, state.lines.join("\n"));
            }
            let wait = deadline.saturating_duration_since(Instant::now());
            state = self.log.changed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Blocks until a line contains `text`, and returns that line.
    pub fn wait_for_line(&self, text: &str) -> Result<String> {
        self.wait_for(text, |line| line.contains(text).then(|| line.to_owned()))
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        kill(self.pid(), signal).with_context(|| format!("{signal} to {}", self.name))
    }

    /// Whether the process has closed its output, as it does at its end.
    pub fn has_ended(&self) -> bool {
        self.log.state().streams_open == 0
    }

    /// Kills the process with SIGKILL and waits until it is gone.
    pub fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Asks the process to stop with SIGTERM and waits for its end.
    pub fn terminate(self) -> Result<Finished> {
        self.signal(Signal::SIGTERM)?;
        self.finish()
    }

    /// Blocks until the process ends by itself, as it should do soon.
    pub fn finish(self) -> Result<Finished> {
        let running = |state: &mut LogState| state.streams_open > 0;
        let waited = self.log.changed.wait_timeout_while(self.log.state(), PATIENCE, running);
        let (state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        if timeout.timed_out() {
            bail!("{} did not end; it said:\n{}", self.name, state.lines.join("\n"));
        }
        drop(state);
        self.wait_for_end()
    }

    /// Blocks until the process ends by itself, however long that takes.
    pub fn wait_for_end(mut self) -> Result<Finished> {
        let running = |state: &mut LogState| state.streams_open > 0;
        drop(self.log.changed.wait_while(self.log.state(), running));
        let status = self.child.wait()?;
        Ok(Finished { status, output: self.output() })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only for a process that has ended, which is what they are for.
        self.child.kill().ok();
        self.child.wait().ok();
        for follower in self.followers.drain(..) {
            follower.join().ok();
        }
        if thread::panicking() {
            eprintln!("--- output of {} (pid {})\n{}\n---", self.name, self.child.id(), self.output());
        }
    }
}

/// A process that has ended.
pub struct Finished {
    /// How it ended.
    pub status: ExitStatus,
    /// What it printed, both streams in the order of arrival.
    pub output: String,
}

impl Finished {
    /// The exit code, or `None` after a signal.
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }
}

/// Runs `command` to its end.
pub fn run(command: Command) -> Result<Finished> {
    Process::start(command)?.finish()
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    fn shell(script: &str) -> Process {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Process::start(command).unwrap()
    }

    #[test]
    fn a_line_is_found_before_and_after_it_is_printed() {
        let process = shell("echo first; read line; echo second >&2");
        assert_eq!(process.wait_for_line("fir").unwrap(), "first");
        assert_eq!(process.wait_for_line("second").unwrap(), "second");
        assert_eq!(process.wait_for_line("first").unwrap(), "first");
    }

    #[test]
    fn a_wait_ends_with_the_process_and_shows_what_it_said() {
        let error = shell("echo its last words; exit 3").wait_for_line("ready").unwrap_err();
        assert!(error.to_string().ends_with("never said ready; it said:\nits last words"), "{error}");
    }

    #[test]
    fn a_dropped_handle_takes_its_process_along() {
        let process = shell("echo up; exec sleep 1000");
        process.wait_for_line("up").unwrap();
        let pid = process.pid();
        drop(process);
        assert_eq!(kill(pid, None), Err(nix::errno::Errno::ESRCH));
    }

    #[test]
    fn an_interrupt_reaches_a_child_of_a_test_in_the_background() {
        // A shell without job control starts what is in its background with SIGINT ignored.
        if env::var_os("DS4_TEST_IN_BACKGROUND").is_none() {
            let this = env::current_exe().unwrap();
            let mut shell = Command::new("sh");
            shell.args([
                "-c",
                "\"$0\" --exact process::tests::an_interrupt_reaches_a_child_of_a_test_in_the_background & wait $!",
            ]);
            shell.arg(this).env("DS4_TEST_IN_BACKGROUND", "1");
            let end = Process::start(shell).unwrap().finish().unwrap();
            assert_eq!(end.code(), Some(0), "{}", end.output);
            return;
        }
        let child = shell("echo up; exec sleep 1000");
        child.wait_for_line("up").unwrap();
        child.signal(Signal::SIGINT).unwrap();
        assert_eq!(child.finish().unwrap().status.signal(), Some(SIGINT));
    }

    #[test]
    fn an_end_has_its_code_and_its_output() {
        let end = shell("echo out; echo err >&2; exit 7").finish().unwrap();
        assert_eq!(end.code(), Some(7));
        assert!(end.output.contains("out") && end.output.contains("err"), "{}", end.output);
    }
}
