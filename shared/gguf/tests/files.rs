//! Models on disk: opening, reading, noticing changes.

mod support;

use ds4_gguf::writer::Writer;
use ds4_gguf::{GgufError, Model, Value};
use ds4_units::{Bytes, FileOffset, TensorType};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::process::Command;
use support::{model, open, open_bytes};

#[test]
fn a_model_is_found_by_name_and_its_bytes_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let (path, model) = open_bytes(folder.path(), &model().to_bytes());
    let model = model.unwrap();
    assert_eq!(model.architecture(), "example");
    assert_eq!(model.tensors().len(), 3);
    let tensor = model.tensor("blk.2.weight").unwrap();
    assert_eq!((tensor.elements(), tensor.dims.as_slice(), tensor.shard), (16, &[4, 4][..], 0));
    assert_eq!(model.read_tensor(tensor).unwrap(), [2; 64]);
    assert!(model.tensor("blk.3.weight").is_none());
    assert_eq!(model.shards()[0].path(), path);
    assert_eq!(model.logical_size(), model.shards()[0].size());
    model.check_unchanged().unwrap();
}

#[test]
fn an_absent_file_and_one_that_is_no_file_are_refused_with_the_path() {
    let folder = tempfile::tempdir().unwrap();
    let absent = folder.path().join("absent.gguf");
    let error = open(&absent).unwrap_err().to_string();
    assert_eq!(error, format!("{}: No such file or directory (os error 2)", absent.display()));
    let error = open(folder.path()).unwrap_err().to_string();
    assert_eq!(error, format!("{}: not a regular file", folder.path().display()));
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    assert!(matches!(open(&pipe), Err(GgufError::NotAFile { .. })));
    assert!(matches!(open(Path::new("/dev/zero")), Err(GgufError::NotAFile { .. })));
}

#[test]
fn an_error_names_the_path_and_what_it_links_to() {
    let folder = tempfile::tempdir().unwrap();
    let (blob, link) = (folder.path().join("blob"), folder.path().join("link.gguf"));
    std::fs::write(&blob, b"GGML").unwrap();
    symlink(&blob, &link).unwrap();
    let error = open(&link).unwrap_err().to_string();
    assert!(error.starts_with(&format!("{} (a link to {}): not a GGUF file", link.display(), blob.display())));
}

#[test]
fn a_file_without_an_architecture_is_no_model() {
    let folder = tempfile::tempdir().unwrap();
    let (path, model) = open_bytes(folder.path(), &support::Forged::new(0, 0).0);
    let expected =
        format!("{}: the metadata key \"general.architecture\" is missing, so this is not a model", path.display());
    assert_eq!(model.unwrap_err().to_string(), expected);
    let number = support::Forged::new(0, 1).string("general.architecture").u32(4).u32(1);
    let (_, model) = open_bytes(folder.path(), &number.0);
    assert!(matches!(model, Err(GgufError::Value { .. })));
}

#[test]
fn any_change_of_an_open_file_is_noticed_with_old_and_new() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = model().to_bytes();
    let size = bytes.len();
    let reopen = || open_bytes(folder.path(), &bytes);

    let (path, model) = reopen();
    OpenOptions::new().append(true).open(&path).unwrap().set_len(size as u64 - 1).unwrap();
    let error = model.unwrap().check_unchanged().unwrap_err().to_string();
    assert!(error.contains("model file changed while loading: was "), "{error}");
    assert!(error.contains(&format!("was {size} bytes, mtime ")), "{error}");
    assert!(error.contains(&format!("is {} bytes, mtime ", size - 1)), "{error}");

    let (path, model) = reopen();
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&[9], size as u64 - 1).unwrap();
    file.set_modified(std::time::SystemTime::now() + std::time::Duration::from_secs(5)).unwrap();
    assert!(matches!(model.unwrap().check_unchanged(), Err(GgufError::Changed { .. })));

    let (path, model) = reopen();
    std::fs::write(folder.path().join("new"), &bytes).unwrap();
    std::fs::rename(folder.path().join("new"), &path).unwrap();
    let model = model.unwrap();
    assert!(matches!(model.check_unchanged(), Err(GgufError::Changed { .. })));
    assert_eq!(model.read_tensor(model.tensor("blk.1.weight").unwrap()).unwrap(), [1; 64]);
    std::fs::remove_file(&path).unwrap();
    assert!(model.check_unchanged().is_err());
}

#[test]
fn a_link_that_leads_to_another_file_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("link.gguf");
    for name in ["yesterday", "today"] {
        model().write(&folder.path().join(name)).unwrap();
    }
    symlink("yesterday", &link).unwrap();
    let model = open(&link).unwrap();
    model.check_unchanged().unwrap();
    std::fs::remove_file(&link).unwrap();
    symlink("today", &link).unwrap();
    assert!(matches!(model.check_unchanged(), Err(GgufError::Changed { .. })));
}

#[test]
fn a_read_past_the_end_says_where_the_file_ends() {
    let folder = tempfile::tempdir().unwrap();
    let (path, model) = open_bytes(folder.path(), &model().to_bytes());
    let model = model.unwrap();
    let size = model.shards()[0].size().0;
    let error = model.read_at(0, FileOffset(size - 3), &mut [0; 10]).unwrap_err().to_string();
    let expected = format!("{}: ends at byte {size}, 7 bytes before the end", path.display());
    assert!(error.starts_with(&expected), "{error}");
    assert!(model.read_at(0, FileOffset(u64::MAX), &mut [0; 1]).is_err());
}

#[test]
fn a_huge_sparse_file_is_opened_without_reading_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sparse.gguf");
    let terabyte = 1u64 << 40;
    let dims = [terabyte / 4];
    let header =
        support::Forged::new(1, 1).string("general.architecture").u32(8).string("example").tensor("large", &dims, 0, 0);
    std::fs::write(&path, header.data(0).0).unwrap();
    File::options().write(true).open(&path).unwrap().set_len(terabyte + 4096).unwrap();
    let model = Model::open(&path).unwrap();
    assert_eq!(model.tensors()[0].len, Bytes(terabyte));
}

#[test]
fn a_copy_of_a_model_has_all_that_it_has_however_it_is_aligned() {
    let folder = tempfile::tempdir().unwrap();
    let [path, copied] = ["model.gguf", "copy.gguf"].map(|name| folder.path().join(name));
    let model = Writer::new("example").alignment(4096).value("example.block_count", Value::U32(2));
    let model = model.tensor("a", TensorType::I8, &[5], vec![1; 5]).tensor("b", TensorType::I8, &[7], vec![2; 7]);
    model.write(&path).unwrap();
    Writer::copy_of(&Model::open(&path).unwrap()).unwrap().write(&copied).unwrap();
    let copy = Model::open(&copied).unwrap();
    assert_eq!((copy.architecture(), copy.metadata().u64("example.block_count")), ("example", Ok(Some(2))));
    for (name, bytes) in [("a", vec![1; 5]), ("b", vec![2; 7])] {
        assert_eq!(copy.read_tensor(copy.tensor(name).unwrap()).unwrap(), bytes, "{name}");
    }
}
