//! SHA-256 of pieces of tensors, in the file's order, computed where they lie.

use super::WeightKernels;
use super::shape::{SplitArg, SplitShape};
use crate::cuda::buffer::DeviceBuffer;
use crate::cuda::copy::check_place;
use crate::cuda::error::CudaError;
use crate::cuda::launch::{Args, Launch};
use crate::cuda::stream::Stream;
use crate::cuda::va::Mapping;
use crate::memory::{DeviceMemory, DevicePtr};
use bytemuck::NoUninit;
use ds4_units::Bytes;

/// Threads of a block; the kernel is compiled for as many.
const THREADS: u32 = 64;
/// Bytes of a digest.
const DIGEST: usize = 32;

/// A piece of a tensor.
#[derive(Clone, Copy, Debug)]
pub struct LeafAt<'a> {
    /// The range.
    pub memory: &'a Mapping,
    /// Where in it the tensor starts, a multiple of 16.
    pub offset: u64,
    /// How the tensor is stored; `None` as in the file.
    pub split: Option<SplitShape>,
    /// Where in the tensor, in the file's order, the piece starts; a multiple of 16.
    pub start: u64,
    /// Its length.
    pub len: u32,
}

/// `Leaf` of `cu/weights.cu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct LeafArg {
    tensor: DevicePtr,
    start: u64,
    len: u32,
    table: u32,
    split: SplitArg,
}

// SAFETY: two `u64`, two `u32` and four `u32` in C order, 40 bytes: no padding, nothing but plain numbers.
unsafe impl NoUninit for LeafArg {}

impl WeightKernels {
    /// The digest of every piece, in order. Blocks, mostly for as long as the longest piece takes: 0.2 s for 2 MiB.
    pub fn digests(&self, leaves: &[LeafAt<'_>]) -> Result<Vec<[u8; DIGEST]>, CudaError> {
        if leaves.is_empty() {
            return Ok(Vec::new());
        }
        let kernels = &self.inner;
        let args = leaves.iter().map(leaf_arg).collect::<Result<Vec<LeafArg>, CudaError>>()?;
        let bytes: Vec<u8> = args.iter().flat_map(bytemuck::bytes_of).copied().collect();
        let leaves_on_device = DeviceBuffer::from_bytes(&kernels.gpu, &bytes)?;
        let mut found = vec![0; leaves.len() * DIGEST];
        let digests = DeviceBuffer::new(&kernels.gpu, Bytes(found.len() as u64))?;
        let stream = Stream::new(&kernels.gpu)?;
        let count = leaves.len() as u32;
        let args = Args::new()
            .with(leaves_on_device.address())
            .with(count)
            .with(kernels.tables.address())
            .with(digests.address());
        // SAFETY: the kernel reads `count` leaves, each inside a mapping that is borrowed until the stream has been
        // waited for, and the tables, and writes `count` digests.
        unsafe { kernels.leaf_digests.launch(&stream, &Launch::new(count.div_ceil(THREADS), THREADS), &args) }?;
        stream.synchronize()?;
        digests.download(0, &mut found)?;
        Ok(found.as_chunks().0.to_vec())
    }
}

fn leaf_arg(leaf: &LeafAt<'_>) -> Result<LeafArg, CudaError> {
    let LeafAt { memory, offset, split, start, len } = *leaf;
    let end = start.saturating_add(u64::from(len));
    let (in_file, in_range) = split.map_or((end, end), |shape| (shape.file_len(), shape.len().0));
    check_place(Bytes(in_file), start, u64::from(len))?;
    check_place(memory.len(), offset, in_range)?;
    if !(offset | start).is_multiple_of(16) {
        return Err(CudaError::Unaligned { offset, start });
    }
    Ok(LeafArg {
        tensor: memory.address().offset(offset),
        start,
        len,
        table: split.map_or(0, |shape| shape.table_start()),
        split: split.map_or(SplitArg::default(), |shape| shape.arg()),
    })
}
