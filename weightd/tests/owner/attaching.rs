//! Workers that attach to a real owner: the weights they get, and every reason not to get them.

use crate::kit::{Rig, small_model, status, until};
use ds4_gguf::Model;
use ds4_import::{
    AttachOptions, Attached, ComputeDevice, ImportError, ImportFailure, OwnerState, SelfLoadOptions, attach, self_load,
};
use ds4_manifest::{Digest, InvalidManifest, ManifestError, WeightsManifest};
use ds4_units::{Bytes, TensorType};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use std::time::Duration;

static NO: AtomicBool = AtomicBool::new(false);

fn options() -> AttachOptions<'static> {
    AttachOptions::new("test", &NO)
}

/// Attaches as a worker with a file of its own.
fn attach_with(rig: &Rig, own: &Path) -> Result<Attached, ImportError> {
    let own = Model::open(own).unwrap();
    attach(&rig.manifest(), &AttachOptions { own_file: Some(&own), ..options() })
}

fn failed(result: Result<Attached, ImportError>) -> ImportError {
    match result {
        Ok(_) => panic!("it attached"),
        Err(error) => error,
    }
}

/// Changes the body of the published manifest and seals it again.
fn forge(rig: &Rig, change: impl FnOnce(&mut serde_json::Value)) {
    let text = fs::read_to_string(rig.manifest()).unwrap();
    let body = format!("{}}}", text.split(",\"sha256\":").next().unwrap());
    let mut json: serde_json::Value = serde_json::from_str(&body).unwrap();
    change(&mut json);
    let body = json.to_string();
    let body = body.strip_suffix('}').unwrap();
    let sealed = format!("{body},\"sha256\":\"{}\"}}\n", Digest::of(body.as_bytes()));
    fs::write(rig.manifest(), sealed).unwrap();
}

/// Worker and owner agree on every tensor of the small model.
fn assert_whole(weights: &ds4_import::Weights) {
    let names: Vec<&str> = weights.tensors().map(|tensor| tensor.name()).collect();
    assert_eq!(names, ["a.weight", "b.weight", "c.weight", "d.weight"]);
    let b = weights.tensor("b.weight").unwrap();
    assert_eq!((b.kind(), b.dims(), b.bytes().unwrap().len()), (TensorType::F16, &[1024, 1536][..], 3 << 20));
    assert!(b.bytes().unwrap().iter().zip(0u32..).all(|(&byte, at)| byte == (at % 251) as u8));
    assert_eq!(weights.tensor("c.weight").unwrap().bytes().unwrap()[..], [3; 136]);
}

#[test]
fn a_worker_gets_every_tensor_and_the_owner_sees_it_come_and_go() {
    let rig = Rig::new();
    let owner = rig.ready(&[]);
    let attached = attach_with(&rig, &rig.model()).unwrap();
    assert_whole(&attached.weights);
    assert_eq!(attached.lease.owner(), OwnerState::Up);
    assert_eq!(attached.report.ranges, 2);
    let seen = status(&rig.connect()).unwrap();
    let [worker] = seen.workers.as_slice() else { panic!("{:?}", seen.workers) };
    assert_eq!((worker.worker_id.as_str(), worker.imported_bytes), ("test", seen.bytes));
    // One tensor is enough to keep the lease.
    let tensor = attached.weights.tensor("a.weight").unwrap().clone();
    drop(attached);
    assert_eq!(status(&rig.connect()).unwrap().workers.len(), 1);
    drop(tensor);
    until("the end of the lease", || status(&rig.connect()).unwrap().workers.is_empty());
    owner.terminate().unwrap();
}

#[test]
fn loading_alone_gives_the_same_weights_under_the_same_identity() {
    let rig = Rig::new();
    let owner = rig.ready(&[]);
    let attached = attach_with(&rig, &rig.model()).unwrap();
    let own = Model::open(&rig.model()).unwrap();
    let alone = self_load(
        &own,
        &SelfLoadOptions { device: ComputeDevice::Cpu, reserve: Some(Bytes::ZERO), progress: &(), cancel: &NO },
    )
    .unwrap();
    assert_eq!(alone.identity, attached.identity);
    assert_whole(&alone.weights);
    owner.terminate().unwrap();
}

