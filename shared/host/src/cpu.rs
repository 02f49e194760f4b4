//! The boot check for the instruction set that the binaries are built for.
//!
//! The check reads the kernel's list of usable features and not the compiler's detection macro: in a build for
//! x86-64-v3 the macro answers from the build flags, which is the very thing in doubt.

use thiserror::Error;

/// Features of x86-64-v3 as the kernel spells them (`abm` is LZCNT).
const REQUIRED: &[&str] = &["abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"];

/// The CPU cannot run this build.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum CpuError {
    /// Features that the build uses and the CPU, or its virtual machine, does not offer.
    #[error(
        "this CPU lacks {missing}, and this build needs x86-64-v3: run it on a CPU from 2013 or later, give the \
         virtual machine the host's CPU model, or build with RUSTFLAGS=\"-C target-cpu=native\" on this machine"
    )]
    Missing {
        /// The missing features, separated by commas.
        missing: String,
    },
    /// The kernel's feature list could not be read.
    #[error("cannot read /proc/cpuinfo to check the CPU ({reason}): mount /proc")]
    Unreadable {
        /// What the system said.
        reason: String,
    },
}

/// Checks that the CPU has the features this build was compiled for. Call it first in `main`.
///
/// Builds for other instruction sets need nothing and always pass.
pub fn check_cpu() -> Result<(), CpuError> {
    if !cfg!(all(target_arch = "x86_64", target_feature = "avx2", target_os = "linux")) {
        return Ok(());
    }
    let text =
        std::fs::read_to_string("/proc/cpuinfo").map_err(|error| CpuError::Unreadable { reason: error.to_string() })?;
    check_features(&text)
}

/// Checks the first `flags` line of a cpuinfo text: all CPUs of a host that Linux runs on share it.
fn check_features(cpuinfo: &str) -> Result<(), CpuError> {
    let flags: Vec<&str> = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("flags")?.trim_start().strip_prefix(':'))
        .unwrap_or("")
        .split_whitespace()
        .collect();
    let missing: Vec<&str> = REQUIRED.iter().copied().filter(|flag| !flags.contains(flag)).collect();
    if missing.is_empty() { Ok(()) } else { Err(CpuError::Missing { missing: missing.join(", ") }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_with_every_feature_passes() {
        let cpuinfo = format!("processor\t: 0\nflags\t\t: fpu {} sse2\n", REQUIRED.join(" "));
        assert_eq!(check_features(&cpuinfo), Ok(()));
    }

    #[test]
    fn a_cpu_without_avx2_is_named_with_the_remedy() {
        let flags: Vec<&str> = REQUIRED.iter().copied().filter(|flag| *flag != "avx2").collect();
        let error = check_features(&format!("flags : {}\n", flags.join(" "))).unwrap_err();
        assert_eq!(error, CpuError::Missing { missing: "avx2".into() });
        assert!(error.to_string().contains("target-cpu=native"));
    }

    #[test]
    fn a_list_without_flags_lacks_everything() {
        assert_eq!(check_features("processor : 0\n"), Err(CpuError::Missing { missing: REQUIRED.join(", ") }));
    }
}
