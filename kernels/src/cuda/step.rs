//! What a step's operations need to know about its rows, on the device: one copy a step, at addresses that stay.

use super::bank::DeviceBank;
use crate::step::Step;
use bytemuck::NoUninit;
use ds4_gpu::cuda::{CudaError, DeviceBuffer, Gpu, PinnedBuffer, Stream};
use ds4_gpu::{DeviceMemory, DevicePtr};
use ds4_units::Bytes;

/// Where a step's metadata lies; a kernel takes it as one argument. `cu/step.cuh` has the same structure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct StepView {
    /// Token of every row, `u32`.
    pub(crate) tokens: DevicePtr,
    /// Position of every row, `u32`.
    pub(crate) positions: DevicePtr,
    /// Index of every row's segment, `u32`.
    pub(crate) row_segments: DevicePtr,
    /// [`SegmentView`]s.
    pub(crate) segments: DevicePtr,
    /// The rows whose logits are wanted, `u32`.
    pub(crate) wanted: DevicePtr,
    /// Number of rows.
    pub(crate) rows: u32,
    /// Number of segments.
    pub(crate) segment_count: u32,
}

/// A segment's rows and its bank's memory. `cu/step.cuh` has the same structure.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct SegmentView {
    /// The recurrent part as it was before the step.
    pub(crate) before: DevicePtr,
    /// The recurrent part that the step writes.
    pub(crate) next: DevicePtr,
    /// The first block; the others follow.
    pub(crate) blocks: DevicePtr,
    /// Position of the first row.
    pub(crate) start: u32,
    /// The first row.
    pub(crate) first_row: u32,
    /// Number of rows.
    pub(crate) rows: u32,
    /// Bytes from one block to the next.
    pub(crate) block_bytes: u32,
}

// SAFETY: `repr(C)`, five 8-byte fields and then two 4-byte ones: no padding.
unsafe impl NoUninit for StepView {}
// SAFETY: `repr(C)`, three 8-byte fields and then four 4-byte ones: no padding.
unsafe impl NoUninit for SegmentView {}

/// The metadata's memory on both sides.
pub(crate) struct StepMemory {
    gpu: Gpu,
    pinned: PinnedBuffer,
    device: DeviceBuffer,
    view: StepView,
}

/// Room for a step of some thousand rows from the start, so that addresses seldom change.
const BYTES_AT_FIRST: Bytes = Bytes::kib(256);

/// Sections start at multiples of this.
const ALIGN: usize = 16;

impl StepMemory {
    pub(crate) fn new(gpu: &Gpu) -> Result<StepMemory, CudaError> {
        Ok(StepMemory {
            gpu: gpu.clone(),
            pinned: PinnedBuffer::new(gpu, BYTES_AT_FIRST)?,
            device: DeviceBuffer::new(gpu, BYTES_AT_FIRST)?,
            view: StepView::default(),
        })
    }

    /// Bytes on the host's side.
    pub(crate) fn pinned_bytes(&self) -> usize {
        self.pinned.as_slice().len()
    }

    pub(crate) fn view(&self) -> StepView {
        self.view
    }

    /// Puts the copy of a step's metadata into the stream. The stream must have ended the copy before.
    pub(crate) fn upload(&mut self, stream: &Stream, step: &Step<'_, DeviceBank>) -> Result<(), CudaError> {
        let mut bytes = Vec::new();
        let segments: Vec<SegmentView> = step.segments.iter().map(segment_view).collect();
        let owners = step.segments.iter().zip(0u32..);
        let row_segments: Vec<u32> =
            owners.flat_map(|(segment, index)| segment.rows.clone().map(move |_| index)).collect();
        let tokens: Vec<u32> = step.tokens.iter().map(|token| token.0).collect();
        let positions: Vec<u32> = step.positions.iter().map(|position| position.0).collect();
        let wanted: Vec<u32> = step.wanted.iter().map(|&row| row as u32).collect();
        let places = [
            append(&mut bytes, bytemuck::cast_slice(&tokens)),
            append(&mut bytes, bytemuck::cast_slice(&positions)),
            append(&mut bytes, bytemuck::cast_slice(&row_segments)),
            append(&mut bytes, bytemuck::cast_slice(&segments)),
            append(&mut bytes, bytemuck::cast_slice(&wanted)),
        ];
        self.make_room(bytes.len())?;
        self.pinned.as_mut_slice()[..bytes.len()].copy_from_slice(&bytes);
        // SAFETY: the caller has waited for the copy before this one, and nothing writes to the pinned bytes before the
        // next call; the kernels that read the target are put into the same stream, before or after.
        unsafe { self.device.upload_async(stream, 0, &self.pinned, 0..bytes.len())? };
        let [tokens, positions, row_segments, segments, wanted] =
            places.map(|place| self.device.address().offset(place as u64));
        let (rows, segment_count) = (step.len() as u32, step.segments.len() as u32);
        self.view = StepView { tokens, positions, row_segments, segments, wanted, rows, segment_count };
        Ok(())
    }

    fn make_room(&mut self, bytes: usize) -> Result<(), CudaError> {
        if bytes > self.pinned.as_slice().len() {
            let room = Bytes(bytes.next_power_of_two() as u64);
            self.pinned = PinnedBuffer::new(&self.gpu, room)?;
            self.device = DeviceBuffer::new(&self.gpu, room)?;
        }
        Ok(())
    }
}

fn segment_view(segment: &crate::step::StepSegment<'_, DeviceBank>) -> SegmentView {
    let memory = segment.bank.step_view();
    SegmentView {
        before: memory.before,
        next: memory.next,
        blocks: memory.blocks,
        start: segment.start.0,
        first_row: segment.rows.start as u32,
        rows: segment.rows.len() as u32,
        block_bytes: memory.block_bytes,
    }
}

/// Adds a section and returns where it starts.
fn append(bytes: &mut Vec<u8>, section: &[u8]) -> usize {
    bytes.resize(bytes.len().next_multiple_of(ALIGN), 0);
    let place = bytes.len();
    bytes.extend_from_slice(section);
    place
}