// Two checkpoints of one size: the worker's file was swapped for another while the owner holds the old one.
#[test]
fn a_swapped_checkpoint_of_the_same_size_is_refused_with_both_digests() {
    let rig = Rig::new();
    let owner = rig.ready(&[]);
    let other = rig.path().join("other.gguf");
    let plain = small_model(0).to_bytes();
    let last = Model::open(&rig.model()).unwrap().tensor("d.weight").unwrap().offset.index();
    // In the middle of a page, at the start of one, in the last tensor.
    for at in [plain.len() / 2 + 1234, (plain.len() / 2) & !4095, last] {
        let mut bytes = plain.clone();
        bytes[at] ^= 1;
        fs::write(&other, bytes).unwrap();
        let error = failed(attach_with(&rig, &other));
        assert_eq!(error.failure(), ImportFailure::Mismatch);
        let ImportError::Content { owner, own, .. } = &error else { panic!("{error}") };
        let text = error.to_string();
        for part in [owner.to_string(), own.to_string(), format!("ds4-weightd --base {}", other.display())] {
            assert!(text.contains(&part), "{part} is not in {text}");
        }
    }
    // The same content in another file is the same model.
    fs::write(&other, plain).unwrap();
    attach_with(&rig, &other).unwrap();
    owner.terminate().unwrap();
}

#[test]
fn another_table_or_architecture_is_refused_with_the_first_difference() {
    let rig = Rig::new();
    let owner = rig.ready(&[]);
    let other = rig.path().join("other.gguf");
    small_model(0).tensor("e.weight", TensorType::F32, &[8], vec![0; 32]).write(&other).unwrap();
    let text = failed(attach_with(&rig, &other)).to_string();
    assert!(text.contains("only the worker has \"e.weight\""), "{text}");
    ds4_gguf::writer::Writer::new("other").tensor("a", TensorType::F32, &[8], vec![0; 32]).write(&other).unwrap();
    let text = failed(attach_with(&rig, &other)).to_string();
    assert!(text.contains("\"toy\"") && text.contains("\"other\""), "{text}");
    owner.terminate().unwrap();
}

// A tensor that is in none of the ranges must never be read from anywhere else.
#[test]
fn a_manifest_that_lost_a_range_or_a_place_is_refused() {
    let rig = Rig::new();
    let owner = rig.ready(&[]);
    let published = fs::read(rig.manifest()).unwrap();
    forge(&rig, |manifest| drop(manifest["ranges"].as_array_mut().unwrap().pop()));
    let error = failed(attach(&rig.manifest(), &options()));
    let ImportError::Manifest { source: ManifestError::Invalid(invalid), .. } = &error else { panic!("{error}") };
    assert!(matches!(invalid, InvalidManifest::Outside { range_len: None, .. }), "{invalid}");
    fs::write(rig.manifest(), &published).unwrap();
    forge(&rig, |manifest| manifest["models"][0]["tensors"][1]["place"] = serde_json::Value::Null);
    let text = failed(attach(&rig.manifest(), &options())).to_string();
    assert!(text.contains("\"b.weight\" must have either a place"), "{text}");
    owner.terminate().unwrap();
}

#[test]
fn an_edited_manifest_is_refused_for_what_was_edited() {
    let rig = Rig::new();
    let owner = rig.ready(&[]);
    let published = fs::read(rig.manifest()).unwrap();
    type Change = fn(&mut serde_json::Value);
    let changes: [(Change, &str); 6] = [
        (|m| m["models"][0]["tensors"][0]["leaf_root"] = "00".repeat(32).into(), "but its tensors give"),
        (|m| m["instance"] = "00".repeat(16).into(), "the owner is instance"),
        (|m| m["generation"] = 9.into(), "holds generation 1, not 9"),
        (|m| m["device"]["backend"] = "vmm".into(), "start the owner with --backend memfd"),
        (
            |m| m["needs"] = serde_json::json!([{"capability": "soa-v9", "avoid_with": "--no-soa"}]),
            "start the owner with --no-soa",
        ),
        (|m| m["broker"]["path"] = "/nonexistent/socket".into(), "is stale"),
    ];
    for (change, says) in changes {
        fs::write(rig.manifest(), &published).unwrap();
        forge(&rig, change);
        let text = failed(attach(&rig.manifest(), &options())).to_string();
        assert!(text.contains(says), "{text}");
    }
    fs::write(rig.manifest(), &published[..published.len() - 9]).unwrap();
    let text = failed(attach(&rig.manifest(), &options())).to_string();
    assert!(text.contains("truncated or edited"), "{text}");
    owner.terminate().unwrap();
}

