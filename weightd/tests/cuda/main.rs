//! Owners with weights in GPU memory, as real processes. These need a GPU; where there is none only compiling them is a
//! test.

#[allow(dead_code)] // The other test program uses more of it.
#[path = "../owner/kit.rs"]
mod kit;

use ds4_gguf::Model;
use ds4_gguf::writer::Writer;
use ds4_gpu::cuda::Gpu;
use ds4_gpu::layout::{is_split, split};
use ds4_import::{AttachOptions, Attached, ComputeDevice, ImportError, OwnerState, SelfLoadOptions, attach, self_load};
use ds4_resident::{Reading, identify};
use ds4_tests::Process;
use ds4_units::{Bytes, Layout, TensorType};
use kit::{Rig, until};
use std::sync::atomic::AtomicBool;

static NO: AtomicBool = AtomicBool::new(false);

/// Memory of a small model on a machine that others use too.
const VMM: &[&str] = &["--backend", "vmm", "--worker-min-gb", "0"];

fn device() -> ComputeDevice {
    ComputeDevice::Gpu(Gpu::open(0).expect("these tests need a GPU"))
}

fn bytes(len: usize, seed: u64) -> Vec<u8> {
    (0..len as u64).map(|i| ((i + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

/// Every type that is split, whole tiles and not, stacked and not, beside plain ones; some of several leaves.
fn rig() -> Rig {
    let rig = Rig::new();
    let shapes: [(&str, TensorType, &[u64]); 9] = [
        ("a.norm", TensorType::F32, &[100]),
        ("b.q8", TensorType::Q8_0, &[4096, 1030]),
        ("c.q8_odd", TensorType::Q8_0, &[288, 5]),
        ("d.experts", TensorType::IQ2_XXS, &[1024, 64, 40]),
        ("e.down", TensorType::Q2_K, &[512, 100, 60]),
        ("f.q4", TensorType::Q4_K, &[2048, 3000]),
        ("g.router", TensorType::F16, &[4096, 256]),
        ("h.q2_odd", TensorType::Q2_K, &[256, 1]),
        ("i.table", TensorType::I32, &[6, 1000]),
    ];
    let tensor = |writer: Writer, (seed, (name, kind, dims)): (u64, (&str, TensorType, &[u64]))| {
        let len = kind.byte_len(dims.iter().product()).expect("whole blocks").index();
        writer.tensor(name, kind, dims, bytes(len, seed))
    };
    (1..).zip(shapes).fold(Writer::new("toy"), tensor).write(&rig.model()).expect("a model");
    rig
}

fn ready(rig: &Rig, arguments: &[&str]) -> Process {
    rig.ready(&[VMM, arguments].concat())
}

fn attach_to(rig: &Rig) -> Result<Attached, ImportError> {
    attach(&rig.manifest(), &AttachOptions { device: device(), ..AttachOptions::new("test", &NO) })
}

/// Compares every tensor with what the host makes of the file.
fn assert_as_in_the_file(model: &Model, weights: &ds4_import::Weights) {
    for info in model.tensors() {
        let raw = model.read_tensor(info).unwrap();
        let tensor = weights.tensor(&info.name).unwrap();
        let found = tensor.bytes().unwrap();
        if is_split(info.kind) {
            let (columns, rows) = (info.dims[0] as usize, info.dims[1..].iter().product::<u64>() as usize);
            assert_eq!(tensor.layout(), Layout::Split);
            assert!(*found == split(info.kind, rows, columns, &raw), "{}", info.name);
        } else {
            assert_eq!(tensor.layout(), Layout::Gguf);
            assert!(*found == raw, "{}", info.name);
        }
    }
}

#[test]
fn weights_in_gpu_memory_are_what_the_file_has_in_the_layouts_of_the_kernels() {
    let rig = rig();
    let _owner = ready(&rig, &["--verify", "full"]);
    let attached = attach_to(&rig).unwrap();
    let model = Model::open(&rig.model()).unwrap();
    assert_as_in_the_file(&model, &attached.weights);
    let reading = Reading { threads: 4, progress: &(), cancel: &NO };
    assert_eq!(attached.identity, identify(&model, &reading).unwrap().root);
    println!("import of {} ranges, {}: {:?}", attached.report.ranges, attached.report.bytes, attached.report.elapsed);
}

#[test]
fn a_worker_that_loads_for_itself_has_the_same() {
    let rig = rig();
    let model = Model::open(&rig.model()).unwrap();
    let options = SelfLoadOptions { device: device(), reserve: Some(Bytes::ZERO), progress: &(), cancel: &NO };
    let loaded = self_load(&model, &options).unwrap();
    assert_as_in_the_file(&model, &loaded.weights);
}

#[test]
fn a_worker_on_the_cpu_is_told_where_the_weights_are() {
    let rig = rig();
    let _owner = ready(&rig, &[]);
    let Err(error) = attach(&rig.manifest(), &AttachOptions::new("test", &NO)) else { panic!("it attached") };
    let text = error.to_string();
    assert!(text.contains("vmm memory of") && text.contains("GPU-") && text.contains("--backend memfd"), "{text}");
}

#[test]
fn a_killed_owner_leaves_its_workers_their_weights() {
    let rig = rig();
    let owner = ready(&rig, &[]);
    let attached = attach_to(&rig).unwrap();
    owner.kill().unwrap();
    until("the owner is lost", || attached.lease.owner() == OwnerState::Lost);
    assert_as_in_the_file(&Model::open(&rig.model()).unwrap(), &attached.weights);
}

#[test]
fn too_little_gpu_memory_ends_with_4_and_shows_both_tables() {
    let rig = rig();
    let mut command =
        rig.weightd(&[VMM, &["--base", rig.model().to_str().unwrap(), "--reserve-gb", "1000000"]].concat());
    command.arg("--dry-run");
    let ended = ds4_tests::run(command).unwrap();
    assert_eq!(ended.code(), Some(4), "{}", ended.output);
    for part in ["not enough GPU memory", "free GPU memory leaves", "device staging", "driver", "MemAvailable"] {
        assert!(ended.output.contains(part), "{part} is not in\n{}", ended.output);
    }
}

#[test]
fn a_gpu_that_is_not_there_ends_with_5_and_names_those_that_are() {
    let rig = rig();
    for arguments in [&["--device", "99"][..], &["--device-uuid", "GPU-0"]] {
        let ended = rig.run_owner(arguments);
        assert_eq!(ended.code(), Some(5), "{}", ended.output);
        assert!(ended.output.contains("the driver shows"), "{}", ended.output);
    }
}

/// A keeper on the rig's run directory.
fn keeper(rig: &Rig) -> Process {
    let keeper = Process::start(rig.weightd_program(&["keep", "--run-dir", rig.run_dir().to_str().unwrap()])).unwrap();
    keeper.wait_for_line("keeper listening").unwrap();
    keeper
}

#[test]
fn a_killed_owners_weights_stay_on_the_gpu_and_are_taken_back_by_the_next() {
    let rig = rig();
    let _keeper = keeper(&rig);
    let model = Model::open(&rig.model()).unwrap();
    let first = ready(&rig, &[]);
    let worker = attach_to(&rig).unwrap();
    first.kill().unwrap();
    // With no process left that has them mapped.
    drop(worker);
    let second = ready(&rig, &["--verify", "full"]);
    second.wait_for_line("weights taken back").unwrap();
    let worker = attach_to(&rig).unwrap();
    assert_as_in_the_file(&model, &worker.weights);
    assert_eq!(worker.lease.generation(), 2);
    let ended = second.terminate().unwrap();
    assert!(ended.output.contains("parked bytes="), "{}", ended.output);
    assert_eq!(rig.run(&["--release"]).code(), Some(0));
    assert_as_in_the_file(&model, &worker.weights);
}
