//! Whatever a model writes is text or sound calls, in every mode of reading.
#![no_main]

#[path = "../../tests/hostile/check.rs"]
mod check;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| check::check(bytes));
