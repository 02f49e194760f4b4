//! Small models for the tests, and memory that says what a test wants.
#![allow(dead_code)] // Every test binary uses its own part.

use ds4_gguf::{Model, writer::Writer};
use ds4_resident::{
    Destination, LoadError, LoadOptions, MemoryError, MemorySource, Observation, Plan, PlanOptions, ProcessMemory,
    Reading, Resident, Role, TensorTable, Verify, load, plan,
};
use ds4_units::{Bytes, TensorType};
use std::fs::File;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, UNIX_EPOCH};

/// Repeatable bytes that differ between seeds and from place to place.
pub(crate) fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend(next());
    }
    bytes.truncate(len);
    bytes
}

/// A model with a tensor of several leaves, one of exactly one leaf, and small ones in between.
pub(crate) fn writer() -> Writer {
    Writer::new("example")
        .tensor("blk.0.norm", TensorType::F32, &[100], bytes(400, 1))
        .tensor("blk.0.experts", TensorType::I8, &[1 << 20, 5], bytes(5 << 20, 2))
        .tensor("blk.0.bias", TensorType::F32, &[3], bytes(12, 3))
        .tensor("blk.1.one_leaf", TensorType::F32, &[1 << 19], bytes(2 << 20, 4))
        .tensor("blk.1.quants", TensorType::Q8_0, &[320, 64], bytes(34 * 640, 5))
        .tensor("output", TensorType::F16, &[1 << 10, 1500], bytes(3_072_000, 6))
}

/// Writes the model into `folder` and opens it.
pub(crate) fn model(folder: &Path) -> Model {
    let path = folder.join("model.gguf");
    writer().write(&path).unwrap();
    // Long ago, so that a change during the test has another time even where the clock of the file system is coarse.
    File::options().write(true).open(&path).unwrap().set_modified(UNIX_EPOCH + Duration::from_secs(1)).unwrap();
    Model::open(&path).unwrap()
}

pub(crate) fn plan_of(model: &Model, options: &PlanOptions) -> Plan {
    plan(&[TensorTable { role: Role::Base, tensors: model.tensors() }], options).unwrap()
}

/// A plan with ranges of 4 MiB, so that small models have several.
pub(crate) fn small_ranges() -> PlanOptions {
    PlanOptions { span: Bytes::mib(4), ..PlanOptions::default() }
}

pub(crate) fn load_options(name: &str) -> LoadOptions {
    LoadOptions {
        destination: Destination::Host,
        name: name.to_owned(),
        trip_floor: Bytes::mib(512),
        verify: Verify::Full,
    }
}

/// Loads with three threads and memory without end.
pub(crate) fn load_all(model: &Model, plan: &Plan, name: &str) -> Result<Resident, LoadError> {
    let cancel = AtomicBool::new(false);
    let reading = Reading { threads: 3, progress: &(), cancel: &cancel };
    load(plan, &[(Role::Base, model)], &load_options(name), &Plenty, &reading)
}

/// Descriptors of this process whose memory is called `name` and something.
pub(crate) fn open_ranges(name: &str) -> usize {
    let begin = format!("/memfd:{name}-");
    let links = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| entry.unwrap().path().read_link().ok());
    links.filter(|target| target.to_string_lossy().starts_with(&begin)).count()
}

/// As much memory as anyone can ask for.
pub(crate) struct Plenty;

impl MemorySource for Plenty {
    fn observe(&self) -> Result<Observation, MemoryError> {
        Ok(Observation { available: Bytes::gib(1 << 20), ..Observation::default() })
    }

    fn largest_processes(&self) -> Vec<ProcessMemory> {
        Vec::new()
    }
}
