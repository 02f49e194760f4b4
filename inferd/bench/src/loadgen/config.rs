//! Every flag of `ds4-loadgen`.

use clap::Parser;
use std::path::PathBuf;
use std::time::Duration;

const LONG_ABOUT: &str = "\
Sends streaming completions to a server from many clients at once and prints what they felt: time to the first token, \
gaps between tokens, tokens a second, and what was refused.

Every client sends its next request when its last one ended. With --rate, requests arrive by themselves at random \
times instead (a Poisson process) and the clients are only the most that may be under way; times then count from the \
arrival, so that a server that makes the next request wait cannot hide it.";

const EXAMPLES: &str = "\
Examples:
  ds4-loadgen --clients 4 --requests 16 --prompt-tokens 2048 --output-tokens 128
  ds4-loadgen --clients 64 --rate 2.5 --requests 300 --shared-prefix 0.8 --csv run.csv --plot run.svg";

/// Measures a running server under load.
#[derive(Debug, Parser)]
#[command(name = "ds4-loadgen", version, long_about = LONG_ABOUT, after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Where the server listens
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8000", env = "DS4_URL")]
    pub(crate) url: String,
    /// Key the server asks for
    #[arg(long, value_name = "KEY", env = "DS4_API_KEY", hide_env_values = true)]
    pub(crate) api_key: Option<String>,
    /// Clients at once
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) clients: u32,
    /// Requests in all
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) requests: u32,
    /// Arrivals a second; without it every client sends as soon as its last request ended
    #[arg(long, value_name = "R", value_parser = positive)]
    pub(crate) rate: Option<f64>,
    /// Tokens of every prompt
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub(crate) prompt_tokens: u32,
    /// Tokens of every answer, at most
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) output_tokens: u32,
    /// Share of every prompt's beginning that all prompts have in common, from 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share)]
    pub(crate) shared_prefix: f64,
    /// Chooses prompts and arrivals; the same seed sends the same load
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Seconds after which a request counts as failed
    #[arg(long, value_name = "S", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) timeout: u64,
    /// Write one line per request
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    /// Draw the distributions of both latencies
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
}

impl Args {
    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }

    /// Tokens at the beginning that all prompts have in common; each keeps at least one of its own.
    pub(crate) fn shared_tokens(&self) -> usize {
        let shared = (f64::from(self.prompt_tokens) * self.shared_prefix).floor() as usize;
        shared.min(self.prompt_tokens as usize - 1)
    }
}

fn share(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.0..=1.0).contains(&value) { Ok(value) } else { Err("it is a share: from 0 to 1".to_owned()) }
}

fn positive(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if value.is_finite() && value > 0.0 { Ok(value) } else { Err("it has to be above 0".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_flags_are_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn values_that_mean_nothing_are_refused_by_the_name_of_their_flag() {
        for (flag, value) in [("--shared-prefix", "1.5"), ("--rate", "0"), ("--rate", "inf"), ("--clients", "0")] {
            let error = Args::try_parse_from(["ds4-loadgen", flag, value]).unwrap_err();
            assert!(error.to_string().contains(flag), "{error}");
        }
    }

    #[test]
    fn every_prompt_keeps_a_token_of_its_own() {
        let args = Args::parse_from(["ds4-loadgen", "--shared-prefix", "1", "--prompt-tokens", "8"]);
        assert_eq!(args.shared_tokens(), 7);
    }
}
