//! Any bytes give a value or an error: random ones, mutated files, and the seeds of the fuzz target.

mod support;

use ds4_gguf::{Array, Value};
use proptest::prelude::*;
use std::path::Path;
use support::{Forged, model, open_bytes, read};

/// What the fuzz target checks too: an accepted header keeps its promises.
fn check(bytes: &[u8]) {
    let Ok(header) = read(bytes) else { return };
    assert!(header.len.index() <= bytes.len());
    for tensor in &header.tensors {
        assert!(tensor.end().index() <= bytes.len());
        assert!(tensor.offset >= header.data_start);
        assert_eq!(tensor.kind.byte_len(tensor.elements()), Some(tensor.len));
    }
}

fn rich() -> Vec<u8> {
    model()
        .value("example.tokens", Value::Array(Array::String(vec!["a".into(), "bc".into()])))
        .value("example.ratios", Value::Array(Array::I32(vec![0, 4])))
        .value("example.flag", Value::Bool(true))
        .to_bytes()
}

#[test]
fn every_single_byte_may_have_every_value() {
    let bytes = rich();
    let header_len = read(&bytes).unwrap().len.index();
    for at in 0..header_len {
        for value in [0, 1, 2, 3, 9, 0x7f, 0x80, 0xfe, 0xff, bytes[at] ^ 1, bytes[at].wrapping_add(1)] {
            let mut mutated = bytes.clone();
            mutated[at] = value;
            check(&mutated);
        }
    }
}

#[test]
fn the_seeds_of_the_fuzz_target_are_total() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/header");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        check(&std::fs::read(entry.unwrap().path()).unwrap());
        seen += 1;
    }
    assert!(seen >= 20, "{seen} seeds");
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        check(&bytes);
        check(&Forged::new(2, 3).bytes(&bytes).0);
    }

    #[test]
    fn mutated_files_never_panic(
        cuts in prop::collection::vec((any::<prop::sample::Index>(), any::<u64>(), 1usize..9), 1..6),
        len in any::<prop::sample::Index>(),
    ) {
        let mut bytes = rich();
        for (at, value, count) in cuts {
            let at = at.index(bytes.len());
            let end = (at + count).min(bytes.len());
            bytes[at..end].copy_from_slice(&value.to_le_bytes()[..end - at]);
        }
        check(&bytes);
        check(&bytes[..len.index(bytes.len())]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn opening_mutated_files_never_panics(at in any::<prop::sample::Index>(), value in any::<u64>()) {
        let folder = tempfile::tempdir().unwrap();
        let mut bytes = rich();
        let at = at.index(bytes.len() - 8);
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        let (_, opened) = open_bytes(folder.path(), &bytes);
        if let Ok(model) = opened {
            for tensor in model.tensors() {
                model.read_tensor(tensor).unwrap();
            }
        }
    }
}
