//! One forged header for every check of the parser.

mod support;

use ds4_gguf::{Array, Header, HeaderError, TensorError, Value, limits};
use ds4_units::{Bytes, FileOffset, TensorType};
use support::{Forged, model, one_tensor, one_value, read};

const F32: u32 = TensorType::F32 as u32;
const Q8_0: u32 = TensorType::Q8_0 as u32;

#[test]
fn what_the_writer_writes_is_read_back() {
    let written = model()
        .alignment(128)
        .value("a.count", Value::I32(-5))
        .value("a.flag", Value::Bool(true))
        .value("a.name", "naïve ｜".into())
        .value("a.factor", Value::F64(0.1))
        .value("a.ratios", Value::Array(Array::U32(vec![0, 4, 128])))
        .value("a.flags", Value::Array(Array::Bool(vec![true, false])))
        .value("a.tokens", Value::Array(Array::String(vec!["<s>".into(), String::new()])))
        .value("a.empty", Value::Array(Array::F32(Vec::new())));
    let bytes = written.to_bytes();
    let header = read(&bytes).unwrap();
    assert_eq!(header.alignment, 128);
    assert_eq!(header.metadata.get("a.count"), Some(&Value::I32(-5)));
    assert_eq!(header.metadata.bool("a.flag"), Ok(Some(true)));
    assert_eq!(header.metadata.str("a.name"), Ok(Some("naïve ｜")));
    assert_eq!(header.metadata.f64("a.factor"), Ok(Some(0.1)));
    assert_eq!(header.metadata.u64s("a.ratios"), Ok(Some(vec![0, 4, 128])));
    assert_eq!(header.metadata.strings("a.tokens").unwrap().unwrap().len(), 2);
    assert_eq!(header.metadata.f64s("a.empty"), Ok(Some(vec![])));
    assert_eq!(header.tensors.len(), 3);
    let second = &header.tensors[1];
    assert_eq!((second.offset.0, second.len), (header.data_start.0 + 128, Bytes(64)));
    assert_eq!(&bytes[second.offset.index()..second.end().index()], &[1; 64]);
}

#[test]
fn every_scalar_type_is_read_back() {
    let values = [
        Value::U8(200),
        Value::I8(-100),
        Value::U16(60_000),
        Value::I16(-30_000),
        Value::U32(4_000_000_000),
        Value::I32(-2_000_000_000),
        Value::F32(1.5),
        Value::U64(u64::MAX),
        Value::I64(i64::MIN),
        Value::F64(-2.25),
    ];
    for value in values {
        let bytes = model().value("k", value.clone()).to_bytes();
        assert_eq!(read(&bytes).unwrap().metadata.get("k"), Some(&value));
    }
}

#[test]
fn another_kind_of_file_is_refused_with_its_first_four_bytes() {
    let error = read(b"PK\x03\x04 and more").unwrap_err().to_string();
    assert_eq!(error, "not a GGUF file: it starts with \"PK\\x03\\x04\" (bytes 50 4b 03 04), not with \"GGUF\"");
    assert_eq!(
        read(b"GG").unwrap_err().to_string(),
        "not a GGUF file: it starts with \"GG\" (bytes 47 47), not with \"GGUF\""
    );
    assert!(matches!(read(b""), Err(HeaderError::NotGguf { .. })));
}

#[test]
fn other_versions_and_byte_orders_are_refused_with_the_version() {
    let version = |bytes: [u8; 4]| Forged(b"GGUF".to_vec()).bytes(&bytes).u64(0).u64(0).error();
    assert!(version(2u32.to_le_bytes()).starts_with("GGUF version 2 (starts with \"GGUF\")"));
    assert!(version(1u32.to_le_bytes()).starts_with("GGUF version 1 "));
    assert!(version(4u32.to_le_bytes()).starts_with("GGUF version 4 "));
    assert!(version(0u32.to_le_bytes()).starts_with("GGUF version 0 "));
    assert!(version(3u32.to_be_bytes()).contains("big-endian GGUF file (starts with \"GGUF\", version 3 "));
}

#[test]
fn a_header_cut_anywhere_is_an_incomplete_download() {
    let bytes = model().value("k", Value::Array(Array::String(vec!["x".into()]))).to_bytes();
    let whole = read(&bytes).unwrap();
    for len in 4..whole.len.index() {
        let error = read(&bytes[..len]).unwrap_err();
        let cut = matches!(error, HeaderError::Truncated { .. } | HeaderError::ArrayPastEnd { .. });
        assert!(cut, "{len}: {error}");
    }
    let error = read(&bytes[..20]).unwrap_err().to_string();
    assert_eq!(error, "the file has 20 bytes, and the metadata count at byte 16 needs 8: incomplete download?");
}

