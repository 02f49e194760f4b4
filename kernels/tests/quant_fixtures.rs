//! Block formats against exact values from an independent implementation (`tests/fixtures/README.md`).

use ds4_kernels::reference::blocks::expand;
use ds4_units::TensorType;
use std::path::Path;

fn array<T: npyz::Deserialize>(
    archive: &mut npyz::npz::NpzArchive<std::io::BufReader<std::fs::File>>,
    name: &str,
) -> Vec<T> {
    archive.by_name(name).expect("readable archive").expect("array is there").into_vec().expect("expected type")
}

#[test]
fn expanded_blocks_equal_the_reference_bit_for_bit() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/oracle/quant_fixtures.npz");
    let mut archive = npyz::npz::NpzArchive::open(path).expect("fixture");
    for kind in [TensorType::Q8_0, TensorType::Q2_K, TensorType::Q4_K, TensorType::IQ2_XXS] {
        let raw: Vec<u8> = array(&mut archive, &format!("{kind}.raw"));
        let want: Vec<f32> = array(&mut archive, &format!("{kind}.f32"));
        let mut got = vec![0.0; want.len()];
        expand(kind, &raw, &mut got);
        for (index, (got, want)) in got.iter().zip(&want).enumerate() {
            assert_eq!(got, want, "{kind} element {index}");
        }
    }
}

#[test]
fn unquantised_types_expand_to_their_values() {
    let mut out = [0.0; 2];
    expand(TensorType::F16, &[0x00, 0x3c, 0x00, 0xc0], &mut out);
    assert_eq!(out, [1.0, -2.0]);
    expand(TensorType::BF16, &[0x80, 0x3f, 0x00, 0xc0], &mut out);
    assert_eq!(out, [1.0, -2.0]);
    expand(TensorType::F32, &[0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0], &mut out);
    assert_eq!(out, [1.0, -2.0]);
}
