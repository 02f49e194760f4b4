//! Any bytes are a header or a typed error, and what an accepted header promises holds.
#![no_main]

use ds4_gguf::{Header, limits::HEADER_MAX};
use ds4_units::Bytes;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(header) = Header::read(bytes, Bytes(bytes.len() as u64), HEADER_MAX) else { return };
    assert!(header.len.index() <= bytes.len());
    for tensor in &header.tensors {
        assert!(tensor.end().index() <= bytes.len());
        assert!(tensor.offset >= header.data_start);
        assert_eq!(tensor.kind.byte_len(tensor.elements()), Some(tensor.len));
    }
});
