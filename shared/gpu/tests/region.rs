//! Memory that outlives the process that changes it.

use ds4_gpu::{FrozenRegion, HostRegion, MemoryPiece, RangeError, SharedWords};
use ds4_units::Bytes;
use std::sync::atomic::Ordering::SeqCst;

const MIB: usize = 1 << 20;

#[test]
fn memory_grows_in_place_as_a_vector_does_and_new_bytes_are_zero() {
    let mut region = HostRegion::new("r");
    assert!(region.bytes().is_empty());
    for size in [1, 3 * MIB, 3 * MIB + 1, 200 * MIB] {
        let had = region.bytes().len();
        region.ensure(size).unwrap();
        assert!(region.bytes().len() >= size);
        assert!(region.bytes()[had..].iter().step_by(4096).all(|&byte| byte == 0));
        region.bytes_mut()[size - 1] = size as u8 | 1;
    }
    for size in [1, 3 * MIB, 3 * MIB + 1, 200 * MIB] {
        assert_eq!(region.bytes()[size - 1], size as u8 | 1);
    }
    let (changes, len) = (region.changes(), region.bytes().len());
    region.ensure(len).unwrap();
    assert_eq!(region.changes(), changes);
    region.shrink(3 * MIB + 1);
    assert!(region.bytes().len() < len && region.changes() != changes);
    assert_eq!(region.bytes()[3 * MIB], (3 * MIB + 1) as u8 | 1);
    let kept = region.bytes().len();
    region.ensure(kept + 1).unwrap();
    assert_eq!(region.bytes()[kept], 0, "what was given back does not come again");
}

#[test]
fn what_is_kept_is_taken_over_only_when_its_holder_is_gone() {
    let mut region = HostRegion::new("r");
    region.ensure(MIB + 1).unwrap();
    region.ensure(5 * MIB).unwrap();
    region.bytes_mut()[5 * MIB - 1] = 9;
    let kept = region.export().unwrap();
    let copies = || kept.iter().map(|piece| MemoryPiece { fd: piece.fd.try_clone().unwrap(), len: piece.len });
    assert!(kept.len() > 1);
    let refused = HostRegion::adopt("again", copies().collect()).unwrap_err();
    assert!(matches!(refused, RangeError::InUse), "{refused}");
    drop(region);
    let mut longer: Vec<MemoryPiece> = copies().collect();
    longer[0].len = Bytes(longer[0].len.0 + 1);
    assert!(matches!(HostRegion::adopt("again", longer).unwrap_err(), RangeError::Length { .. }));
    let mut again = HostRegion::adopt("again", copies().collect()).unwrap();
    assert_eq!(again.bytes()[5 * MIB - 1], 9);
    again.bytes_mut()[0] = 1;
    again.ensure(9 * MIB).unwrap();
    assert_eq!((again.bytes()[0], again.bytes()[5 * MIB - 1]), (1, 9));
}

#[test]
fn frozen_memory_is_everybody_s_and_changed_by_nobody() {
    let mut region = HostRegion::new("r");
    region.ensure(1).unwrap();
    region.bytes_mut()[0] = 4;
    let frozen = region.freeze().unwrap();
    let pieces = || frozen.export().unwrap();
    let others = [FrozenRegion::adopt("a", pieces()).unwrap(), FrozenRegion::adopt("b", pieces()).unwrap()];
    assert!(others.iter().all(|other| other.bytes()[0] == 4));
    assert!(matches!(HostRegion::adopt("c", pieces()).unwrap_err(), RangeError::InUse));
    let kept = pieces();
    drop((frozen, others));
    assert_eq!(HostRegion::adopt("c", kept).unwrap().bytes()[0], 4);
}

#[test]
fn numbers_outlive_their_writer_and_have_one_at_a_time() {
    let words = SharedWords::create("w", 1024).unwrap();
    words.words()[3].store(7 << 32 | 5, SeqCst);
    let kept = words.export().unwrap();
    assert!(matches!(SharedWords::adopt(kept.try_clone().unwrap()).unwrap_err(), RangeError::InUse));
    drop(words);
    let again = SharedWords::adopt(kept).unwrap();
    assert_eq!(again.words().len(), 1024);
    assert_eq!((again.halves()[6].load(SeqCst), again.halves()[7].load(SeqCst)), (5, 7));
    assert!(matches!(SharedWords::create("none", 0).unwrap_err(), RangeError::Empty { .. }));
}

#[test]
fn files_and_memory_whose_size_could_change_are_refused() {
    let file = tempfile::tempfile().unwrap();
    assert!(matches!(SharedWords::adopt(file.into()).unwrap_err(), RangeError::NotMemory { .. }));
    let flags = nix::sys::memfd::MFdFlags::MFD_ALLOW_SEALING;
    let open = nix::sys::memfd::memfd_create("open", flags).unwrap();
    assert!(matches!(SharedWords::adopt(open).unwrap_err(), RangeError::NotSealed { .. }));
}
