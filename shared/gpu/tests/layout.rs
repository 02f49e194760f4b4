//! The split layout: nothing is lost, nothing is invented, and the offsets are the published ones.

use ds4_gpu::layout::{PANEL_ROWS, Tile, is_split, split, split_len, unsplit};
use ds4_units::{Bytes, TensorType};
use proptest::prelude::*;
use std::collections::HashSet;

const SPLIT: [TensorType; 4] = [TensorType::Q8_0, TensorType::IQ2_XXS, TensorType::Q2_K, TensorType::Q4_K];

fn raw_bytes(kind: TensorType, rows: usize, columns: usize, seed: u64) -> Vec<u8> {
    let len = kind.byte_len((rows * columns) as u64).expect("whole blocks").index();
    let mut state = seed | 1;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u8
        })
        .collect()
}

#[test]
fn a_tile_takes_every_byte_of_its_blocks_exactly_once() {
    for kind in SPLIT {
        let tile = Tile::of(kind).expect("split");
        let sources = tile.sources();
        assert_eq!(sources.len(), tile.bytes());
        assert_eq!(tile.bytes() % 32, 0, "{kind}: tiles start at whole sectors");
        let distinct: HashSet<_> = sources.iter().copied().collect();
        assert_eq!(distinct.len(), tile.bytes());
        assert!(
            sources
                .iter()
                .all(|byte| usize::from(byte.row) < PANEL_ROWS && usize::from(byte.offset) < tile.row_bytes())
        );
    }
}

#[test]
fn types_without_tiles_stay_as_they_are() {
    for &kind in TensorType::ALL {
        assert_eq!(is_split(kind), SPLIT.contains(&kind), "{kind}");
    }
    assert_eq!(split_len(TensorType::F16, 16, 256), None);
    assert_eq!(split_len(TensorType::Q8_0, 16, 33), None);
    assert_eq!(split_len(TensorType::Q8_0, usize::MAX, usize::MAX - 31), None);
}

#[test]
fn whole_panels_and_tiles_take_no_more_than_the_file() {
    for kind in SPLIT {
        assert_eq!(split_len(kind, 48, 512), kind.byte_len(48 * 512));
    }
    assert_eq!(split_len(TensorType::Q8_0, 1, 32), Some(Bytes(1088)));
}

/// Single bytes at the places the kernels read them.
#[test]
fn codes_and_scales_stand_where_lanes_load_them() {
    let (row, t) = (9, 3);
    let lane = 4 * (row % 8) + t;
    let at = |kind: TensorType, offset: usize| {
        let raw = raw_bytes(kind, 16, 256, 3);
        let row_bytes = raw.len() / 16;
        let split = split(kind, 16, 256, &raw);
        (raw[row * row_bytes..][..row_bytes].to_vec(), split[offset..].to_vec())
    };
    let (raw, lane_bytes) = at(TensorType::Q8_0, 1088 + 512 + 16 * lane);
    assert_eq!(lane_bytes[..8], raw[68 + 2 + 8 * t..][..8]);
    assert_eq!(lane_bytes[8..16], raw[68 + 34 + 2 + 8 * t..][..8]);
    let (raw, scale) = at(TensorType::Q8_0, 1088 + 1024 + 8 + 4);
    assert_eq!(scale[..4], [raw[68], raw[69], raw[68 + 34], raw[68 + 35]]);
    let (raw, lane_bytes) = at(TensorType::IQ2_XXS, 512 + 16 * lane);
    assert_eq!(lane_bytes[..16], raw[2 + 16 * t..][..16]);
    let (raw, lane_bytes) = at(TensorType::Q2_K, 512 + 16 * lane);
    assert_eq!(lane_bytes[..8], raw[16 + 8 * t..][..8]);
    assert_eq!(lane_bytes[8..16], raw[48 + 8 * t..][..8]);
    let (raw, scales) = at(TensorType::Q2_K, 1024 + 32 + 16 + 8);
    assert_eq!(scales[..8], [1, 3, 5, 7, 9, 11, 13, 15].map(|group: usize| raw[group]));
    let (raw, lane_bytes) = at(TensorType::Q4_K, 1024 + 512 + 16 * lane);
    assert_eq!(lane_bytes[..16], raw[16 + 32 * t + 16..][..16]);
    let (raw, head) = at(TensorType::Q4_K, 2048 + 32 + 16);
    assert_eq!(head[..16], raw[..16]);
}

proptest! {
    #[test]
    fn unsplitting_gives_the_file_back(
        kind in prop::sample::select(&SPLIT[..]),
        rows in 1usize..40,
        blocks in 1usize..5,
        seed in any::<u64>(),
    ) {
        let columns = blocks * kind.block_len() as usize;
        let raw = raw_bytes(kind, rows, columns, seed);
        let there = split(kind, rows, columns, &raw);
        prop_assert_eq!(Some(Bytes(there.len() as u64)), split_len(kind, rows, columns));
        prop_assert_eq!(unsplit(kind, rows, columns, &there), raw);
    }

    #[test]
    fn panels_may_be_built_alone(
        kind in prop::sample::select(&SPLIT[..]),
        panels in 1usize..4,
        seed in any::<u64>(),
    ) {
        let (rows, columns) = (panels * PANEL_ROWS, 512);
        let raw = raw_bytes(kind, rows, columns, seed);
        let whole = split(kind, rows, columns, &raw);
        let pieces: Vec<u8> =
            raw.chunks_exact(raw.len() / panels).flat_map(|raw| split(kind, PANEL_ROWS, columns, raw)).collect();
        prop_assert_eq!(whole, pieces);
    }
}
