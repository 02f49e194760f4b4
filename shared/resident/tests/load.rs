//! Loading: the bytes arrive, and nothing stays behind when they do not.

mod support;

use ds4_gguf::{GgufError, Model};
use ds4_gpu::SharedRange;
use ds4_resident::{
    LoadError, MemoryError, MemorySource, Observation, PlanOptions, ProcessMemory, Progress, Reading, Resident, Role,
    SkipRequest, TensorTable, identify, load, plan,
};
use ds4_units::{Bytes, TensorType};
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use support::{Plenty, load_all, load_options, model, open_ranges, plan_of, small_ranges, writer};

/// Compares every resident tensor with the file.
fn assert_loaded(model: &Model, plan: &ds4_resident::Plan, resident: &Resident) {
    for tensor in &plan.model(Role::Base).unwrap().tensors {
        let place = tensor.residency.place().unwrap();
        let mut found = vec![0; place.len.index()];
        let SharedRange::Host(range) = &resident.ranges[place.range as usize] else { panic!("loaded to the host") };
        range.read_at(place.offset.0, &mut found).unwrap();
        assert!(found == model.read_tensor(model.tensor(&tensor.name).unwrap()).unwrap(), "{}", tensor.name);
    }
}

#[test]
fn every_tensor_is_resident_byte_for_byte() {
    let folder = tempfile::tempdir().unwrap();
    let model = model(folder.path());
    for options in [PlanOptions::default(), small_ranges()] {
        let plan = plan_of(&model, &options);
        let resident = load_all(&model, &plan, "whole").unwrap();
        assert_eq!(resident.ranges.len() as u64, plan.totals.ranges);
        assert!(resident.ranges.iter().zip(&plan.ranges).all(|(range, planned)| range.len() == planned.allocated));
        assert_eq!(resident.report.bytes, plan.bytes_to_read());
        assert_loaded(&model, &plan, &resident);
    }
}

#[test]
fn shards_are_loaded_as_one_model() {
    let folder = tempfile::tempdir().unwrap();
    let paths = writer().write_shards(folder.path(), "split", 3).unwrap();
    let split = Model::open(&paths[0]).unwrap();
    let plan = plan_of(&split, &small_ranges());
    let resident = load_all(&split, &plan, "shards").unwrap();
    assert_loaded(&split, &plan, &resident);
    let whole = model(folder.path());
    let of_whole = load_all(&whole, &plan_of(&whole, &PlanOptions::default()), "one").unwrap();
    assert_eq!(resident.identity(Role::Base), of_whole.identity(Role::Base));
}

#[test]
fn several_models_keep_ranges_and_identities_apart() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let base = model(one.path());
    let draft = writer().tensor("mtp.0.extra", TensorType::F32, &[4], vec![7; 16]);
    draft.write(&two.path().join("draft.gguf")).unwrap();
    let draft = Model::open(&two.path().join("draft.gguf")).unwrap();
    let tables = [
        TensorTable { role: Role::Mtp, tensors: draft.tensors() },
        TensorTable { role: Role::Base, tensors: base.tensors() },
    ];
    let plan = plan(&tables, &small_ranges()).unwrap();
    let cancel = AtomicBool::new(false);
    let reading = Reading { threads: 2, progress: &(), cancel: &cancel };
    let models = [(Role::Base, &base), (Role::Mtp, &draft)];
    let resident = load(&plan, &models, &load_options("pair"), &Plenty, &reading).unwrap();
    assert_loaded(&base, &plan, &resident);
    assert_eq!(resident.identity(Role::Base), Some(&identify(&base, &reading).unwrap()));
    assert_eq!(resident.identity(Role::Mtp), Some(&identify(&draft, &reading).unwrap()));
    assert_ne!(resident.identity(Role::Base), resident.identity(Role::Mtp));
}

