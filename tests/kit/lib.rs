//! What whole-process tests and the demo stand on: real owners and workers as child processes, a client that speaks
//! HTTP to them, and a look at what they hold open.
//!
//! Nothing here sleeps for a guessed time. A wait ends with the event it waits for, with the end of the process, or
//! after [`PATIENCE`], which is there to stop a hung test and is never part of what a test proves.

mod binaries;
mod host;
mod http;
mod manager;
mod owner;
mod process;
mod site;
mod talk;
mod worker;

pub use binaries::{binary, command, repository, take_programs_from};
pub use host::{memory_now, open_files, paths_below, peak_memory};
pub use http::{Events, Reply, get, post, raw, stream};
pub use manager::Manager;
pub use owner::{Owner, demo_model};
pub use process::{Finished, PATIENCE, Process, run};
pub use site::Site;
pub use talk::{Answer, TURNS, messages};
pub use worker::Worker;
