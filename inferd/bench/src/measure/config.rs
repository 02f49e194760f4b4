//! Every flag of `ds4-bench`.

use crate::error::BenchError;
use crate::plot::Picture;
use clap::Parser;
use ds4_boot::ModelArgs;
use ds4_host::Exit;
use ds4_units::Tokens;
use std::path::PathBuf;

/// Exit codes that this program gives.
const EXITS: &[Exit] = &[
    Exit::Ok,
    Exit::Failed,
    Exit::Usage,
    Exit::ModelFile,
    Exit::Memory,
    Exit::Device,
    Exit::ImportRefused,
    Exit::OwnerLost,
    Exit::WeightsMismatch,
    Exit::Engine,
];

/// The last frontier where none is given.
const CTX_MAX: u32 = 32_768;

const LONG_ABOUT: &str = "\
Loads a model as the server does and measures it in this process, by the same engine.

A conversation grows from frontier to frontier: at each, the prompt is read up to it (what the frontier before has left \
is not read again) and an answer is written. A line of CSV tells how fast both were:

  ctx_tokens         the frontier
  prefill_tokens     tokens read to reach it
  prefill_tps        of these, a second
  gen_tokens         tokens of the answer
  gen_tps            tokens a second from the end of the prompt to the end of the answer
  gen_tps_ss         the same after the first token: the steady state
  first_token_ms     from the request to its first token, reading included
  kvcache_bytes      what the conversation takes
  prefill_share      products of the prompt as a share of the fastest products (--ceilings)
  gen_share          weights that the steady state reads as a share of the fastest reading (--ceilings)

With --concurrency a line is a crowd instead: so many requests at once, each with --ctx-start tokens of its own. Its \
gen_tps counts all tokens while every request was writing, between_tokens_ms is the time between two tokens of one. Its \
gen_share counts weights once for all requests, experts as if each request chose its own at random.

Answers are as long as asked: tokens that would end them are tokens like others.";

const EXAMPLES: &str = "\
Examples:
  ds4-bench -m model.gguf --ctx-start 2048 --ctx-max 32768 --step-mul 4 --ceilings
  ds4-bench -m model.gguf --prompt-file book.txt --step-incr 4096 --csv run.csv --plot run.svg
  ds4-bench -m model.gguf --concurrency 1,4,16 --ctx-start 2048
  ds4-bench --from before.csv --from after.csv --plot both.svg

";

/// Measures a model.
#[derive(Debug, Parser)]
#[command(name = "ds4-bench", version, about = "Measures how fast a model reads and writes", long_about = LONG_ABOUT,
    after_help = format!("{EXAMPLES}{}", Exit::help(EXITS)))]
pub(crate) struct Args {
    /// The first frontier, in tokens
    #[arg(long, value_name = "N", default_value_t = 2048, value_parser = clap::value_parser!(u32).range(2..))]
    pub(crate) ctx_start: u32,
    /// The last frontier, not below the first [default: 32768, or the first]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..))]
    ctx_max: Option<u32>,
    /// Tokens from one frontier to the next [default: 2048]
    #[arg(long, value_name = "N", conflicts_with = "step_mul", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) step_incr: Option<u32>,
    /// A frontier as a multiple of the one before it
    #[arg(long, value_name = "F", value_parser = multiple)]
    pub(crate) step_mul: Option<f64>,
    /// Tokens of the answer at every frontier
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) gen_tokens: u32,
    /// The prompt's text, from its beginning again where it is too short [default: made-up words]
    #[arg(long, value_name = "FILE")]
    pub(crate) prompt_file: Option<PathBuf>,
    /// Crowds to measure instead: so many requests at once
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) concurrency: Vec<u32>,
    /// Measure what the machine can do at best, and print shares of it
    #[arg(long)]
    pub(crate) ceilings: bool,
    /// Write the lines to a file, too
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    /// Draw them as curves, as the file's name ends: .svg or .png
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<Picture>,
    /// Draw the lines of these files and measure nothing
    #[arg(long, value_name = "FILE", requires = "plot")]
    pub(crate) from: Vec<PathBuf>,
    #[command(flatten)]
    model: ModelArgs,
}

impl Args {
    /// Refuses flags that leave nothing to measure.
    pub(crate) fn check(&self) -> Result<(), BenchError> {
        match self.ctx_max {
            Some(last) if last < self.ctx_start && self.concurrency.is_empty() => {
                Err(BenchError::NoFrontier { first: Tokens(self.ctx_start), last: Tokens(last) })
            }
            _ => Ok(()),
        }
    }

