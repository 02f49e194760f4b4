//! Answers of any bytes are read to their end, whatever they hold.

mod check;

use check::check;
use proptest::prelude::*;
use std::path::Path;

#[test]
fn the_seeds_of_the_fuzz_target_are_total() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/answer");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let seed = std::fs::read(entry.unwrap().path()).unwrap();
        // Each text in every mode.
        for how in 0..64 {
            check(&[&[how], &seed[1..]].concat());
        }
        seen += 1;
    }
    assert!(seen >= 12, "{seen} seeds");
}

proptest! {
    #[test]
    fn any_bytes_are_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        check(&bytes);
    }
}
