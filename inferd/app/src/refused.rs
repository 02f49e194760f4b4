//! Published flags that do not work yet. Each is refused by name, so that nobody believes it does something.

use std::ffi::OsString;

const QUANT: &str = "is always so: a conversation is restored for the very same weights only. Leave it out";
const SPECULATION: &str = "is for drafters of another kind: this version guesses ahead with a draft block, --mtp FILE";
const MODE: &str = "is decided while serving, by what guesses cost and bring: leave it out, or give --no-mtp";

const LIVE_CHUNK: &str = "is measured now: --step-ms says how long a step may take while answers are being written";

/// Flags by the beginning of their name.
const REFUSED: [(&str, &str); 8] = [
    ("--kv-cache-reject-", QUANT),
    ("--prefill-chunk-live", LIVE_CHUNK),
    ("--mtp-mode", MODE),
    ("--no-spec", MODE),
    ("--no-dspark", MODE),
    ("--dspark", SPECULATION),
    ("--preset", SPECULATION),
    ("--spec", SPECULATION),
];

/// The first refused flag among the arguments, and why.
pub(crate) fn find(arguments: &[OsString]) -> Option<(String, &'static str)> {
    arguments.iter().skip(1).find_map(|argument| {
        let argument = argument.to_str()?;
        let flag = argument.split('=').next()?;
        let (_, problem) = REFUSED.iter().find(|(prefix, _)| flag.starts_with(prefix))?;
        Some((flag.to_owned(), *problem))
    })
}
