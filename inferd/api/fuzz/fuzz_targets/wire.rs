//! Any bytes on a connection: request heads, lengths, chunks.
#![no_main]

#[path = "../checks.rs"]
mod checks;
#[path = "../../tests/api/client.rs"]
#[allow(dead_code, reason = "tests use more of it")]
mod client;
#[path = "../../../engine/tests/support/mod.rs"]
mod support;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|seed: &[u8]| checks::wire(seed));
