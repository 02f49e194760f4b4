//! Flags about conversations in memory that a keeper holds.

use clap::{Args, ValueEnum};
use ds4_engine::ParkedOptions;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The socket of a keeper in the folder of an owner's manifest.
const KEEPER_SOCKET: &str = "keeper.sock";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum KeeperChoice {
    /// Do without: a killed worker's conversations are gone from memory
    Off,
    /// Park conversations with a keeper that runs, and take over those of killed workers
    Use,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Conversations in memory")]
pub(super) struct ParkedArgs {
    /// Whether a keeper (ds4-weightd keep) holds the memory of conversations, so that they outlive this process even
    /// when it is killed: the next worker goes on with them at once
    #[arg(long, value_enum, value_name = "CHOICE", default_value = "use", env = "DS4_KEEPER")]
    keeper: KeeperChoice,

    /// The keeper's socket [default: keeper.sock in the folder of the owner's manifest; without a manifest none]
    #[arg(long, value_name = "FILE", env = "DS4_KEEPER_SOCKET")]
    keeper_socket: Option<PathBuf>,

    /// Seconds that the keeper holds them when no worker comes for them; then their memory is free
    #[arg(long, value_name = "SECS", default_value_t = 600, env = "DS4_KEEPER_GRACE",
        value_parser = clap::value_parser!(u32).range(0..=604_800))]
    keeper_grace: u32,
}

impl ParkedArgs {
    /// Where to park, if anywhere. `manifest` is the owner's.
    pub(super) fn checked(self, manifest: Option<&Path>) -> Option<ParkedOptions> {
        let beside = || manifest.map(|manifest| manifest.with_file_name(KEEPER_SOCKET));
        match self.keeper {
            KeeperChoice::Off => None,
            KeeperChoice::Use => Some(ParkedOptions {
                socket: self.keeper_socket.or_else(beside)?,
                orphaned: Duration::from_secs(self.keeper_grace.into()),
            }),
        }
    }
}
