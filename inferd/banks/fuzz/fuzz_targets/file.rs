//! Any bytes, with checksums made right, are a conversation or a typed fault.
#![no_main]

#[path = "../check.rs"]
mod check;
#[path = "../../tests/support/seal.rs"]
mod seal;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    check::check(bytes);
    let mut sealed = bytes.to_vec();
    seal::seal(&mut sealed);
    check::check(&sealed);
});
