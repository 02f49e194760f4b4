//! The life of a shareable range, step by step, and what each step refuses. Every backend has to pass this.

use ds4_gpu::{HostRange, RangeError, ReadMapping, SealedRange};
use ds4_units::Bytes;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

const LEN: Bytes = Bytes(3 * 4096 + 5);

fn filled(name: &str) -> HostRange {
    let range = HostRange::create(name, LEN).unwrap();
    range.write_at(0, b"first").unwrap();
    range.write_at(LEN.0 - 4, b"last").unwrap();
    range
}

/// How many descriptors of this process are of the memory called `name`.
fn open_descriptors(name: &str) -> usize {
    let wanted = format!("/memfd:{name} (deleted)");
    let links = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| entry.unwrap().path().read_link().ok());
    links.filter(|target| target.to_str() == Some(&wanted)).count()
}

/// Whether this process has the memory called `name` mapped.
fn is_mapped(name: &str) -> bool {
    std::fs::read_to_string("/proc/self/maps").unwrap().contains(&format!("/memfd:{name} (deleted)"))
}

#[test]
fn a_range_is_created_filled_sealed_exported_imported_and_mapped() {
    let sealed = filled("life").seal().unwrap();
    assert_eq!(sealed.len(), LEN);
    let fd = sealed.export().unwrap();
    drop(sealed);
    let mapping = SealedRange::import(fd, LEN).unwrap().map().unwrap();
    let bytes = mapping.as_ref();
    assert_eq!(bytes.len(), LEN.index());
    assert!(bytes.starts_with(b"first\0") && bytes.ends_with(b"\0last"));
}

#[test]
fn a_mapping_outlives_every_descriptor_and_nothing_outlives_the_mapping() {
    let sealed = filled("order").seal().unwrap();
    let fd = sealed.export().unwrap();
    assert_eq!(open_descriptors("order"), 2);
    let mapping = ReadMapping::map(fd, LEN).unwrap();
    drop(sealed);
    assert_eq!(open_descriptors("order"), 0);
    assert!(is_mapped("order"));
    assert!(mapping.as_ref().starts_with(b"first"));
    drop(mapping);
    assert!(!is_mapped("order"));
}

#[test]
fn an_unfinished_range_leaves_no_descriptor() {
    let range = filled("unfinished");
    assert_eq!(open_descriptors("unfinished"), 1);
    drop(range);
    assert_eq!(open_descriptors("unfinished"), 0);
}

#[test]
fn a_sealed_range_can_be_read_back_but_not_changed_by_anyone() {
    let sealed = filled("constant").seal().unwrap();
    let mut last = [0; 4];
    sealed.read_at(LEN.0 - 4, &mut last).unwrap();
    assert_eq!(&last, b"last");
    let foreign = File::from(sealed.export().unwrap());
    assert!(foreign.write_all_at(b"x", 0).is_err());
    assert!(foreign.set_len(LEN.0 - 1).is_err());
    assert!(foreign.set_len(LEN.0 + 1).is_err());
}

#[test]
fn a_write_past_the_end_is_refused_with_its_numbers() {
    let range = filled("end");
    let error = range.write_at(LEN.0 - 1, b"xy").unwrap_err();
    assert_eq!(error.to_string(), "range \"end\" has 12293 bytes; 2 bytes at 12292 do not fit");
    assert!(matches!(range.write_at(u64::MAX, b"xy"), Err(RangeError::PastEnd { .. })));
}

#[test]
fn a_range_without_bytes_is_refused() {
    assert!(matches!(HostRange::create("none", Bytes::ZERO), Err(RangeError::Empty { .. })));
}

#[test]
fn memory_that_could_still_change_is_not_mapped() {
    let writable = || {
        let memory = nix_memfd("unsealed");
        memory.set_len(LEN.0).unwrap();
        memory
    };
    let error = ReadMapping::map(OwnedFd::from(writable()), LEN).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("shrinking, growing, writing, changing its seals"), "{text}");

    use nix::fcntl::{FcntlArg, SealFlag, fcntl};
    let memory = writable();
    let all_but_write = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
    fcntl(&memory, FcntlArg::F_ADD_SEALS(all_but_write)).unwrap();
    let error = ReadMapping::map(OwnedFd::from(memory), LEN).unwrap_err();
    assert_eq!(error.to_string(), "the received range is not sealed against writing, so its bytes could still change");
}

#[test]
fn a_range_of_another_length_than_announced_is_refused() {
    let fd = filled("length").seal().unwrap().export().unwrap();
    let error = ReadMapping::map(fd, Bytes(LEN.0 + 1)).unwrap_err();
    assert_eq!(error.to_string(), "the received range has 12293 bytes; 12294 were announced");
    let fd = filled("length").seal().unwrap().export().unwrap();
    assert!(matches!(ReadMapping::map(fd, Bytes(LEN.0 - 1)), Err(RangeError::Length { .. })));
}

#[test]
fn a_plain_file_is_not_taken_for_memory() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(LEN.0).unwrap();
    // A file system in memory knows seals too; there the missing seals are what is refused.
    let error = ReadMapping::map(OwnedFd::from(file), LEN).unwrap_err();
    assert!(matches!(error, RangeError::NotMemory { .. } | RangeError::NotSealed { .. }), "{error}");
}

#[test]
fn a_name_the_kernel_refuses_is_an_error() {
    let error = HostRange::create(&"x".repeat(300), LEN).unwrap_err();
    assert!(matches!(error, RangeError::Create { .. }), "{error}");
}

fn nix_memfd(name: &str) -> File {
    use nix::sys::memfd::{MFdFlags, memfd_create};
    File::from(memfd_create(name, MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING).unwrap())
}
