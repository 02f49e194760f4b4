//! Flags about conversations on disk.

use super::ConfigError;
use clap::Args;
use ds4_engine::{DiskOptions, SyncMode};
use ds4_units::{Bytes, Tokens};
use std::path::PathBuf;

/// The budget when the operator names none, or 0.
const SPACE_MB: u64 = 4096;

#[derive(Debug, Args)]
#[command(next_help_heading = "Conversations on disk")]
pub(super) struct DiskArgs {
    /// Keep conversations in this folder, so that they outlive their memory and this process. They are readable text:
    /// the folder is made for you alone, and one that others may open is refused
    #[arg(long, value_name = "DIR", env = "DS4_KV_DISK_DIR")]
    kv_disk_dir: Option<PathBuf>,

    /// What all files in the folder may take, in MiB; what is least worth keeping is given up for new conversations
    #[arg(long, value_name = "MIB", default_value_t = SPACE_MB, env = "DS4_KV_DISK_SPACE_MB", requires = "kv_disk_dir")]
    kv_disk_space_mb: u64,

    /// Shorter conversations are not saved, and a restore must save computing so many tokens
    #[arg(long, value_name = "N", default_value_t = 512, env = "DS4_KV_CACHE_MIN_TOKENS", requires = "kv_disk_dir")]
    kv_cache_min_tokens: u32,

    /// A new prompt of up to so many tokens is saved as soon as it is computed; 0 saves none for being new
    #[arg(
        long,
        value_name = "N",
        default_value_t = 30_000,
        env = "DS4_KV_CACHE_COLD_MAX_TOKENS",
        requires = "kv_disk_dir"
    )]
    kv_cache_cold_max_tokens: u32,

    /// A conversation is saved whenever it has grown by so many tokens: what a crash may cost; 0 saves none for that.
    /// Only what is new is written
    #[arg(
        long,
        value_name = "N",
        default_value_t = 2048,
        env = "DS4_KV_CACHE_CONTINUED_INTERVAL_TOKENS",
        requires = "kv_disk_dir"
    )]
    kv_cache_continued_interval_tokens: u32,

    /// A new prompt that ends inside a text is saved so many tokens before its end: a longer text may be cut into
    /// other tokens there
    #[arg(
        long,
        value_name = "N",
        default_value_t = 32,
        env = "DS4_KV_CACHE_BOUNDARY_TRIM_TOKENS",
        requires = "kv_disk_dir"
    )]
    kv_cache_boundary_trim_tokens: u32,

    /// And at a multiple of so many tokens; at those of a block, 128, what continues it repeats nothing. 0 is anywhere
    #[arg(
        long,
        value_name = "N",
        default_value_t = 128,
        env = "DS4_KV_CACHE_BOUNDARY_ALIGN_TOKENS",
        requires = "kv_disk_dir"
    )]
    kv_cache_boundary_align_tokens: u32,

    /// What a save waits for, so that it outlives a power loss: all of the file (full), what reading it needs (data), or
    /// nothing (none); a worker that stops waits for everything
    #[arg(
        long,
        value_name = "MODE",
        value_enum,
        default_value = "data",
        env = "DS4_KV_SYNC",
        requires = "kv_disk_dir"
    )]
    kv_sync: Sync,
}

/// The spellings of [`SyncMode`].
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Sync {
    Full,
    Data,
    None,
}

impl DiskArgs {
    /// The settings, if there is a folder.
    pub(super) fn checked(self) -> Result<Option<DiskOptions>, ConfigError> {
        let Some(folder) = self.kv_disk_dir else { return Ok(None) };
        let (min, cold_max) = (self.kv_cache_min_tokens, self.kv_cache_cold_max_tokens);
        if cold_max != 0 && cold_max < min {
            return Err(ConfigError::ColdMax { cold_max, min });
        }
        let mib = if self.kv_disk_space_mb == 0 { SPACE_MB } else { self.kv_disk_space_mb };
        Ok(Some(DiskOptions {
            folder,
            budget: Bytes(mib.saturating_mul(1 << 20)),
            min_tokens: Tokens(min),
            cold_max_tokens: Tokens(cold_max),
            interval_tokens: Tokens(self.kv_cache_continued_interval_tokens),
            trim_tokens: Tokens(self.kv_cache_boundary_trim_tokens),
            align_tokens: Tokens(self.kv_cache_boundary_align_tokens),
            sync: match self.kv_sync {
                Sync::Full => SyncMode::Full,
                Sync::Data => SyncMode::Data,
                Sync::None => SyncMode::None,
            },
        }))
    }
}
