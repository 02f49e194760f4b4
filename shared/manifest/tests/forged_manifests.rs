//! Manifests that were cut, edited or forged: each is refused for its own reason.

use ds4_manifest::{
    Artifact, Broker, Device, Digest, InstanceId, InvalidManifest, ManifestError, Model, ModelFile, Need, Owner, Place,
    Range, State, Tensor, Totals, Trust, WeightsManifest, publish,
};
use ds4_units::{Bytes, TensorType};
use std::fs;

fn tensor(name: &str, range: u32, offset: u64) -> Tensor {
    let place = Some(Place { range, offset: Bytes(offset), len: Bytes(256) });
    Tensor { name: name.into(), kind: TensorType::F32, dims: vec![32, 2], leaf_root: Digest::of(b""), place }
}

fn manifest() -> WeightsManifest {
    let file = ModelFile { path: "/models/m.gguf".into(), dev: 1, ino: 2, size: Bytes(4096), mtime_ns: 3, ctime_ns: 4 };
    let model = Model {
        id: "base".into(),
        arch: "toy".into(),
        files: vec![file],
        logical_size: Bytes(4096),
        shard_align: Bytes::kib(64),
        content_root: Digest::of(b"root"),
        tensors: vec![tensor("a", 0, 0), tensor("b", 0, 256), tensor("c", 1, 0)],
    };
    let mut manifest = WeightsManifest {
        schema: WeightsManifest::SCHEMA.into(),
        instance: InstanceId([7; 16]),
        generation: 1,
        state: State::Ready,
        created_at: 0,
        owner: Owner { pid: 1, start_time_ticks: 2, boot_id: "b".into(), uid: 0, exe_version: "0".into() },
        device: Device { backend: "memfd".into(), name: "host".into(), uuid: None, granularity: Bytes::mib(2) },
        broker: Broker { path: "/run/ds4/weights.json.sock".into(), proto_min: 1, proto_max: 1 },
        models: vec![model],
        artifacts: vec![],
        ranges: (0..2).map(|id| Range { id, len: Bytes(512), allocated: Bytes::mib(2) }).collect(),
        needs: vec![],
        totals: Totals::default(),
        plan_flags: vec!["--span-mb 1024".into()],
    };
    manifest.totals = manifest.count();
    manifest
}

fn invalid(change: impl FnOnce(&mut WeightsManifest)) -> InvalidManifest {
    let mut forged = manifest();
    change(&mut forged);
    forged.validate().unwrap_err()
}

