//! The seeds of the fuzz targets, replayed.

#[path = "../../fuzz/checks.rs"]
mod checks;

use std::path::Path;

fn each_seed(of: &str, check: impl Fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(of);
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        println!("{}", path.display());
        check(&std::fs::read(path).unwrap());
        seen += 1;
    }
    assert!(seen >= 20, "{seen} seeds");
}

#[test]
fn any_bytes_as_a_body_get_an_answer_or_an_error_that_says_why() {
    each_seed("body", checks::body);
}

#[test]
fn any_bytes_on_a_connection_get_http_or_silence_however_they_are_cut() {
    each_seed("wire", checks::wire);
}
