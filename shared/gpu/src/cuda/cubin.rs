//! Kernels built into the program, one image per architecture.

use super::device::Gpu;
use super::error::CudaError;
use super::module::Module;

/// One compiled source file for one architecture.
#[derive(Clone, Copy, Debug)]
pub struct Cubin {
    /// Name of the source file, without extension.
    pub name: &'static str,
    /// What it runs on, for instance `sm_90a`.
    pub arch: &'static str,
    /// The compiler's output.
    pub image: &'static [u8],
}

/// Loads the image of source file `name` for this device. A device whose architecture is not among those built is
/// refused with the list: nothing is compiled at run time.
pub fn load(gpu: &Gpu, cubins: &[Cubin], name: &str) -> Result<Module, CudaError> {
    let (major, minor) = gpu.compute_capability();
    let of_name = || cubins.iter().filter(|cubin| cubin.name == name);
    match of_name().find(|cubin| runs_on(cubin.arch, major, minor)) {
        Some(cubin) => Module::load(gpu, cubin.image),
        None => Err(CudaError::NoCubin {
            device: gpu.name().to_owned(),
            arch: format!("sm_{major}{minor}"),
            built: of_name().map(|cubin| cubin.arch).collect::<Vec<_>>().join(" "),
        }),
    }
}

/// Whether code for `arch` runs on a device of this compute capability: the same one, with or without the suffix of
/// architecture-specific features.
fn runs_on(arch: &str, major: u32, minor: u32) -> bool {
    arch.strip_prefix("sm_").is_some_and(|arch| arch.trim_end_matches(['a', 'f']) == format!("{major}{minor}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_runs_on_exactly_its_own_capability() {
        assert!(runs_on("sm_90a", 9, 0) && runs_on("sm_121a", 12, 1) && runs_on("sm_90", 9, 0));
        assert!(!runs_on("sm_90a", 9, 1) && !runs_on("sm_120a", 12, 1) && !runs_on("compute_90", 9, 0));
    }
}
