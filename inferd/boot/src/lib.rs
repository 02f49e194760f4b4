//! From a model file, and an owner or none, to a model that is ready to run.
//!
//! `ds4-server` and `ds4` start here, with the same flags ([`ModelArgs`]) and the same decisions, each of which is one
//! log line. [`ModelFile::open`] reads a file's header and checks that a family runs it; [`ModelFile::load`] attaches
//! to an owner or loads the file itself, and binds the weights.

mod config;
mod device;
mod error;
mod file;
mod guard;
mod ledger;
mod manifest;
mod memory;
mod progress;
mod weights;

pub use config::{DeviceChoice, Fallback, KvRows, ModelArgs, Platform};
pub use device::{leaked_handles, start_driver};
pub use ds4_import::ComputeDevice;
pub use error::BootError;
pub use file::{Booted, ModelFile, Prospect};
pub use guard::Guard;
pub use ledger::{Asked, Ledger};
pub use memory::{default_floor, observer, own_memory};
pub use weights::{Derived, WeightMemory};