#[test]
fn tensors_that_share_their_bytes_are_resident_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tied.gguf");
    // The second tensor's table entry is pointed at the first's bytes.
    let mut bytes = writer().tensor("tied.twin", TensorType::F32, &[100], vec![1; 400]).to_bytes();
    let entry = bytes.windows(9).position(|window| window == b"tied.twin").unwrap() + 9;
    bytes[entry + 16..entry + 24].copy_from_slice(&0u64.to_le_bytes());
    std::fs::write(&path, bytes).unwrap();
    let model = Model::open(&path).unwrap();
    let plan = plan_of(&model, &PlanOptions::default());
    assert_eq!(plan.totals.shared, Bytes(400));
    let resident = load_all(&model, &plan, "tied").unwrap();
    assert_loaded(&model, &plan, &resident);
    let identity = resident.identity(Role::Base).unwrap();
    let root = |name: &str| identity.tensors.iter().find(|tensor| tensor.name == name).unwrap().leaf_root;
    assert_eq!(root("tied.twin"), root("blk.0.norm"));
}

#[test]
fn a_skipped_tensor_takes_no_memory_but_counts_for_the_identity() {
    let folder = tempfile::tempdir().unwrap();
    let model = model(folder.path());
    let skip = SkipRequest { role: Role::Base, tensor: "output".into(), reason: "not used".into() };
    let plan = plan_of(&model, &PlanOptions { skip: vec![skip], ..PlanOptions::default() });
    assert_eq!(plan.totals.skipped, Bytes(3_072_000));
    let resident = load_all(&model, &plan, "skip").unwrap();
    let whole = load_all(&model, &plan_of(&model, &PlanOptions::default()), "skip").unwrap();
    assert_eq!(resident.identity(Role::Base), whole.identity(Role::Base));
    let taken = |resident: &Resident| resident.ranges.iter().map(|range| range.len().0).sum::<u64>();
    assert!(taken(&resident) + 3_072_000 <= taken(&whole));
}

/// Counts, and does something to a file or a flag when a number of bytes is read.
struct When<'a> {
    read: Bytes,
    action: &'a (dyn Fn() + Sync),
    largest: AtomicU64,
    notes: Mutex<Vec<String>>,
}

impl<'a> When<'a> {
    fn read(read: Bytes, action: &'a (dyn Fn() + Sync)) -> When<'a> {
        When { read, action, largest: AtomicU64::new(0), notes: Mutex::new(Vec::new()) }
    }
}

impl Progress for When<'_> {
    fn read(&self, done: Bytes) {
        if done >= self.read {
            (self.action)();
        }
        self.largest.fetch_max(done.0, Ordering::Relaxed);
    }

    fn note(&self, text: &str) {
        self.notes.lock().unwrap().push(text.to_owned());
    }
}

#[test]
fn a_file_truncated_while_loading_is_an_error_that_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let model = model(folder.path());
    let plan = plan_of(&model, &small_ranges());
    let path = folder.path().join("model.gguf");
    let truncate = || OpenOptions::new().write(true).open(&path).unwrap().set_len(1 << 20).unwrap();
    let progress = When::read(Bytes::mib(1), &truncate);
    let cancel = AtomicBool::new(false);
    let reading = Reading { threads: 1, progress: &progress, cancel: &cancel };
    let error = load(&plan, &[(Role::Base, &model)], &load_options("truncated"), &Plenty, &reading).unwrap_err();
    assert!(matches!(error, LoadError::File(GgufError::Changed { .. })), "{error}");
    let text = error.to_string();
    assert!(text.contains("model file changed while loading") && text.contains("1048576 bytes"), "{text}");
    assert_eq!(open_ranges("truncated"), 0);
}

#[test]
fn a_file_changed_while_loading_is_an_error_that_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let model = model(folder.path());
    let plan = plan_of(&model, &small_ranges());
    let path = folder.path().join("model.gguf");
    let change = || OpenOptions::new().write(true).open(&path).unwrap().write_all_at(b"!", 9 << 20).unwrap();
    let progress = When::read(Bytes::mib(8), &change);
    let cancel = AtomicBool::new(false);
    let reading = Reading { threads: 2, progress: &progress, cancel: &cancel };
    let error = load(&plan, &[(Role::Base, &model)], &load_options("changed"), &Plenty, &reading).unwrap_err();
    assert!(error.to_string().contains("model file changed while loading"), "{error}");
    assert_eq!(open_ranges("changed"), 0);
}

