//! The weight owner: loads models into shareable memory once, lends them to workers over a Unix socket, and stays.
//!
//! Life of an owner: take the lock, look at what an earlier owner left, open the socket, plan, check memory, load,
//! publish the manifest, wait. On the way down the manifest goes first, then the workers are told and waited for, then
//! the memory, the socket and the lock go. Every step back is a Drop, so that an error or a signal at any point
//! leaves nothing behind.
//!
//! Weights outlive their owner where a keeper runs (`ds4-weightd keep`, a process of its own): the owner parks the
//! descriptors of its ranges there once they are loaded, and the next owner takes them back instead of loading.
//!
//! Log lines that programs may rely on, each at the end of a line of standard error:
//! `broker listening path=…`, `ready manifest=… instance=… generation=… ranges=… bytes=… load_s=… gib_per_s=…`,
//! `draining workers=… timeout_s=…`, `released bytes=…`, or `parked bytes=…` when a keeper holds them.
//!
//! Threads: the main thread loads and waits for signals; one accepts connections; one per connection serves it. All
//! block in poll, so an idle owner uses no CPU.

mod access;
mod backend;
mod bell;
mod broker;
mod command;
mod config;
mod drain;
mod error;
mod holders;
mod keeper;
mod layout;
mod listener;
mod loading;
mod lock;
mod owner;
mod parking;
mod process;
mod replaced;
mod report;
mod session;
mod stale;
mod status;
mod store;

pub use access::Access;
pub use backend::BackendError;
pub use command::{
    BackendChoice, Command, CommandError, DeviceChoice, KeepConfig, KeeperConfig, LoadConfig, Paths, PlanConfig,
    ServeConfig, Setting, StatusConfig,
};
pub use config::Platform;
pub use ds4_wire::KeeperError;
pub use error::OwnerError;

use ds4_host::{Exit, StopSignals};

/// Does what the command line asks for and says how it went. Blocks until an owner has shut down.
pub fn run(command: Command, signals: &StopSignals) -> Result<Exit, OwnerError> {
    match command {
        Command::Serve(config) => owner::serve(&config, signals).map(|()| Exit::Ok),
        Command::Plan(config) => report::show_plan(&config).map(|()| Exit::Ok),
        Command::Status(config) => Ok(status::status(&config, signals)),
        Command::Release(config) => Ok(status::release(&config, signals)),
        Command::Keep(config) => keeper::keep(&config, signals).map(|()| Exit::Ok),
    }
}
