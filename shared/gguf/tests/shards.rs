//! Models in several files: the shards that belong together, and every way in which they do not.

mod support;

use ds4_gguf::{GgufError, Model, SHARD_ALIGN, SplitError, Value, writer::Writer};
use ds4_units::{Bytes, TensorType};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use support::{model, open};

/// Three shards of one tensor each, as files; `change` may spoil the writers first.
fn write(folder: &Path, change: impl FnOnce(&mut Vec<Writer>)) -> Vec<PathBuf> {
    let mut shards = model().shards(3);
    change(&mut shards);
    let paths: Vec<PathBuf> = (1..=3).map(|k| folder.join(format!("m-{k:05}-of-00003.gguf"))).collect();
    shards.iter().zip(&paths).for_each(|(shard, path)| shard.write(path).unwrap());
    paths
}

/// Replaces shard `index` by itself with one more value.
fn with(shards: &mut [Writer], index: usize, key: &str, value: Value) {
    shards[index] = shards[index].clone().value(key, value);
}

/// The error that opening gives after `change`.
fn error_after(change: impl FnOnce(&mut Vec<Writer>)) -> (String, GgufError) {
    let folder = tempfile::tempdir().unwrap();
    let paths = write(folder.path(), change);
    let error = open(&paths[0]).unwrap_err();
    let text = error.to_string().replace(&format!("{}/", folder.path().display()), "");
    (text, error)
}

#[test]
fn shards_are_one_model_with_one_table() {
    let folder = tempfile::tempdir().unwrap();
    let paths = write(folder.path(), |_| ());
    let model = Model::open(&paths[0]).unwrap();
    assert_eq!(model.shards().len(), 3);
    let shards: Vec<usize> = model.tensors().iter().map(|tensor| tensor.shard).collect();
    assert_eq!(shards, [0, 1, 2]);
    for (index, tensor) in model.tensors().iter().enumerate() {
        assert_eq!(model.read_tensor(tensor).unwrap(), [index as u8; 64]);
    }
    let last = &model.shards()[2];
    assert_eq!(last.base().0, 2 * SHARD_ALIGN.0);
    assert_eq!(model.logical_size(), Bytes(last.base().0 + last.size().0));
}

#[test]
fn the_first_shard_may_have_no_tensors_and_siblings_may_be_links() {
    let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut shards = model().shards(2);
    let head = Writer::new("example")
        .value("split.no", Value::U16(0))
        .value("split.count", Value::U16(2))
        .value("split.tensors.count", Value::I32(1));
    shards[0] = head;
    let paths: Vec<_> = (1..=2).map(|k| folder.path().join(format!("m-{k:05}-of-00002.gguf"))).collect();
    shards[0].write(&paths[0]).unwrap();
    shards[1].write(&elsewhere.path().join("blob")).unwrap();
    symlink(elsewhere.path().join("blob"), &paths[1]).unwrap();
    assert_eq!(open(&paths[0]).unwrap().tensors().len(), 1);
}

#[test]
fn opening_another_shard_names_the_first_one() {
    let folder = tempfile::tempdir().unwrap();
    let paths = write(folder.path(), |_| ());
    let error = open(&paths[1]).unwrap_err().to_string();
    let (second, first) = (paths[1].display(), paths[0].display());
    assert_eq!(error, format!("{second}: this is shard 2; open the first one, {first}"));
}

#[test]
fn a_missing_shard_is_named_with_the_path_that_was_tried() {
    let folder = tempfile::tempdir().unwrap();
    let paths = write(folder.path(), |_| ());
    std::fs::remove_file(&paths[2]).unwrap();
    let error = open(&paths[0]).unwrap_err();
    assert!(matches!(error, GgufError::Split(SplitError::Missing { number: 3, count: 3, .. })));
    let expected = format!("shard 3 of 3 is missing: {}: No such file or directory (os error 2)", paths[2].display());
    assert_eq!(error.to_string(), expected);
    symlink(folder.path().join("gone"), &paths[2]).unwrap();
    let error = open(&paths[0]).unwrap_err().to_string();
    assert!(error.contains(&format!("{} (a link to {}/gone)", paths[2].display(), folder.path().display())), "{error}");
}

