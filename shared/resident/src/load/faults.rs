//! Reads that fail, at every place in turn.

use super::{LoadOptions, Loader};
use crate::backing::HostBacking;
use crate::destination::Destination;
use crate::disk::{Disk, ModelFiles};
use crate::error::LoadError;
use crate::memory::{MemoryError, MemorySource, Observation, ProcessMemory};
use crate::plan::Plan;
use crate::planner::{PlanOptions, TensorTable, plan};
use crate::role::Role;
use crate::verify::Verify;
use crate::work::Reading;
use ds4_gguf::writer::Writer;
use ds4_gguf::{FileName, GgufError, Model};
use ds4_units::{Bytes, FileOffset, TensorType};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Fails the k-th read with EIO.
struct FailsAt<'m> {
    files: ModelFiles<'m>,
    reads: AtomicUsize,
    k: usize,
}

impl Disk for FailsAt<'_> {
    fn read(&self, shard: usize, offset: FileOffset, len: usize, window: &mut [u8]) -> Result<Range<usize>, GgufError> {
        if self.reads.fetch_add(1, Ordering::Relaxed) == self.k {
            let (file, source) = (FileName::of(Path::new("model.gguf")), io::Error::from_raw_os_error(5));
            return Err(GgufError::Read { file, offset: offset.0, source });
        }
        self.files.read(shard, offset, len, window)
    }

    fn check_unchanged(&self) -> Result<(), GgufError> {
        self.files.check_unchanged()
    }
}

struct Plenty;

impl MemorySource for Plenty {
    fn observe(&self) -> Result<Observation, MemoryError> {
        Ok(Observation { available: Bytes::gib(1 << 20), ..Observation::default() })
    }

    fn largest_processes(&self) -> Vec<ProcessMemory> {
        Vec::new()
    }
}

fn model(folder: &Path) -> (Model, Plan) {
    let path = folder.join("model.gguf");
    let tensor = |writer: Writer, i: u64| {
        writer.tensor(&format!("large.{i}"), TensorType::I8, &[3 << 20], vec![i as u8; 3 << 20]).tensor(
            &format!("small.{i}"),
            TensorType::F32,
            &[8],
            vec![i as u8; 32],
        )
    };
    (0..3).fold(Writer::new("example"), tensor).write(&path).unwrap();
    let model = Model::open(&path).unwrap();
    let options = PlanOptions { span: Bytes::mib(4), ..PlanOptions::default() };
    let plan = plan(&[TensorTable { role: Role::Base, tensors: model.tensors() }], &options).unwrap();
    (model, plan)
}

fn open_ranges(name: &str) -> usize {
    let begin = format!("/memfd:{name}-");
    let links = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| entry.unwrap().path().read_link().ok());
    links.filter(|target| target.to_string_lossy().starts_with(&begin)).count()
}

#[test]
fn a_failed_read_at_any_place_is_an_error_with_its_cause_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (model, plan) = model(folder.path());
    let options = LoadOptions {
        destination: Destination::Host,
        name: "fault".to_owned(),
        trip_floor: Bytes::ZERO,
        verify: Verify::Sample,
    };
    let cancel = AtomicBool::new(false);
    let reads = 3 * 2 + 3;
    for (k, threads) in (0..=reads).flat_map(|k| [(k, 1), (k, 4)]) {
        let files = ModelFiles::open(&model, |_| ());
        let disk = FailsAt { files, reads: AtomicUsize::new(0), k };
        let reading = Reading { threads, progress: &(), cancel: &cancel };
        let loader = Loader { plan: &plan, disks: vec![&disk], reading: &reading, done: AtomicU64::new(0) };
        let result = loader.load(&HostBacking, &options, &Plenty);
        if k == reads {
            assert_eq!(result.unwrap().ranges.len(), plan.ranges.len());
            continue;
        }
        let error = result.err().expect("a read failed");
        assert!(matches!(error, LoadError::File(GgufError::Read { .. })), "{error}");
        let text = error.to_string();
        assert!(text.starts_with("model.gguf: cannot read at byte ") && text.contains("os error 5"), "{text}");
        assert_eq!(open_ranges("fault"), 0, "read {k}");
    }
}