#[test]
fn a_file_that_is_shorter_than_its_size_says_is_an_incomplete_download() {
    let bytes = model().to_bytes();
    let error = Header::read(&bytes[..40], Bytes(bytes.len() as u64), limits::HEADER_MAX).unwrap_err();
    assert!(matches!(error, HeaderError::Truncated { .. }), "{error}");
}

#[test]
fn a_header_over_its_budget_is_refused() {
    let bytes = model().to_bytes();
    let size = Bytes(bytes.len() as u64);
    let len = read(&bytes).unwrap().len;
    assert!(Header::read(&bytes[..], size, len).is_ok());
    let error = Header::read(&bytes[..], size, Bytes(len.0 - 1)).unwrap_err();
    assert!(matches!(error, HeaderError::TooLarge { len: 8, .. }), "{error}");
}

#[test]
fn absurd_counts_are_refused_before_anything_is_allocated() {
    assert_eq!(Forged::new(0, 1_000_001).error(), "the header says 1000001 metadata keys; the limit is 1000000");
    assert_eq!(Forged::new(u64::MAX, 0).error(), format!("the header says {} tensors; the limit is 1000000", u64::MAX));
    assert!(matches!(Forged::new(1_000_000, 0).read(), Err(HeaderError::Truncated { .. })));
}

#[test]
fn strings_have_limits_and_are_utf_8() {
    let error = Forged::new(0, 1).u64(65_536).error();
    assert_eq!(error, "a metadata key at byte 24 is 65536 bytes long; the limit is 64.00 KiB");
    let error = one_value(8, &((64u64 << 20) + 1).to_le_bytes()).error();
    assert_eq!(error, "a string value at byte 37 is 67108865 bytes long; the limit is 64.00 MiB");
    let error = one_value(8, &(1u64 << 20).to_le_bytes()).error();
    assert!(error.ends_with("needs 1048576: incomplete download?"), "{error}");
    let error = one_value(8, b"\x02\0\0\0\0\0\0\0\xff\xfe").error();
    assert_eq!(error, "a string value at byte 37 is not UTF-8");
    let error = Forged::new(0, 1).u64(1).bytes(b"\x80").error();
    assert_eq!(error, "a metadata key at byte 24 is not UTF-8");
}

#[test]
fn arrays_are_flat_and_fit_the_file() {
    let array = |element: u32, count: u64| [&element.to_le_bytes()[..], &count.to_le_bytes()[..]].concat();
    let error = one_value(9, &array(4, 1 << 40)).error();
    assert_eq!(error, "metadata key \"k\" has 1099511627776 elements of 4 bytes or more, and 0 bytes are left");
    assert!(matches!(one_value(9, &array(8, u64::MAX)).read(), Err(HeaderError::ArrayPastEnd { .. })));
    assert!(matches!(one_value(9, &array(12, u64::MAX / 4)).read(), Err(HeaderError::ArrayPastEnd { .. })));
    let error = one_value(9, &array(9, 1)).error();
    assert_eq!(error, "metadata key \"k\" is an array of arrays, which ds4 does not read");
    assert!(matches!(one_value(9, &array(77, 0)).read(), Err(HeaderError::UnknownValueType { id: 77, .. })));
    assert!(one_value(9, &array(8, 0)).read().is_ok());
}

#[test]
fn values_are_of_known_types_and_bools_are_0_or_1() {
    let error = one_value(13, &[0; 8]).error();
    assert_eq!(error, "metadata key \"k\" has the value type 13, which GGUF 3 does not have");
    let error = one_value(7, &[2]).error();
    assert_eq!(error, "metadata key \"k\" is a bool stored as 2; it must be 0 or 1");
    let array = [&7u32.to_le_bytes()[..], &2u64.to_le_bytes()[..], &[1, 9]].concat();
    assert!(matches!(one_value(9, &array).read(), Err(HeaderError::BadBool { byte: 9, .. })));
}

#[test]
fn a_key_is_there_once() {
    let pair = |forged: Forged| forged.string("general.name").u32(0).bytes(&[1]);
    let error = pair(pair(Forged::new(0, 2))).error();
    assert_eq!(error, "metadata key \"general.name\" is there twice");
}

