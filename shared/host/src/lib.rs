//! What the ds4 binaries share at their edge: exit codes, the CPU check, clean text for terminals and logs, the run
//! directory, logging, progress and signals.
//!
//! Nothing here reads an environment variable: a binary's `config` reads it and passes the value in.

mod cpu;
mod exit;
mod logging;
mod printable;
mod private_file;
mod progress;
mod run_dir;
pub mod service;
mod signals;

pub use cpu::{CpuError, check_cpu};
pub use exit::Exit;
pub use logging::{LoggingError, init_logging};
pub use printable::{printable, printable_path};
pub use private_file::{PrivateFileError, append_private};
pub use progress::Progress;
pub use run_dir::{RunDirError, SYSTEM_RUN_DIR, choose_run_dir, run_dir_candidates};
pub use signals::StopSignals;
