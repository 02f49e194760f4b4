//! Failures that other programs had in public, as tests. The numbers are those of the list of owner cases.

mod support;

use ds4_gguf::{GgufError, HeaderError, TensorError};
use ds4_units::TensorType;
use support::{Forged, model, one_tensor, open, open_bytes};

/// A truncated file crashed readers that had mapped it, or gave zeros.
#[test]
fn case_18_a_file_truncated_in_any_tensor_is_refused_before_any_read() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = model().to_bytes();
    let whole = support::read(&bytes).unwrap();
    for tensor in &whole.tensors {
        for cut in [tensor.end().index() - 1, tensor.offset.index() + 1, tensor.offset.index()] {
            let (path, opened) = open_bytes(folder.path(), &bytes[..cut]);
            let error = opened.unwrap_err();
            let past_end =
                matches!(error, GgufError::Header { source: HeaderError::Tensor(TensorError::PastEnd { .. }), .. });
            assert!(past_end, "{error}");
            let text = error.to_string();
            let expected = format!("{}: tensor {:?} ends at byte {}", path.display(), tensor.name, tensor.end().0);
            assert!(text.starts_with(&expected), "{text}");
            assert!(text.ends_with(&format!("but the file has {cut} bytes: incomplete download?")), "{text}");
        }
    }
}

/// Shards joined with `cat` gave a message that helped nobody.
#[test]
fn case_19_shards_joined_with_cat_are_recognised_and_the_message_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    // The last tensor of the file that comes first ends between two multiples of the alignment.
    let shards = model().tensor("last", TensorType::F32, &[1], vec![9; 4]).alignment(64).shards(4);
    let (first, second) = (shards[3].to_bytes(), shards[0].to_bytes());
    let end = support::read(&first).unwrap().end().index();
    assert!(end < first.len());
    for name in ["joined.gguf", "joined-00001-of-00004.gguf"] {
        let path = folder.path().join(name);
        std::fs::write(&path, [&first[..], &second[..]].concat()).unwrap();
        let error = open(&path).unwrap_err();
        assert!(matches!(error, GgufError::Joined { at, .. } if at == first.len() as u64), "{error}");
        let text = error.to_string();
        assert!(text.contains("a second GGUF file starts at byte") && text.contains("`cat`"), "{text}");
        assert!(text.contains("-00001-of-") && text.contains("--merge"), "{text}");
    }
    // Without the padding after the last tensor, which not every writer adds.
    let (_, joined) = open_bytes(folder.path(), &[&first[..end], &second[..]].concat());
    assert!(matches!(joined, Err(GgufError::Joined { at, .. }) if at == end as u64));
    // Other bytes at the end are no second file.
    let (_, padded) = open_bytes(folder.path(), &[&model().to_bytes()[..], b"GGU and so on"].concat());
    assert!(padded.is_ok());
}

/// More than eight dimensions were written past an array; an alignment of zero was a division by zero.
#[test]
fn case_21_many_dimensions_and_an_alignment_of_zero_are_errors() {
    for count in [5u32, 8, 9, 1 << 20, u32::MAX] {
        let forged = Forged::new(1, 0).string("w").u32(count).data(4096);
        assert_eq!(forged.error(), format!("tensor \"w\" has {count} dimensions; 1 to 4 are possible"));
    }
    let forged = Forged::new(1, 1).string("general.alignment").u32(4).u32(0).tensor("w", &[4], 0, 0).data(64);
    assert!(matches!(forged.read(), Err(HeaderError::Alignment { .. })));
}

/// Products of dimensions wrapped in release builds; a shape index out of range panicked.
#[test]
fn case_22_sizes_that_wrap_are_errors() {
    let wrapping: [&[u64]; 5] = [
        &[1 << 32, 1 << 32],
        &[1 << 16, 1 << 16, 1 << 16, 1 << 16],
        &[u64::MAX],
        &[u64::MAX, u64::MAX, u64::MAX, u64::MAX],
        &[1 << 62, 4],
    ];
    for dims in wrapping {
        let error = one_tensor(dims, TensorType::F32 as u32, 0).read().unwrap_err();
        assert!(matches!(error, HeaderError::Tensor(TensorError::TooLarge { .. })), "{dims:?}: {error}");
    }
    // Just below the wrap: a size that 64 bits hold and no file has.
    let error = one_tensor(&[1 << 61], TensorType::F32 as u32, 32).read().unwrap_err();
    assert!(matches!(error, HeaderError::Tensor(TensorError::PastEnd { .. })), "{error}");
}
