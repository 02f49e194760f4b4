//! The content identity: equal for equal tensors wherever they lie, different when anything of them differs.

mod support;

use ds4_gguf::{Model, writer::Writer};
use ds4_resident::{ContentIdentity, ContentRoot, PlanOptions, Reading, Role, identify};
use ds4_units::{Bytes, TensorType};
use proptest::prelude::*;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use support::{bytes, load_all, model, plan_of, small_ranges, writer};

fn identity_with(model: &Model, threads: usize) -> ContentIdentity {
    let cancel = AtomicBool::new(false);
    identify(model, &Reading { threads, progress: &(), cancel: &cancel }).unwrap()
}

fn root_of(path: &Path) -> ContentRoot {
    identity_with(&Model::open(path).unwrap(), 3).root
}

#[test]
fn the_identity_does_not_depend_on_placement_shards_threads_or_order() {
    let folder = tempfile::tempdir().unwrap();
    let model = model(folder.path());
    let expected = identity_with(&model, 1);
    assert_eq!(identity_with(&model, 7), expected);
    for options in [PlanOptions::default(), small_ranges()] {
        let resident = load_all(&model, &plan_of(&model, &options), "identity").unwrap();
        assert_eq!(resident.identity(Role::Base), Some(&expected));
    }
    let shards = writer().alignment(4096).write_shards(folder.path(), "split", 4).unwrap();
    assert_eq!(root_of(&shards[0]), expected.root);
    let path = folder.path().join("reordered.gguf");
    Writer::new("example")
        .tensor("output", TensorType::F16, &[1 << 10, 1500], bytes(3_072_000, 6))
        .tensor("blk.1.one_leaf", TensorType::F32, &[1 << 19], bytes(2 << 20, 4))
        .tensor("blk.0.bias", TensorType::F32, &[3], bytes(12, 3))
        .tensor("blk.1.quants", TensorType::Q8_0, &[320, 64], bytes(34 * 640, 5))
        .tensor("blk.0.experts", TensorType::I8, &[1 << 20, 5], bytes(5 << 20, 2))
        .tensor("blk.0.norm", TensorType::F32, &[100], bytes(400, 1))
        .write(&path)
        .unwrap();
    assert_eq!(root_of(&path), expected.root);
}

/// The value is part of what manifests and KV records hold: it may never change.
#[test]
fn the_identity_of_a_known_model_is_the_known_value() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("known.gguf");
    let counting: Vec<u8> = (0..(2 << 20) + 4).map(|i| i as u8).collect();
    Writer::new("example")
        .tensor("b", TensorType::I8, &[counting.len() as u64], counting)
        .tensor("a", TensorType::F32, &[1, 2], vec![0, 0, 128, 63, 0, 0, 0, 64])
        .write(&path)
        .unwrap();
    assert_eq!(root_of(&path).to_string(), KNOWN);
}

/// Computed from the definition by a separate program.
const KNOWN: &str = "c1065f4800af64423526f5ed2af86a01a586ee22cf4b94e05e69b15bb5b4086f";

#[test]
fn name_type_and_dimensions_are_part_of_the_identity() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    let root = |name: &str, kind, dims: &[u64]| {
        Writer::new("example").tensor(name, kind, dims, bytes(400, 1)).write(&path).unwrap();
        root_of(&path)
    };
    let roots = [
        root("a", TensorType::F32, &[100]),
        root("b", TensorType::F32, &[100]),
        root("a", TensorType::I32, &[100]),
        root("a", TensorType::F32, &[10, 10]),
        root("a", TensorType::F32, &[100, 1]),
    ];
    let distinct: std::collections::BTreeSet<_> = roots.iter().collect();
    assert_eq!(distinct.len(), roots.len());
}

#[test]
fn metadata_is_not_part_of_the_content() {
    let folder = tempfile::tempdir().unwrap();
    let expected = identity_with(&model(folder.path()), 2).root;
    let path = folder.path().join("renamed.gguf");
    writer().value("general.name", "another name".into()).write(&path).unwrap();
    assert_eq!(root_of(&path), expected);
}

/// Case 1 of the owner's cases: a checkpoint of the same size, names and header, in which one byte differs. A digest
/// that samples a page here and there serves stale weights.
#[test]
fn case_1_a_checkpoint_swap_of_the_same_size_changes_the_root_wherever_the_byte_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("yesterday.gguf");
    let tensor = 40u64 << 20;
    Writer::new("example").tensor("w", TensorType::I8, &[tensor], bytes(tensor as usize, 9)).write(&path).unwrap();
    let model = Model::open(&path).unwrap();
    let start = model.tensor("w").unwrap().offset.0;
    let yesterday = identity_with(&model, 2).root;
    let content = std::fs::read(&path).unwrap();
    // The middle of a page that a stride of 16 MiB would miss, one that it would catch, the first and the last byte.
    for at in [start + (21 << 20) + 77, 16 << 20, start, start + tensor - 1] {
        let mut swapped = content.clone();
        swapped[at as usize] ^= 1;
        let today = folder.path().join("today.gguf");
        std::fs::write(&today, swapped).unwrap();
        assert_ne!(root_of(&today), yesterday, "byte {at}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn one_bit_anywhere_in_any_tensor_changes_the_root(place in any::<prop::sample::Index>(), bit in 0u8..8) {
        let folder = tempfile::tempdir().unwrap();
        let model = model(folder.path());
        let before = identity_with(&model, 2).root;
        let sizes: u64 = model.tensors().iter().map(|tensor| tensor.len.0).sum();
        let mut at = place.index(sizes as usize) as u64;
        let tensor = model.tensors().iter().find(|tensor| {
            let here = at < tensor.len.0;
            at = if here { at } else { at - tensor.len.0 };
            here
        });
        let mut content = std::fs::read(model.shards()[0].path()).unwrap();
        content[(tensor.unwrap().offset.0 + at) as usize] ^= 1 << bit;
        let path = folder.path().join("flipped.gguf");
        std::fs::write(&path, content).unwrap();
        prop_assert_ne!(root_of(&path), before);
    }
}

#[test]
fn a_root_is_written_and_read_as_hexadecimal() {
    let root = ContentRoot([0xab; 32]);
    let text = serde_json::to_string(&root).unwrap();
    assert_eq!(text, format!("\"{}\"", "ab".repeat(32)));
    assert_eq!(serde_json::from_str::<ContentRoot>(&text).unwrap(), root);
    assert_eq!(Bytes(root.0.len() as u64), Bytes(32));
}
