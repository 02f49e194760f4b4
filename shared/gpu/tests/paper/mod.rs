//! Tests of host code for GPUs on a machine without one: with a driver that computes nothing.

use std::env;
use std::path::Path;
use std::process::Command;

/// Set in a process that has the driver.
const MARK: &str = "DS4_TEST_ON_PAPER";
const DRIVER: &str = "shared/gpu/tests/paper/driver.rs";

/// Numbers of the driver's devices.
pub(crate) const HOPPER: usize = 0;
pub(crate) const BLACKWELL: usize = 1;

/// Runs `test`, all of the test of this name, in a process of its own that finds the driver on paper instead of NVIDIA's.
pub(crate) fn on_paper(name: &str, test: impl FnOnce()) {
    if env::var_os(MARK).is_some() {
        return test();
    }
    let folder = tempfile::tempdir().expect("a folder");
    compile(folder.path());
    let mut command = Command::new(env::current_exe().expect("this program"));
    command.args([name, "--exact", "--nocapture"]).env("LD_LIBRARY_PATH", folder.path()).env(MARK, "yes");
    let output = command.output().expect("this program runs");
    print!("{}", String::from_utf8_lossy(&output.stdout));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} with the driver on paper: {}\n{said}", output.status);
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{name} is the name of a test");
}

fn compile(folder: &Path) {
    let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|folder| folder.join(DRIVER));
    let source = above.into_iter().find(|path| path.exists()).expect("the driver's source is in this repository");
    let mut command = Command::new("rustc");
    command.args(["--edition", "2024", "--crate-type", "cdylib", "--crate-name", "cuda", "-C", "panic=abort", "-o"]);
    let built = command.arg(folder.join("libcuda.so")).arg(&source).output().expect("rustc runs");
    assert!(built.status.success(), "{}: {}", source.display(), String::from_utf8_lossy(&built.stderr));
}
