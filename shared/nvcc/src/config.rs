//! What cargo and the person building tell this crate, all through the environment.

use std::env;
use std::path::PathBuf;

/// Whether the calling crate is built with its feature `cuda`.
pub(crate) fn cuda_is_on() -> bool {
    env::var_os("CARGO_FEATURE_CUDA").is_some()
}

/// The calling crate's output folder.
pub(crate) fn out_dir() -> PathBuf {
    PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for build scripts"))
}

/// How many processes may run at a time.
pub(crate) fn jobs() -> usize {
    env::var("NUM_JOBS").ok().and_then(|jobs| jobs.parse().ok()).unwrap_or(1)
}

/// The compiler: the one `NVCC` names, else the one of `scripts/cuda-toolkit`, else the first in `PATH`.
pub(crate) fn nvcc() -> PathBuf {
    println!("cargo::rerun-if-env-changed=NVCC");
    if let Some(path) = env::var_os("NVCC") {
        return PathBuf::from(path);
    }
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it for build scripts"));
    let toolkit = here.ancestors().map(|folder| folder.join(".cuda-toolkit/cuda/bin/nvcc")).find(|path| path.exists());
    let in_path = || {
        let folders = env::var_os("PATH")?;
        env::split_paths(&folders).map(|folder| folder.join("nvcc")).find(|path| path.exists())
    };
    toolkit.or_else(in_path).expect("no nvcc: run scripts/cuda-toolkit, which installs one, or set NVCC")
}
