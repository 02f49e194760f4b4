//! Kernels that keep registers in local memory, which is many times slower: allowed only with a reason.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The kernels that may spill: a line each of `kernel reason`, `#` before a remark.
#[derive(Debug, Default)]
pub(crate) struct Allowed {
    kernels: BTreeMap<String, String>,
}

impl Allowed {
    /// Reads the list; a folder without one allows nothing.
    pub(crate) fn read(path: &Path) -> Allowed {
        Allowed::parse(&fs::read_to_string(path).unwrap_or_default())
    }

    fn parse(text: &str) -> Allowed {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let kernels = lines.map(|line| {
            let (kernel, reason) = line.split_once(' ').unwrap_or((line, ""));
            assert!(!reason.trim().is_empty(), "spills.txt: {kernel} has no reason");
            (kernel.to_owned(), reason.trim().to_owned())
        });
        Allowed { kernels: kernels.collect() }
    }

    /// Looks through what `ptxas -v` says. Names every kernel that spills and is not listed.
    pub(crate) fn check(&self, report: &str) -> Result<(), String> {
        let mut kernel = "";
        let mut spilling = Vec::new();
        for line in report.lines() {
            // "Function properties for NAME", then "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads".
            if let Some((_, name)) = line.split_once("Function properties for ") {
                kernel = name.trim();
            }
            if let Some((before, _)) = line.split_once(" bytes spill stores") {
                let bytes = before.rsplit([' ', ',']).next().unwrap_or("?");
                if bytes != "0" && !self.kernels.contains_key(kernel) {
                    spilling.push(format!("{kernel} spills {bytes} bytes"));
                }
            }
        }
        if spilling.is_empty() {
            return Ok(());
        }
        Err(format!("{}; use fewer registers, or list it in spills.txt with the reason", spilling.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "ptxas info    : Compiling entry function 'tame' for 'sm_90a'
ptxas info    : Function properties for tame
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Function properties for greedy
    48 bytes stack frame, 44 bytes spill stores, 60 bytes spill loads
ptxas info    : Used 255 registers";

    #[test]
    fn a_spilling_kernel_fails_unless_it_is_listed() {
        assert_eq!(Allowed::default().check(REPORT).unwrap_err().split(';').next(), Some("greedy spills 44 bytes"));
        Allowed::parse("# remark\n\ngreedy runs once at boot").check(REPORT).unwrap();
        Allowed::parse("tame does not spill").check(REPORT).unwrap_err();
    }

    #[test]
    #[should_panic(expected = "has no reason")]
    fn a_listed_kernel_needs_a_reason() {
        Allowed::parse("greedy");
    }
}