#[test]
fn what_is_written_is_read_back() {
    let text = manifest().to_text().unwrap();
    assert_eq!(WeightsManifest::parse(text.as_bytes()).unwrap(), manifest());
    assert!(text.starts_with(r#"{"schema":"ds4.weights/2","instance":"#));
    assert!(text.ends_with("\"}\n"));
}

#[test]
fn every_cut_and_every_flipped_byte_is_refused() {
    let text = manifest().to_text().unwrap().into_bytes();
    for len in 0..text.len() {
        assert!(WeightsManifest::parse(&text[..len]).is_err(), "cut at {len}");
    }
    for at in 0..text.len() {
        let mut edited = text.clone();
        edited[at] ^= 1;
        assert!(WeightsManifest::parse(&edited).is_err(), "flip at {at}");
    }
}

#[test]
fn a_cut_manifest_says_so() {
    let text = manifest().to_text().unwrap();
    let error = WeightsManifest::parse(&text.as_bytes()[..text.len() / 2]).unwrap_err();
    assert!(matches!(error, ManifestError::Truncated));
    assert!(error.to_string().contains("truncated or edited"));
}

#[test]
fn another_schema_is_named() {
    let error = WeightsManifest::parse(br#"{"schema":"ds4.weights/3"}"#).unwrap_err();
    assert!(matches!(error, ManifestError::UnknownSchema { found } if found == "ds4.weights/3"));
}

#[test]
fn a_text_form_manifest_is_named() {
    let error = WeightsManifest::parse(b"DS4_WEIGHT_SERVER_VMM_V1\nowner 1 0 base -\n").unwrap_err();
    assert!(matches!(error, ManifestError::TextForm));
    assert!(error.to_string().contains("ds4-weightd"));
}

#[test]
fn an_unknown_or_repeated_field_is_refused_even_under_a_right_digest() {
    let text = manifest().to_text().unwrap();
    for (from, to) in [(r#""generation":1"#, r#""generation":1,"extra":0"#), (r#""uid":0"#, r#""uid":0,"uid":0"#)] {
        let body = text.split(",\"sha256\":").next().unwrap().replace(from, to);
        let sealed = format!("{body},\"sha256\":\"{}\"}}\n", Digest::of(body.as_bytes()));
        assert!(matches!(WeightsManifest::parse(sealed.as_bytes()), Err(ManifestError::Json { .. })), "{to}");
    }
}

#[test]
fn a_place_outside_its_range_is_refused() {
    for place in [(0, 512, 256), (0, 1, 256), (2, 0, 256), (0, u64::MAX - 255, 256)] {
        let place = Place { range: place.0, offset: Bytes(place.1), len: Bytes(place.2) };
        let error = invalid(|m| m.models[0].tensors[0].place = Some(place));
        assert!(matches!(error, InvalidManifest::Outside { .. }), "{error}");
    }
}

#[test]
fn the_same_bytes_may_be_shared_but_not_half_of_them() {
    let mut shared = manifest();
    shared.models[0].tensors[1].place = shared.models[0].tensors[0].place;
    shared.totals = shared.count();
    assert_eq!(shared.validate(), Ok(()));
    assert_eq!(shared.totals.raw, Bytes(512));
    let error = invalid(|m| {
        m.ranges[1].len = Bytes(1024);
        let wide = &mut m.models[0].tensors[1];
        wide.dims = vec![128];
        wide.place = Some(Place { range: 1, offset: Bytes(0), len: Bytes(512) });
        m.models[0].tensors[2].place = Some(Place { range: 1, offset: Bytes(256), len: Bytes(256) });
    });
    assert!(matches!(error, InvalidManifest::Overlap { range: 1, .. }), "{error}");
}

#[test]
fn a_length_that_does_not_follow_from_type_and_dimensions_is_refused() {
    let lengths = [vec![33, 2], vec![u64::MAX, 2]];
    for dims in lengths {
        let error = invalid(|m| m.models[0].tensors[0].dims = dims);
        assert!(matches!(error, InvalidManifest::Length { .. }), "{error}");
    }
    let error = invalid(|m| m.models[0].tensors[0].kind = TensorType::Q8_0);
    assert_eq!(error, InvalidManifest::Length { name: "a".into(), len: 256, expected: Some(68) });
}

#[test]
fn names_ids_and_totals_must_fit() {
    assert!(matches!(invalid(|m| m.models[0].tensors.swap(0, 1)), InvalidManifest::Order { list: "tensors", .. }));
    assert!(matches!(invalid(|m| m.models[0].tensors[1].name = "a".into()), InvalidManifest::Order { .. }));
    assert!(matches!(invalid(|m| m.ranges[1].id = 5), InvalidManifest::Range { id: 5, position: 1, .. }));
    assert!(matches!(invalid(|m| m.ranges[1].len = Bytes::mib(3)), InvalidManifest::Range { .. }));
    assert_eq!(invalid(|m| m.totals.tensors = 2), InvalidManifest::Totals);
    assert_eq!(
        invalid(|m| m.ranges.truncate(1)),
        InvalidManifest::Outside { name: "c".into(), range: 1, offset: 0, len: 256, range_len: None }
    );
    assert!(matches!(invalid(|m| m.broker.path = "relative".into()), InvalidManifest::BrokerPath { .. }));
    assert!(matches!(invalid(|m| m.broker.path = format!("/{}", "x".repeat(107))), InvalidManifest::BrokerPath { .. }));
    assert!(matches!(invalid(|m| m.broker.proto_min = 2), InvalidManifest::Protocols { min: 2, max: 1 }));
    assert!(matches!(invalid(|m| m.state = State::Draining), InvalidManifest::Draining));
}

#[test]
fn an_artifact_takes_its_tensors_place_and_states_the_need() {
    let replace = |m: &mut WeightsManifest| {
        let place = m.models[0].tensors[0].place.take().unwrap();
        m.artifacts.push(Artifact {
            layout: "soa-v1".into(),
            model: "base".into(),
            tensor: "a".into(),
            replaces_raw: true,
            leaf_root: Digest::of(b"x"),
            place,
        });
        m.needs.push(Need { capability: "soa-v1".into(), avoid_with: "--no-repack".into() });
        m.totals = m.count();
    };
    let mut whole = manifest();
    replace(&mut whole);
    assert_eq!(whole.validate(), Ok(()));
    assert!(matches!(invalid(|m| m.models[0].tensors[0].place = None), InvalidManifest::Homeless { .. }));
    let unneeded = invalid(|m| {
        replace(m);
        m.needs.clear();
    });
    assert_eq!(unneeded, InvalidManifest::Unneeded { layout: "soa-v1".into() });
    let sourceless = invalid(|m| {
        replace(m);
        m.artifacts[0].replaces_raw = false;
        m.artifacts[0].tensor = "z".into();
        m.models[0].tensors[0].place = Some(m.artifacts[0].place);
    });
    assert_eq!(sourceless, InvalidManifest::Source { layout: "soa-v1".into(), tensor: "z".into() });
}

#[test]
fn a_published_manifest_is_whole_private_and_goes_away() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("weights.json");
    let published = publish(&path, &manifest(), 0o600).unwrap();
    assert_eq!(WeightsManifest::read(&path, &Trust::own_and([])).unwrap(), manifest());
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    published.unpublish().unwrap();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn publishing_never_replaces_and_dropping_never_removes_anothers_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("weights.json");
    let first = publish(&path, &manifest(), 0o600).unwrap();
    assert!(publish(&path, &manifest(), 0o600).unwrap_err().to_string().contains("already exists"));
    fs::remove_file(&path).unwrap();
    fs::write(&path, "another's").unwrap();
    drop(first);
    assert_eq!(fs::read(&path).unwrap(), b"another's");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary file is left");
}