#[test]
fn the_alignment_is_a_power_of_two_within_limits() {
    let alignment = |value: u32| Forged::new(0, 1).string("general.alignment").u32(4).u32(value);
    for good in [8, 32, 1 << 20] {
        assert_eq!(alignment(good).read().unwrap().alignment, u64::from(good));
    }
    for bad in [0, 1, 4, 33, 48, 1 << 21, u32::MAX] {
        let error = alignment(bad).error();
        assert!(error.starts_with(&format!("metadata key \"general.alignment\" is {bad}; it must be")), "{error}");
    }
    let error = Forged::new(0, 1).string("general.alignment").u32(10).u64(32).error();
    assert!(error.starts_with("metadata key \"general.alignment\" is u64; it must be a u32"), "{error}");
}

#[test]
fn dimensions_are_one_to_four_and_none_is_zero() {
    assert_eq!(one_tensor(&[], F32, 0).error(), "tensor \"w\" has 0 dimensions; 1 to 4 are possible");
    assert_eq!(one_tensor(&[1; 5], F32, 0).error(), "tensor \"w\" has 5 dimensions; 1 to 4 are possible");
    assert!(one_tensor(&[2, 1, 2, 1], F32, 0).read().is_ok());
    assert_eq!(one_tensor(&[4, 0], F32, 0).error(), "tensor \"w\" has the dimensions [4, 0]: none may be 0");
}

#[test]
fn an_unsupported_type_is_named_with_those_that_are_supported() {
    for id in [3, 4, 5, 31, 39, 99, u32::MAX] {
        let error = one_tensor(&[32], id, 0).error();
        assert!(error.starts_with(&format!("tensor \"w\" has the storage type {id}, which ds4 does not read")));
        assert!(error.contains("it reads F32, F16, Q4_0,") && error.ends_with("BF16"), "{error}");
    }
}

#[test]
fn rows_are_whole_blocks() {
    assert_eq!(
        one_tensor(&[48, 2], Q8_0, 0).error(),
        "tensor \"w\" has rows of 48 elements; Q8_0 needs a multiple of 32"
    );
    // As many elements as whole blocks, but not in each row.
    assert!(matches!(
        one_tensor(&[128, 2], TensorType::Q4_K as u32, 0).read(),
        Err(HeaderError::Tensor(TensorError::PartialBlock { row: 128, .. }))
    ));
}

#[test]
fn a_tensor_starts_at_the_alignment_and_ends_inside_the_file() {
    assert_eq!(
        one_tensor(&[4], F32, 48).error(),
        "tensor \"w\" starts at data offset 48, which is not a multiple of the alignment 32"
    );
    let exact = one_tensor(&[1024], F32, 0);
    let size = exact.0.len();
    assert!(exact.read().is_ok());
    assert_eq!(
        one_tensor(&[1025], F32, 0).error(),
        format!("tensor \"w\" ends at byte {}, but the file has {size} bytes: incomplete download?", size + 4)
    );
    let error = one_tensor(&[4], F32, u64::MAX - 31).error();
    assert!(error.contains("ends at byte 184467440737095"), "{error}");
}

#[test]
fn names_are_unique_and_bytes_are_shared_whole_or_not_at_all() {
    let two = |name: &str, dims: &[u64], offset| {
        Forged::new(2, 0).tensor("w", &[32], F32, 64).tensor(name, dims, F32, offset).data(4096)
    };
    assert_eq!(two("w", &[32], 512).error(), "tensor \"w\" is in the table twice");
    assert!(two("same bytes", &[8, 4], 64).read().is_ok());
    assert!(two("just after", &[32], 192).read().is_ok());
    let start = two("x", &[32], 192).read().unwrap().data_start.0;
    let error = two("inside", &[32], 96).error();
    assert_eq!(
        error,
        format!(
            "tensor \"inside\" starts at byte {}, inside tensor \"w\", which ends at byte {}: tensors may share all of \
             their bytes or none",
            start + 96,
            start + 192
        )
    );
    assert!(matches!(two("longer", &[64], 64).read(), Err(HeaderError::Tensor(TensorError::Overlap { .. }))));
    assert!(matches!(two("before", &[32], 0).read(), Err(HeaderError::Tensor(TensorError::Overlap { .. }))));
}

#[test]
fn control_characters_of_a_hostile_name_do_not_reach_the_terminal() {
    let error = Forged::new(1, 0).tensor("\x1b[2J\n", &[], F32, 0).data(64).error();
    assert!(error.starts_with("tensor \"\\u{1b}[2J\\n\" has 0 dimensions"), "{error}");
}

#[test]
fn a_file_without_tensors_may_end_with_its_header() {
    let header = Forged::new(0, 0).read().unwrap();
    assert_eq!((header.len, header.data_start), (Bytes(24), FileOffset(32)));
}
