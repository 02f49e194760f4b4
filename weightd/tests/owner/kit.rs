//! Owners as real processes on small models, and clients that speak the protocol to them.

use anyhow::{Context, Result, bail};
use ds4_gguf::writer::Writer;
use ds4_manifest::{Trust, WeightsManifest};
use ds4_tests::{Finished, Process, run};
use ds4_units::TensorType;
use ds4_wire::{Connection, Deadline, Hello, OwnerStatus, PROTO_MAX, PROTO_MIN, Phase, Reply, Request, Want, Welcome};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// When a wait is given up as hung; never part of what a test proves.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) fn soon() -> Deadline {
    Deadline::after(PATIENCE)
}

/// A folder with a model and a run directory of its own.
pub(crate) struct Rig {
    dir: TempDir,
}

impl Rig {
    /// With a model of a few tensors, the largest in the middle.
    pub(crate) fn new() -> Rig {
        let rig = Rig { dir: tempfile::tempdir().expect("a folder") };
        fs::create_dir(rig.run_dir()).expect("a run directory");
        small_model(0).write(&rig.model()).expect("a model");
        rig
    }

    /// With a model that takes a while to load: `mib` MiB of zeros, which take no room on the disk.
    pub(crate) fn slow(mib: u64) -> Rig {
        let rig = Rig::new();
        sparse_model(&rig.model(), mib).expect("a model");
        rig
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn model(&self) -> PathBuf {
        self.path().join("model.gguf")
    }

    pub(crate) fn run_dir(&self) -> PathBuf {
        self.path().join("run")
    }

    pub(crate) fn manifest(&self) -> PathBuf {
        self.run_dir().join("weights.json")
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.run_dir().join("weights.json.sock")
    }

    /// The program with nothing but these arguments.
    pub(crate) fn weightd_program(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(program());
        command.args(arguments);
        command
    }

    /// The program on this run directory.
    pub(crate) fn weightd(&self, arguments: &[&str]) -> Command {
        let mut command = self.weightd_program(&["--run-dir"]);
        command.arg(self.run_dir()).args(arguments);
        // Most tests stop an owner while they are still connected to it. A flag overrules this.
        command.env("DS4_DRAIN_TIMEOUT", "0");
        command
    }

    /// An owner of the model.
    pub(crate) fn owner(&self, arguments: &[&str]) -> Command {
        let mut command = self.weightd(&["--reserve-gb", "0"]);
        command.arg("--base").arg(self.model()).args(arguments);
        command
    }

    pub(crate) fn start(&self, arguments: &[&str]) -> Process {
        Process::start(self.owner(arguments)).expect("an owner starts")
    }

    pub(crate) fn ready(&self, arguments: &[&str]) -> Process {
        let owner = self.start(arguments);
        owner.wait_for_line("ready manifest=").expect("an owner becomes ready");
        owner
    }

    /// Runs the program to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Finished {
        run(self.weightd(arguments)).expect("the program runs")
    }

    /// Runs an owner that is expected to end by itself.
    pub(crate) fn run_owner(&self, arguments: &[&str]) -> Finished {
        run(self.owner(arguments)).expect("the program runs")
    }

    pub(crate) fn read_manifest(&self) -> WeightsManifest {
        WeightsManifest::read(&self.manifest(), &Trust::own_and([])).expect("a manifest")
    }

    pub(crate) fn connect(&self) -> Connection {
        Connection::connect(&self.socket(), soon()).expect("the owner listens")
    }

    /// What lies in the run directory.
    pub(crate) fn left_behind(&self) -> Vec<String> {
        let entries = fs::read_dir(self.run_dir()).expect("a run directory");
        let mut names: Vec<String> =
            entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

/// The program under test: where cargo built it, or in the pack that these tests were taken to another machine with.
fn program() -> PathBuf {
    let built = PathBuf::from(env!("CARGO_BIN_EXE_ds4-weightd"));
    if built.is_file() {
        return built;
    }
    let tests = std::env::current_exe().expect("this executable has a path");
    let pack = tests.ancestors().nth(2).expect("a pack has a folder of tests");
    pack.join("programs/ds4-weightd")
}

/// Four tensors; `seed` changes one byte in the middle of the second.
pub(crate) fn small_model(seed: u8) -> Writer {
    let mut bytes: Vec<u8> = (0..3 << 20).map(|at: u32| (at % 251) as u8).collect();
    bytes[(1 << 20) + 77_777] ^= seed;
    Writer::new("toy")
        .tensor("a.weight", TensorType::F32, &[64, 2], vec![1; 512])
        .tensor("b.weight", TensorType::F16, &[1024, 1536], bytes)
        .tensor("c.weight", TensorType::Q8_0, &[32, 4], vec![3; 136])
        .tensor("d.weight", TensorType::F32, &[8], vec![4; 32])
}

/// A model whose last tensor is a hole in the file.
fn sparse_model(path: &Path, mib: u64) -> Result<()> {
    const NAME: &[u8] = b"zz.weight";
    let mut bytes = Writer::new("toy")
        .tensor("a.weight", TensorType::F32, &[64, 2], vec![1; 512])
        .tensor("zz.weight", TensorType::F32, &[64], vec![0; 256])
        .to_bytes();
    let name = bytes.windows(NAME.len()).position(|window| window == NAME).context("the tensor's name")?;
    // After the name: the number of dimensions, then the only one.
    let dim = name + NAME.len() + 4;
    bytes[dim..dim + 8].copy_from_slice(&((mib << 20) / 4).to_le_bytes());
    fs::write(path, &bytes)?;
    fs::OpenOptions::new().write(true).open(path)?.set_len(bytes.len() as u64 + (mib << 20))?;
    Ok(())
}

pub(crate) fn hello() -> Hello {
    Hello {
        proto_min: PROTO_MIN,
        proto_max: PROTO_MAX,
        worker_id: "test".to_owned(),
        pid: std::process::id(),
        capabilities: Vec::new(),
        want: Want::default(),
    }
}

pub(crate) fn ask(connection: &Connection, request: &Request) -> Result<Reply> {
    Ok(connection.ask(request, soon(), |_| {})?)
}

/// Says hello and returns the welcome.
pub(crate) fn greet(connection: &Connection) -> Result<Welcome> {
    match ask(connection, &Request::Hello(hello()))? {
        Reply::Welcome(welcome) => Ok(welcome),
        other => bail!("no welcome but {other:?}"),
    }
}

pub(crate) fn status(connection: &Connection) -> Result<OwnerStatus> {
    match ask(connection, &Request::Status)? {
        Reply::Status(status) => Ok(*status),
        other => bail!("no status but {other:?}"),
    }
}

/// Blocks until `done` holds, looking again and again.
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < PATIENCE, "{what} never happened");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Blocks until the owner is loading, or past it.
pub(crate) fn until_loading(rig: &Rig) {
    until("loading", || {
        let Ok(connection) = Connection::connect(&rig.socket(), soon()) else { return false };
        let Ok(status) = status(&connection) else { return false };
        !matches!(status.phase, Phase::Starting | Phase::Planning | Phase::Preflight)
    });
}

pub(crate) fn open_fds(process: &Process) -> usize {
    fs::read_dir(format!("/proc/{}/fd", process.pid())).expect("the process lives").count()
}
