//! Published flags of the C owner that this one does not take, each with what does its job.

use std::ffi::OsStr;

const BY_BACKEND: &str =
    "layouts follow from --backend: split for the kernels of a GPU, as in the file on the host; leave the flag out";
const DERIVED: &str = "derived tensors are not built; workers compute what they need, leave the flag out";

const REPLACED: &[(&str, &str)] = &[
    ("--scope", "what is held follows from the files: --base FILE alone, or with --mtp FILE"),
    ("--drafter", "a drafter is held with --mtp FILE"),
    ("--no-lock", "an owner always takes its lock; run a second one under another --name"),
    ("--exit-on-parent-pid", "use the supervisor's own means (systemd: PartOf=), or --release"),
    ("--copy-chunk-mb", "pieces are sized by the loader; leave the flag out"),
    ("--legacy-manifest", "workers read the JSON manifest; name it with --manifest FILE"),
    ("--listen-health", "ask with --status --json"),
    ("--derive-output-certifier", DERIVED),
    ("--derive-group-count", DERIVED),
    ("--derive-q8-f16", DERIVED),
    ("--derive-q8-f32", DERIVED),
    ("--derive-budget-gb", DERIVED),
    ("--repack-iq2-aligned", BY_BACKEND),
    ("--no-repack-iq2-aligned", BY_BACKEND),
    ("--repack-q2k-aligned", BY_BACKEND),
    ("--no-repack-q2k-aligned", BY_BACKEND),
    ("--repack-q8-aligned", BY_BACKEND),
    ("--no-repack-q8-aligned", BY_BACKEND),
    ("--repack-threads", BY_BACKEND),
    ("--repack-hash", "the manifest has a digest of every tensor and artifact; leave the flag out"),
];

/// The published flag that this argument is, and what replaces it.
pub(crate) fn replaced_flag(argument: &OsStr) -> Option<(&'static str, &'static str)> {
    let text = argument.to_str()?;
    let name = text.split_once('=').map_or(text, |(name, _)| name);
    REPLACED.iter().copied().find(|(flag, _)| *flag == name)
}