#[test]
fn a_name_that_does_not_match_the_metadata_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let paths = write(folder.path(), |_| ());
    let plain = folder.path().join("model.gguf");
    std::fs::rename(&paths[0], &plain).unwrap();
    let error = open(&plain).unwrap_err().to_string();
    assert!(error.ends_with("one of 3 shards; its name must end in -00001-of-00003.gguf"), "{error}");
    let other = folder.path().join("m-00001-of-00004.gguf");
    std::fs::rename(&plain, &other).unwrap();
    let error = open(&other).unwrap_err().to_string();
    assert!(error.ends_with("the name says 4 shards, the metadata key \"split.count\" says 3"), "{error}");
    model().write(&other).unwrap();
    let error = open(&other).unwrap_err().to_string();
    assert!(error.ends_with("the name says 4 shards, the metadata key \"split.count\" says 1"), "{error}");
}

#[test]
fn shards_in_the_wrong_order_are_refused_with_both_numbers() {
    let (text, _) = error_after(|shards| shards.swap(1, 2));
    assert_eq!(text, "m-00002-of-00003.gguf: named shard 2, but its metadata key \"split.no\" is 2, not 1");
    let (text, _) = error_after(|shards| {
        with(shards, 0, "split.no", Value::U16(1));
    });
    assert_eq!(text, "m-00001-of-00003.gguf: named shard 1, but its metadata key \"split.no\" is 1, not 0");
    let (text, _) = error_after(|shards| shards[1] = model());
    assert!(text.starts_with("m-00002-of-00003.gguf: the metadata key \"split.count\" is missing"), "{text}");
}

#[test]
fn shards_of_different_sets_are_refused_with_what_differs() {
    let (text, _) = error_after(|shards| with(shards, 2, "split.count", Value::U16(4)));
    let expected = "m-00003-of-00003.gguf: the metadata key \"split.count\" is 4, but 3 in m-00001-of-00003.gguf: \
                    shards of different models?";
    assert_eq!(text, expected);
    let (text, _) = error_after(|shards| with(shards, 1, "general.architecture", "other".into()));
    assert!(text.contains("\"general.architecture\" is \"other\", but \"example\" in m-00001"), "{text}");
    let (text, _) = error_after(|shards| {
        with(shards, 0, "general.file_type", Value::U32(7));
        with(shards, 1, "general.file_type", Value::U32(8));
    });
    assert!(text.contains("\"general.file_type\" is 8, but 7 in"), "{text}");
    let (text, _) = error_after(|shards| with(shards, 2, "general.quantization_version", Value::U32(2)));
    assert!(text.contains("\"general.quantization_version\" is 2, but missing in"), "{text}");
}

#[test]
fn a_tensor_in_two_shards_and_a_wrong_total_are_refused() {
    let (text, _) = error_after(|shards| {
        shards[2] = shards[2].clone().tensor("blk.0.weight", TensorType::F32, &[1], vec![0; 4]);
    });
    assert_eq!(
        text,
        "tensor \"blk.0.weight\" is both in m-00001-of-00003.gguf and in m-00003-of-00003.gguf: shards of different \
         models?"
    );
    let (text, _) = error_after(|shards| with(shards, 0, "split.tensors.count", Value::I32(4)));
    assert_eq!(
        text,
        "m-00001-of-00003.gguf: the shards have 3 tensors in all, its metadata key \"split.tensors.count\" says 4"
    );
}

#[test]
fn a_truncated_shard_is_named_with_expected_and_present_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let paths = write(folder.path(), |_| ());
    let bytes = std::fs::read(&paths[1]).unwrap();
    std::fs::write(&paths[1], &bytes[..bytes.len() - 1]).unwrap();
    let error = open(&paths[0]).unwrap_err().to_string();
    let (path, end) = (paths[1].display(), bytes.len());
    let expected = format!(
        "{path}: tensor \"blk.1.weight\" ends at byte {end}, but the file has {} bytes: incomplete download?",
        end - 1
    );
    assert_eq!(error, expected);
}

#[test]
fn absurd_shard_counts_and_types_are_refused_before_looking_for_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m-00001-of-60000.gguf");
    model().value("split.count", Value::U16(60_000)).write(&path).unwrap();
    let error = open(&path).unwrap_err().to_string();
    assert!(error.ends_with("says that it is one of 60000 shards; the limit is 1024"), "{error}");
    model().value("split.count", "three".into()).write(&path).unwrap();
    let error = open(&path).unwrap_err().to_string();
    assert!(error.ends_with("metadata key \"split.count\" is string; it must be an integer"), "{error}");
}