    /// The model's flags, with a context for the longest conversation where none is given.
    pub(crate) fn model(&self) -> ModelArgs {
        let mut model = self.model.clone();
        let last = self.frontiers().last().map_or(self.ctx_start, |tokens| tokens.0);
        model.ctx.get_or_insert(last.saturating_add(self.gen_tokens).saturating_add(1));
        model
    }

    /// Conversations that are held at once.
    pub(crate) fn banks(&self) -> usize {
        self.concurrency.iter().copied().max().unwrap_or(1) as usize
    }

    /// The frontiers, ascending.
    pub(crate) fn frontiers(&self) -> Vec<Tokens> {
        if !self.concurrency.is_empty() {
            return vec![Tokens(self.ctx_start)];
        }
        let last = self.ctx_max.unwrap_or(CTX_MAX.max(self.ctx_start));
        let next = |tokens: u32| match self.step_mul {
            Some(factor) => ((f64::from(tokens) * factor) as u32).max(tokens.saturating_add(1)),
            None => tokens.saturating_add(self.step_incr.unwrap_or(2048)),
        };
        let frontiers = std::iter::successors(Some(self.ctx_start), |&tokens| Some(next(tokens)));
        frontiers.take_while(|&tokens| tokens <= last).map(Tokens).collect()
    }
}

fn multiple(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if value.is_finite() && value > 1.0 { Ok(value) } else { Err("it has to be above 1".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn frontiers(flags: &[&str]) -> Vec<u32> {
        let args = Args::parse_from([&["ds4-bench"], flags].concat());
        args.frontiers().iter().map(|tokens| tokens.0).collect()
    }

    #[test]
    fn the_flags_are_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn frontiers_go_up_by_a_step_or_by_a_factor_and_not_past_the_last() {
        assert_eq!(frontiers(&["--ctx-max", "8191"]), [2048, 4096, 6144]);
        assert_eq!(frontiers(&["--ctx-max", "8192", "--step-mul", "2"]), [2048, 4096, 8192]);
        assert_eq!(frontiers(&["--ctx-start", "10", "--ctx-max", "14", "--step-mul", "1.01"]), [10, 11, 12, 13, 14]);
        assert_eq!(frontiers(&["--concurrency", "1,4"]), [2048]);
    }

    #[test]
    fn a_last_frontier_before_the_first_is_refused_and_a_first_one_beyond_the_default_is_not() {
        let check =
            |flags: &[&str]| Args::parse_from([&["ds4-bench"], flags].concat()).check().map_err(|e| e.to_string());
        let told = check(&["--ctx-start", "4096", "--ctx-max", "4095"]).unwrap_err();
        assert_eq!(told, "--ctx-max 4095 is below --ctx-start 4096: there is nothing to measure");
        assert_eq!(check(&["--ctx-start", "4096", "--ctx-max", "4096"]), Ok(()));
        assert_eq!(check(&["--ctx-start", "4096", "--ctx-max", "2", "--concurrency", "2"]), Ok(()));
        assert_eq!(frontiers(&["--ctx-start", "65536"]), [65_536]);
        let both = Args::try_parse_from(["ds4-bench", "--step-incr", "2", "--step-mul", "2"]).unwrap_err().to_string();
        assert!(both.contains("--step-incr") && both.contains("--step-mul"), "{both}");
        let alone = Args::try_parse_from(["ds4-bench", "--from", "run.csv"]).unwrap_err().to_string();
        assert!(alone.contains("--plot"), "{alone}");
    }

    #[test]
    fn the_context_is_as_long_as_the_longest_conversation_needs_unless_given() {
        let context = |flags: &[&str]| Args::parse_from([&["ds4-bench"], flags].concat()).model().ctx;
        assert_eq!(context(&["--ctx-max", "4096", "--gen-tokens", "10"]), Some(4107));
        assert_eq!(context(&["-c", "9000"]), Some(9000));
    }

    #[test]
    fn a_step_that_leads_nowhere_is_refused_by_the_name_of_its_flag() {
        let wrong = [
            ["--step-mul", "1"],
            ["--step-mul", "nan"],
            ["--step-incr", "0"],
            ["--concurrency", "0"],
            ["--concurrency", "1,,4"],
            ["--ctx-start", "1"],
            ["--ctx-max", "1"],
            ["--gen-tokens", "0"],
            ["--plot", "run.pdf"],
        ];
        for flags in wrong {
            let error = Args::try_parse_from([&["ds4-bench"], &flags[..]].concat()).unwrap_err();
            assert!(error.to_string().contains(flags[0]), "{error}");
        }
    }
}
