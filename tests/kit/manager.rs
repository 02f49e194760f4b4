//! A service manager as far as a service sees it: it is told things, holds descriptors, and gives them back at the next
//! start.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ds4_wire::datagram;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::stat::fstat;
use tempfile::TempDir;

use crate::process::{PATIENCE, Process};

/// Where descriptors are put before they get the numbers that the service expects.
const ASIDE: usize = 200;

/// A service manager with a store of descriptors. Dropping it closes them. It listens on a thread of its own, as services
/// wait for one that does not.
pub struct Manager {
    folder: TempDir,
    socket: Arc<UnixDatagram>,
    heard: Arc<Mutex<Heard>>,
    over: Arc<AtomicBool>,
    listener: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Heard {
    /// By name.
    store: BTreeMap<String, OwnedFd>,
    /// Everything it was told, line by line.
    told: Vec<String>,
    /// Why it listens no more.
    fault: Option<String>,
}

impl Manager {
    /// A manager with an empty store.
    pub fn new() -> Result<Manager> {
        let folder = TempDir::new().context("a folder for the socket")?;
        let socket = Arc::new(UnixDatagram::bind(folder.path().join("notify"))?);
        let (heard, over) = (Arc::<Mutex<Heard>>::default(), Arc::<AtomicBool>::default());
        let (hears, ends, listened) = (Arc::clone(&heard), Arc::clone(&over), Arc::clone(&socket));
        let listener = std::thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                let mut heard = locked(&hears);
                if let Err(error) = heard.listen(&listened) {
                    heard.fault = Some(format!("{error:#}"));
                    return;
                }
                drop(heard);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        Ok(Manager { folder, socket, heard, over, listener: Some(listener) })
    }

    /// Starts a service as this manager does, with all descriptors of the store, when it has heard all that was said by
    /// who is dead.
    pub fn start(&self, service: &Command) -> Result<Process> {
        let mut heard = locked(&self.heard);
        heard.listen(&self.socket)?;
        let (mut aside, mut wanted, mut closed) = (String::new(), String::new(), String::new());
        for (index, fd) in heard.store.values().enumerate() {
            fcntl(fd, FcntlArg::F_SETFD(FdFlag::empty()))?;
            let (from, number) = (fd.as_raw_fd(), ASIDE + index);
            aside += &format!(" {number}<&{from}");
            wanted += &format!(" {}<&{number}", 3 + index);
            closed += &format!(" {number}<&-");
        }
        let names: Vec<&str> = heard.store.keys().map(String::as_str).collect();
        let mut command = Command::new("bash");
        // The service has to be the process that the numbers are meant for.
        let script = format!("exec{aside}; exec{wanted}{closed}; export LISTEN_PID=$$; exec \"$0\" \"$@\"");
        command.arg("-c").arg(if heard.store.is_empty() { "exec \"$0\" \"$@\"".to_owned() } else { script });
        command.arg(service.get_program()).args(service.get_args());
        command.env("NOTIFY_SOCKET", self.folder.path().join("notify"));
        command.env("LISTEN_FDS", names.len().to_string()).env("LISTEN_FDNAMES", names.join(":"));
        let process = Process::start(command);
        for fd in heard.store.values() {
            fcntl(fd, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
        }
        process
    }

    /// Puts a descriptor into the store, as if an earlier start of the service had left it there.
    pub fn store(&self, name: &str, fd: OwnedFd) {
        locked(&self.heard).store.insert(name.to_owned(), fd);
    }

    /// Blocks until this was told.
    pub fn wait_for(&self, line: &str) -> Result<()> {
        self.wait_until(line, |heard| heard.told.iter().any(|told| told == line))
    }

    /// Blocks until the store holds so many descriptors.
    pub fn wait_for_fds(&self, count: usize) -> Result<()> {
        self.wait_until("descriptors", |heard| heard.store.len() == count)
    }

    /// Blocks until the store holds so many whole sets of a keeper.
    pub fn wait_for_sets(&self, count: usize) -> Result<()> {
        self.wait_until("sets", |heard| heard.store.keys().filter(|name| name.ends_with(".set")).count() == count)
    }

    fn wait_until(&self, what: &str, is_it: impl Fn(&Heard) -> bool) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let heard = locked(&self.heard);
            if is_it(&heard) {
                return Ok(());
            }
            let Heard { store, told, fault } = &*heard;
            let waits = fault.is_none() && Instant::now() < deadline;
            ensure!(waits, "{what}: told {told:?}, stored {:?}, {fault:?}", store.keys());
            drop(heard);
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(listener) = self.listener.take() {
            let _ = listener.join();
        }
    }
}

fn locked(heard: &Mutex<Heard>) -> MutexGuard<'_, Heard> {
    heard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Heard {
    /// Whether a descriptor is in the store already, under whatever name: systemd drops such a one and says nothing. It
    /// asks for the same open file, and this for the same file, which is as good for memory without a name.
    fn holds(&self, fd: &OwnedFd) -> Result<bool> {
        let file = fstat(fd)?;
        for held in self.store.values() {
            let held = fstat(held)?;
            if (held.st_dev, held.st_ino) == (file.st_dev, file.st_ino) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Takes everything that has been sent.
    fn listen(&mut self, socket: &UnixDatagram) -> Result<()> {
        loop {
            let (text, fds) = match datagram(socket.as_fd()) {
                Ok(received) => received,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            let text = String::from_utf8(text).context("notifications are text")?;
            let lines: Vec<&str> = text.lines().collect();
            let name = lines.iter().find_map(|line| line.strip_prefix("FDNAME=")).unwrap_or("stored").to_owned();
            if lines.contains(&"FDSTORE=1") {
                ensure!(fds.len() == 1 && name.len() < 256 && !name.contains(':'), "{text:?} with {} fds", fds.len());
                for fd in fds {
                    if !self.holds(&fd)? {
                        self.store.insert(name.clone(), fd);
                    }
                }
            } else if lines.contains(&"FDSTOREREMOVE=1") {
                self.store.remove(&name);
            }
            self.told.extend(lines.into_iter().map(str::to_owned));
        }
    }
}
