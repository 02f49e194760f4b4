//! One run of nvcc.

use crate::spills::Allowed;
use crate::{Job, config};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;
use std::{fs, io};

/// nvcc.
pub(crate) struct Compiler {
    program: PathBuf,
}

impl Compiler {
    pub(crate) fn find() -> Compiler {
        Compiler { program: config::nvcc() }
    }

    /// Makes `NAME.ARCHITECTURE.cubin` in `out`, unless a newer one than every input is there.
    pub(crate) fn compile(
        &self,
        job: &Job,
        folder: &Path,
        headers: &[PathBuf],
        out: &Path,
        allowed: &Allowed,
    ) -> Result<(), String> {
        let cubin = out.join(format!("{}.{}.cubin", job.name, job.architecture));
        let report = cubin.with_extension("ptxas");
        let included = included(&job.source, headers);
        let inputs = included.into_iter().chain([&job.source, &self.program]);
        if !is_newer(&report, inputs).unwrap_or(false) {
            let text = self.run(job, folder, &cubin)?;
            fs::write(&report, text).map_err(|error| format!("{}: {error}", report.display()))?;
        }
        let text = fs::read_to_string(&report).map_err(|error| format!("{}: {error}", report.display()))?;
        allowed.check(&text).map_err(|spills| format!("{} for {}: {spills}", job.source.display(), job.architecture))
    }

    /// Compiles and returns what the assembler reports about every kernel.
    fn run(&self, job: &Job, folder: &Path, cubin: &Path) -> Result<String, String> {
        // The long form of the architecture: the short one also compiles for the plain variant, which lacks the
        // instructions that the `a` stands for.
        let virtual_architecture = job.architecture.replace("sm_", "compute_");
        let mut command = Command::new(&self.program);
        command
            .args(["-cubin", "-O3", "-std=c++17", "--generate-line-info", "-Xptxas", "-v"])
            .arg(format!("-gencode=arch={virtual_architecture},code={}", job.architecture))
            .arg("-I")
            .arg(folder)
            .arg("-o")
            .arg(cubin)
            .arg(&job.source);
        let output = command.output().map_err(|error| format!("{}: {error}", self.program.display()))?;
        let report = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(report) } else { Err(format!("{command:?} failed:\n{report}")) }
    }
}

/// Which of the headers a source includes, itself or through others. Without a way to read one, all of them.
fn included<'a>(source: &Path, headers: &'a [PathBuf]) -> Vec<&'a PathBuf> {
    let mut found: Vec<&PathBuf> = Vec::new();
    let mut texts = vec![fs::read_to_string(source)];
    while let Some(text) = texts.pop() {
        let Ok(text) = text else { return headers.iter().collect() };
        let is_named = |header: &&PathBuf| {
            let name = header.file_name().unwrap_or_default().to_string_lossy();
            text.lines().any(|line| line.starts_with("#include") && line.contains(&format!("\"{name}\"")))
        };
        for header in headers.iter().filter(is_named).filter(|header| !found.contains(header)).collect::<Vec<_>>() {
            texts.push(fs::read_to_string(header));
            found.push(header);
        }
    }
    found
}

/// Whether `made` was made after every input was changed last.
fn is_newer<'a>(made: &Path, mut inputs: impl Iterator<Item = &'a PathBuf>) -> io::Result<bool> {
    let time = |path: &Path| -> io::Result<SystemTime> { fs::metadata(path)?.modified() };
    let made = time(made)?;
    inputs.try_fold(true, |newer, input| Ok(newer && time(input)? < made))
}
