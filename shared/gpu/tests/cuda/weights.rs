use crate::gpu;
use ds4_gpu::DeviceMemory;
use ds4_gpu::cuda::weights::{DeviceRange, Lane, LeafAt, SplitShape, Target, WeightKernels};
use ds4_gpu::cuda::{CudaError, Gpu};
use ds4_gpu::layout::split;
use ds4_units::{Bytes, TensorType};
use sha2::{Digest, Sha256};
use std::sync::Arc;

const KINDS: [TensorType; 4] = [TensorType::Q8_0, TensorType::IQ2_XXS, TensorType::Q2_K, TensorType::Q4_K];
/// Rows and columns: whole panels and tiles, and neither. All columns are multiples of 256.
const SHAPES: [(usize, usize); 4] = [(16, 512), (37, 768), (5, 256), (300, 4096)];

fn bytes(len: usize, seed: u64) -> Vec<u8> {
    (0..len as u64).map(|i| ((i + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

/// Sends `raw` in pieces of `piece` bytes over several lanes, last piece first.
fn fill(
    kernels: &WeightKernels,
    range: &Arc<DeviceRange>,
    at: u64,
    shape: Option<SplitShape>,
    raw: &[u8],
    piece: usize,
) {
    let mut lanes: Vec<Lane> = (0..3).map(|_| Lane::new(kernels, Bytes(piece as u64)).unwrap()).collect();
    for (index, (bytes, start)) in
        raw.chunks(piece).zip((0..).step_by(piece)).enumerate().collect::<Vec<_>>().into_iter().rev()
    {
        let lane = &mut lanes[index % 3];
        lane.buffer().unwrap()[..bytes.len()].copy_from_slice(bytes);
        lane.send(0..bytes.len(), &Target { range, offset: at, split: shape, start }).unwrap();
    }
    lanes.iter_mut().for_each(|lane| lane.finish().unwrap());
}

fn digests_match(kernels: &WeightKernels, range: &DeviceRange, at: u64, shape: Option<SplitShape>, raw: &[u8]) {
    let leaves: Vec<LeafAt<'_>> = (0..raw.len())
        .step_by(4096)
        .map(|start| LeafAt {
            memory: range.mapping(),
            offset: at,
            split: shape,
            start: start as u64,
            len: (raw.len() - start).min(4096) as u32,
        })
        .collect();
    let found = kernels.digests(&leaves).unwrap();
    let wanted: Vec<[u8; 32]> = raw.chunks(4096).map(|leaf| Sha256::digest(leaf).into()).collect();
    assert_eq!(found, wanted);
}

fn range_for(gpu: &Gpu, len: u64) -> Arc<DeviceRange> {
    let granule = gpu.granularity().0;
    Arc::new(DeviceRange::create(gpu, Bytes((len + 512).next_multiple_of(granule))).unwrap())
}

#[test]
fn rows_become_the_tiles_that_the_host_makes_and_hash_as_in_the_file() {
    let gpu = gpu();
    let kernels = WeightKernels::load(&gpu).unwrap();
    for (seed, kind) in (1..).zip(KINDS) {
        for (rows, columns) in SHAPES {
            let raw = bytes(rows * kind.byte_len(columns as u64).unwrap().index(), seed);
            let shape = SplitShape::new(kind, rows, columns).unwrap();
            for piece in [10_000, 1 << 20] {
                let range = range_for(&gpu, shape.len().0);
                fill(&kernels, &range, 256, Some(shape), &raw, piece);
                let mut found = vec![0; shape.len().index()];
                range.mapping().read(256, &mut found).unwrap();
                assert!(found == split(kind, rows, columns, &raw), "{kind} {rows}x{columns} in pieces of {piece}");
                digests_match(&kernels, &range, 256, Some(shape), &raw);
            }
        }
    }
}

#[test]
fn plain_tensors_arrive_and_hash_as_they_are_at_every_length() {
    let gpu = gpu();
    let kernels = WeightKernels::load(&gpu).unwrap();
    for len in [1, 55, 56, 63, 64, 65, 119, 120, 4096, 4097, 100_000] {
        let raw = bytes(len, len as u64);
        let range = range_for(&gpu, len as u64);
        fill(&kernels, &range, 512, None, &raw, 30_000);
        digests_match(&kernels, &range, 512, None, &raw);
        let mut around = vec![1; len + 2];
        range.mapping().read(511, &mut around).unwrap();
        assert_eq!((around[0], around[len + 1]), (0, 0), "nothing beside it was written");
    }
}

#[test]
fn nothing_goes_past_the_end_of_a_tensor_or_a_range() {
    let gpu = gpu();
    let kernels = WeightKernels::load(&gpu).unwrap();
    let range = range_for(&gpu, 0);
    let shape = SplitShape::new(TensorType::Q8_0, 16, 64).unwrap();
    let mut lane = Lane::new(&kernels, Bytes(4096)).unwrap();
    let len = range.len().0;
    let mut send = |offset, split, start, count| {
        lane.buffer().unwrap();
        lane.send(0..count, &Target { range: &range, offset, split, start })
    };
    for (offset, split, start, count) in
        [(len - 10, None, 0, 11), (0, None, len, 1), (0, Some(shape), 1000, 89), (len - 1024, Some(shape), 0, 1)]
    {
        let error = send(offset, split, start, count).unwrap_err();
        assert!(matches!(error, CudaError::PastEnd { .. }), "{error}");
    }
    assert!(matches!(send(0, None, 0, 4097), Err(CudaError::PastEnd { .. })));
    let leaf = LeafAt { memory: range.mapping(), offset: 8, split: None, start: 0, len: 1 };
    assert!(matches!(kernels.digests(&[leaf]), Err(CudaError::Unaligned { .. })));
}
