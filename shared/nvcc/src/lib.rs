//! From `cu/*.cu` of a crate to cubins embedded in it, for build scripts.
//!
//! Every file is compiled once per entry of [`ARCHITECTURES`], to machine code and nothing else: no PTX that a driver
//! would compile later, on a machine where nobody tested it. A kernel that spills registers fails the build, unless
//! `cu/spills.txt` names it and says why.

mod compiler;
mod config;
mod spills;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::{fs, thread};

/// The GPU architectures that kernels are compiled for. A GPU outside this list is refused when a worker starts.
///
/// `sm_90a`: Hopper (H100, H200, GH200). `sm_120a`: desktop and workstation Blackwell. `sm_121a`: GB10.
pub const ARCHITECTURES: [&str; 3] = ["sm_90a", "sm_120a", "sm_121a"];

/// One file for one architecture.
struct Job {
    name: String,
    source: PathBuf,
    architecture: &'static str,
}

/// Compiles every `.cu` in `folder` of the calling crate and writes `cubins.rs` into its output folder: an expression
/// that is a slice of `cubin_type { name, arch, image }`, ordered by name and architecture, to be `include!`d.
///
/// Does nothing without the crate's feature `cuda`. Blocks while the compiler runs, on as many threads as cargo allows.
///
/// # Panics
/// When there is no compiler, a file does not compile, or a kernel spills registers without being listed: a build
/// script reports failure in no other way.
pub fn compile(folder: &str, cubin_type: &str) {
    println!("cargo::rerun-if-changed={folder}");
    if !config::cuda_is_on() {
        return;
    }
    let compiler = compiler::Compiler::find();
    let folder = Path::new(folder);
    let sources = list(folder, "cu");
    let headers = list(folder, "cuh");
    let allowed = spills::Allowed::read(&folder.join("spills.txt"));
    let out = config::out_dir();
    let jobs: Vec<Job> = sources.iter().flat_map(|source| jobs_of(source)).collect();
    run(&jobs, |job| compiler.compile(job, folder, &headers, &out, &allowed));
    fs::write(out.join("cubins.rs"), table(&jobs, cubin_type, &out)).expect("the output folder is writable");
}

fn jobs_of(source: &Path) -> impl Iterator<Item = Job> {
    let name = source.file_stem().expect("a source has a name").to_string_lossy().into_owned();
    let source = source.to_owned();
    ARCHITECTURES.into_iter().map(move |architecture| Job { name: name.clone(), source: source.clone(), architecture })
}

/// The folder's files with this extension, by name.
fn list(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let paths = entries.map(|entry| entry.expect("a folder can be listed").path());
    let mut files: Vec<PathBuf> = paths.filter(|path| path.extension().is_some_and(|own| own == extension)).collect();
    files.sort();
    files
}

/// Runs every job, several at a time, and panics with everything that went wrong.
fn run(jobs: &[Job], work: impl Fn(&Job) -> Result<(), String> + Sync) {
    let next = Mutex::new(jobs.iter());
    let failures = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..config::jobs().min(jobs.len()) {
            scope.spawn(|| {
                loop {
                    let Some(job) = next.lock().expect("workers do not panic").next() else { break };
                    if let Err(failure) = work(job) {
                        failures.lock().expect("workers do not panic").push(failure);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().expect("workers do not panic");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn table(jobs: &[Job], cubin_type: &str, out: &Path) -> String {
    let mut text = String::from("&[\n");
    for Job { name, architecture, .. } in jobs {
        let image = out.join(format!("{name}.{architecture}.cubin"));
        writeln!(
            text,
            "    {cubin_type} {{ name: {name:?}, arch: {architecture:?}, image: include_bytes!({image:?}) }},"
        )
        .expect("text takes everything");
    }
    text.push_str("]\n");
    text
}
