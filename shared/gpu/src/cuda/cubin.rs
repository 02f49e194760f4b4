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
    Module::load(gpu, choose(gpu.name(), gpu.compute_capability(), cubins, name)?.image)
}

/// The image of source file `name` for a device of this name and compute capability.
fn choose<'c>(
    device: &str,
    (major, minor): (u32, u32),
    cubins: &'c [Cubin],
    name: &str,
) -> Result<&'c Cubin, CudaError> {
    let of_name = || cubins.iter().filter(|cubin| cubin.name == name);
    of_name().find(|cubin| runs_on(cubin.arch, major, minor)).ok_or_else(|| CudaError::NoCubin {
        device: device.to_owned(),
        arch: format!("sm_{major}{minor}"),
        built: of_name().map(|cubin| cubin.arch).collect::<Vec<_>>().join(" "),
    })
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
    fn a_gpu_without_kernels_is_refused_with_those_there_are_and_the_command_that_builds_its_own() {
        let cubin = |name, arch| Cubin { name, arch, image: &[] };
        let cubins = [cubin("step", "sm_90a"), cubin("other", "sm_80"), cubin("step", "sm_120a")];
        assert_eq!(choose("H200", (9, 0), &cubins, "step").map(|cubin| cubin.arch), Ok("sm_90a"));
        let refused = choose("NVIDIA A100", (8, 0), &cubins, "step").map(|cubin| cubin.arch).unwrap_err().to_string();
        let command = "cargo build --release -p ds4-weightd -p ds4-server -p ds4 --features \
                       ds4-weightd/cuda,ds4-server/cuda,ds4/cuda";
        for part in ["NVIDIA A100", "sm_80,", "sm_90a sm_120a only", "scripts/cuda-toolkit", "ARCHITECTURES", command] {
            assert!(refused.contains(part), "{part} in {refused}");
        }
        // Which is the one that people are told everywhere.
        assert!(include_str!("../../../../README.md").contains(command));
        assert!(include_str!("../../../nvcc/src/lib.rs").contains("pub const ARCHITECTURES"));
    }

    #[test]
    fn an_image_runs_on_exactly_its_own_capability() {
        assert!(runs_on("sm_90a", 9, 0) && runs_on("sm_121a", 12, 1) && runs_on("sm_90", 9, 0));
        assert!(!runs_on("sm_90a", 9, 1) && !runs_on("sm_120a", 12, 1) && !runs_on("compute_90", 9, 0));
    }
}