#[test]
fn swapped_ranges_are_noticed_by_their_bytes() {
    let rig = Rig::new();
    // Both models in one owner have a range of small tensors of the same length.
    let twin = rig.path().join("twin.gguf");
    let bytes: Vec<u8> = small_model(0).to_bytes().iter().map(|&byte| if byte == 4 { 5 } else { byte }).collect();
    fs::write(&twin, bytes).unwrap();
    if Model::open(&twin).is_err() {
        small_model(9).write(&twin).unwrap();
    }
    let owner = rig.ready(&["--mtp", twin.to_str().unwrap()]);
    let manifest = rig.read_manifest();
    assert_eq!(manifest.models.len(), 2);
    // Say that the tensors of one model lie where those of the other do.
    forge(&rig, |manifest| {
        let (base, mtp) = (manifest["models"][0]["tensors"].clone(), manifest["models"][1]["tensors"].clone());
        for at in 0..4 {
            manifest["models"][0]["tensors"][at]["place"] = mtp[at]["place"].clone();
            manifest["models"][1]["tensors"][at]["place"] = base[at]["place"].clone();
        }
    });
    let result = attach(&rig.manifest(), &options());
    let error = failed(result);
    assert!(matches!(error, ImportError::Corrupt { .. }), "{error}");
    owner.terminate().unwrap();
}

#[test]
fn the_mtp_model_is_attached_by_its_id_and_an_absent_one_is_named() {
    let rig = Rig::new();
    let mtp = rig.path().join("mtp.gguf");
    small_model(7).write(&mtp).unwrap();
    let owner = rig.ready(&["--mtp", mtp.to_str().unwrap()]);
    let base = attach(&rig.manifest(), &options()).unwrap();
    let other = attach(&rig.manifest(), &AttachOptions { model: "mtp", ..options() }).unwrap();
    assert_ne!(base.identity, other.identity);
    let b = |attached: &Attached| attached.weights.tensor("b.weight").unwrap().bytes().unwrap().into_owned();
    assert_ne!(b(&base), b(&other));
    let error = failed(attach(&rig.manifest(), &AttachOptions { model: "drafter", ..options() }));
    assert_eq!(error.to_string(), "the owner holds base, mtp, not drafter");
    owner.terminate().unwrap();
}