#[test]
fn a_cancelled_load_stops_within_a_piece_and_leaves_no_descriptor() {
    let folder = tempfile::tempdir().unwrap();
    let model = model(folder.path());
    let plan = plan_of(&model, &small_ranges());
    let cancel = AtomicBool::new(false);
    let stop = || cancel.store(true, Ordering::Relaxed);
    let progress = When::read(Bytes::mib(3), &stop);
    let reading = Reading { threads: 1, progress: &progress, cancel: &cancel };
    let error = load(&plan, &[(Role::Base, &model)], &load_options("cancelled"), &Plenty, &reading).unwrap_err();
    assert!(matches!(error, LoadError::Cancelled), "{error}");
    assert!(progress.largest.load(Ordering::Relaxed) < (3 << 20) + (2 << 20));
    assert_eq!(open_ranges("cancelled"), 0);
    assert!(matches!(identify(&model, &reading), Err(LoadError::Cancelled)));
}

/// Memory that is gone at the k-th look.
struct Vanishes {
    looks: AtomicUsize,
    at: usize,
    swap: bool,
}

impl MemorySource for Vanishes {
    fn observe(&self) -> Result<Observation, MemoryError> {
        let gone = self.looks.fetch_add(1, Ordering::Relaxed) >= self.at;
        let plenty = Observation { available: Bytes::gib(1), ..Observation::default() };
        Ok(match (gone, self.swap) {
            (false, _) => plenty,
            (true, false) => Observation { available: Bytes::mib(515), ..plenty },
            (true, true) => Observation { swap_used: Bytes::mib(509), ..plenty },
        })
    }

    fn largest_processes(&self) -> Vec<ProcessMemory> {
        vec![ProcessMemory { pid: 4242, name: "greedy".into(), resident: Bytes::gib(9) }]
    }
}

#[test]
fn loading_stops_when_memory_vanishes_or_swap_fills_before_any_range() {
    let folder = tempfile::tempdir().unwrap();
    let model = model(folder.path());
    let plan = plan_of(&model, &small_ranges());
    let cancel = AtomicBool::new(false);
    let reading = Reading { threads: 2, progress: &(), cancel: &cancel };
    for (at, swap) in (1..=plan.ranges.len()).flat_map(|at| [(at, false), (at, true)]) {
        let memory = Vanishes { looks: AtomicUsize::new(0), at, swap };
        let result = load(&plan, &[(Role::Base, &model)], &load_options("vanished"), &memory, &reading);
        let needs_more_than_3_mib = plan.ranges[at - 1..].iter().any(|range| range.allocated > Bytes::mib(3));
        assert_eq!(result.is_err(), needs_more_than_3_mib, "look {at}");
        let Err(error) = result else { continue };
        let text = error.to_string();
        assert!(text.contains("512.00 MiB must stay free"), "{text}");
        assert!(text.contains("MemAvailable leaves 515.00 MiB"), "{text}");
        assert!(text.contains("pid 4242 (greedy) 9.00 GiB"), "{text}");
        assert_eq!(open_ranges("vanished"), 0);
    }
}

#[test]
fn a_plan_of_another_model_is_refused_by_name() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let planned = model(one.path());
    let path = two.path().join("other.gguf");
    writer().value("longer.header", "so that every tensor moves".into()).write(&path).unwrap();
    let other = Model::open(&path).unwrap();
    let error = load_all(&other, &plan_of(&planned, &PlanOptions::default()), "other").unwrap_err();
    assert_eq!(error.to_string(), "the plan does not fit the base model: tensor \"blk.0.norm\" is not the one planned");
}