#[test]
fn a_manifest_that_others_may_write_is_not_believed() {
    let rig = Rig::new();
    let owner = rig.ready(&[]);
    fs::set_permissions(rig.manifest(), fs::Permissions::from_mode(0o666)).unwrap();
    let text = failed(attach(&rig.manifest(), &options())).to_string();
    assert!(text.contains("chmod go-w"), "{text}");
    fs::set_permissions(rig.manifest(), fs::Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(rig.run_dir(), fs::Permissions::from_mode(0o777)).unwrap();
    let text = failed(attach(&rig.manifest(), &options())).to_string();
    assert!(text.contains("mode 777"), "{text}");
    owner.terminate().unwrap();
}

#[test]
fn without_an_owner_the_message_says_how_to_start_one() {
    let rig = Rig::new();
    let error = failed(attach(&rig.manifest(), &options()));
    assert_eq!(error.failure(), ImportFailure::NotReady);
    assert!(error.to_string().contains("ds4-weightd --base MODEL"), "{error}");
    rig.ready(&[]).kill().unwrap();
    let error = failed(attach(&rig.manifest(), &options()));
    assert!(matches!(error, ImportError::Stale { .. }), "{error}");
}

#[test]
fn a_worker_that_waits_attaches_as_soon_as_the_owner_is_ready() {
    let rig = Rig::slow(256);
    let manifest = rig.manifest();
    let waiting = std::thread::spawn(move || {
        attach(&manifest, &AttachOptions { wait: crate::kit::PATIENCE, ..options() }).map(|attached| attached.report)
    });
    let owner = rig.start(&[]);
    crate::kit::until_loading(&rig);
    let waited = waiting.join().unwrap().unwrap();
    assert!(waited.bytes >= Bytes::mib(256));
    owner.terminate().unwrap();
}

#[test]
fn a_loading_owner_is_named_with_its_progress() {
    let rig = Rig::slow(768);
    let owner = rig.start(&[]);
    until("the socket", || rig.socket().exists());
    // The owner may be anywhere from starting to ready by now; until it is ready, the message says where.
    match attach(&rig.manifest(), &options()) {
        Ok(_) => {}
        Err(ImportError::NotReady { phase }) => {
            let text = ImportError::NotReady { phase }.to_string();
            assert!(text.contains("--wait SECS") && text.contains(&phase.to_string()), "{text}");
        }
        Err(error) => panic!("{error}"),
    }
    owner.terminate().unwrap();
}

#[test]
fn a_worker_keeps_its_weights_and_notices_when_the_owner_is_killed() {
    let rig = Rig::new();
    let owner = rig.ready(&[]);
    let (sender, changes) = channel();
    let told = AttachOptions { on_owner_change: Arc::new(move |state| sender.send(state).unwrap()), ..options() };
    let attached = attach(&rig.manifest(), &told).unwrap();
    owner.kill().unwrap();
    assert_eq!(changes.recv_timeout(crate::kit::PATIENCE).unwrap(), OwnerState::Lost);
    assert_eq!(attached.lease.owner(), OwnerState::Lost);
    assert_whole(&attached.weights);
}

#[test]
fn a_worker_hears_that_the_owner_drains_and_keeps_its_weights() {
    let rig = Rig::new();
    let owner = rig.ready(&["--drain-timeout", "0"]);
    let (sender, changes) = channel();
    let told = AttachOptions { on_owner_change: Arc::new(move |state| sender.send(state).unwrap()), ..options() };
    let attached = attach(&rig.manifest(), &told).unwrap();
    assert_eq!(owner.terminate().unwrap().code(), Some(0));
    for expected in [OwnerState::Draining, OwnerState::Lost] {
        assert_eq!(changes.recv_timeout(crate::kit::PATIENCE).unwrap(), expected);
    }
    assert_whole(&attached.weights);
}

// The supervisor restarts a killed owner while a worker still holds its memory: the new one says who does.
#[test]
fn an_owner_says_who_still_holds_the_memory_of_a_killed_one() {
    let rig = Rig::new();
    let manifest = rig.run_dir().join("orphan.json");
    let owner = rig.ready(&["--name", "orphan"]);
    let attached = attach(&manifest, &options()).unwrap();
    owner.kill().unwrap();
    let owner = rig.ready(&["--name", "orphan"]);
    let held = format!("pid={} bytes={}", std::process::id(), attached.report.bytes.0);
    let said = owner.wait_for_line("still holds its weights").unwrap();
    assert!(said.contains(&held), "{held} is not in {said}");
    // The worker's next attachment is to the new owner.
    let again = attach(&manifest, &options()).unwrap();
    assert_eq!((again.lease.generation(), again.identity == attached.identity), (2, true));
    owner.terminate().unwrap();
}

#[test]
fn a_failed_attachment_leaves_nothing_and_the_next_one_succeeds() {
    let rig = Rig::new();
    let owner = rig.ready(&[]);
    let published = fs::read(rig.manifest()).unwrap();
    forge(&rig, |manifest| manifest["generation"] = 9.into());
    for _ in 0..5 {
        failed(attach(&rig.manifest(), &options()));
    }
    until("the end of all connections", || status(&rig.connect()).unwrap().workers.is_empty());
    fs::write(rig.manifest(), published).unwrap();
    assert_whole(&attach(&rig.manifest(), &options()).unwrap().weights);
    WeightsManifest::parse(&fs::read(rig.manifest()).unwrap()).unwrap();
    owner.terminate().unwrap();
}

#[test]
fn waiting_ends_when_the_caller_says_so() {
    let rig = Rig::new();
    let stop = AtomicBool::new(true);
    let waiting = AttachOptions { wait: Duration::from_secs(1000), ..AttachOptions::new("test", &stop) };
    assert_eq!(failed(attach(&rig.manifest(), &waiting)).failure(), ImportFailure::Cancelled);
}
