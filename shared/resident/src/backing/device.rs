//! Memory of a CUDA device.

use super::{Backing, Held, Lane, MatrixShape, Spot};
use crate::error::LoadError;
use crate::staging::WINDOW;
use ds4_gpu::cuda::weights::{self, DeviceRange, LeafAt, SplitShape, Target, WeightKernels};
use ds4_gpu::cuda::{Gpu, Mapping};
use ds4_gpu::{DeviceMemory, SharedRange};
use ds4_manifest::Digest;
use ds4_units::{Bytes, Layout};
use std::ops::Range;
use std::sync::Arc;

/// Memory of one device.
pub(crate) struct DeviceBacking {
    kernels: WeightKernels,
}

impl DeviceBacking {
    pub(crate) fn new(gpu: &Gpu) -> Result<DeviceBacking, LoadError> {
        Ok(DeviceBacking { kernels: WeightKernels::load(gpu)? })
    }

    /// [`Backing::digests`] of memory that is mapped, by whoever filled it.
    pub(crate) fn digests_of(&self, mappings: &[&Mapping], pieces: &[Held]) -> Result<Vec<Digest>, LoadError> {
        let leaf = |piece: &Held| {
            Ok(LeafAt {
                memory: mappings[piece.range],
                offset: piece.spot.offset,
                split: piece.spot.split.map(split_shape).transpose()?,
                start: piece.spot.start,
                len: piece.len as u32,
            })
        };
        let leaves = pieces.iter().map(leaf).collect::<Result<Vec<_>, LoadError>>()?;
        Ok(self.kernels.digests(&leaves)?.into_iter().map(Digest).collect())
    }
}

impl Backing for DeviceBacking {
    type Range = Arc<DeviceRange>;
    type Lane = DeviceLane;

    fn create(&self, _name: &str, len: Bytes) -> Result<Self::Range, LoadError> {
        Ok(Arc::new(DeviceRange::create(self.kernels.gpu(), len)?))
    }

    fn lane(&self) -> Result<DeviceLane, LoadError> {
        Ok(DeviceLane { lane: weights::Lane::new(&self.kernels, Bytes(WINDOW as u64))? })
    }

    fn digests(&self, ranges: &[Self::Range], pieces: &[Held]) -> Result<Vec<Digest>, LoadError> {
        let mappings: Vec<&Mapping> = ranges.iter().map(|range| range.mapping()).collect();
        self.digests_of(&mappings, pieces)
    }

    fn read(&self, range: &Self::Range, offset: u64, out: &mut [u8]) -> Result<(), LoadError> {
        Ok(range.mapping().read(offset, out)?)
    }

    fn share(&self, range: Self::Range) -> Result<SharedRange, LoadError> {
        let (fd, len) = (range.export()?.into_fd(), range.len());
        Ok(SharedRange::Device { fd, len })
    }
}

/// Pinned buffers from which a stream copies.
pub(crate) struct DeviceLane {
    lane: weights::Lane,
}

impl Lane for DeviceLane {
    type Range = Arc<DeviceRange>;

    fn window(&mut self) -> Result<&mut [u8], LoadError> {
        Ok(self.lane.buffer()?)
    }

    fn put(&mut self, place: Range<usize>, to: Option<(&Self::Range, Spot)>) -> Result<Option<Digest>, LoadError> {
        let Some((range, spot)) = to else {
            return Ok(Some(Digest::of(&self.lane.buffer()?[place])));
        };
        let split = spot.split.map(split_shape).transpose()?;
        self.lane.send(place, &Target { range, offset: spot.offset, split, start: spot.start })?;
        // The device computes it when everything is there.
        Ok(None)
    }

    fn finish(&mut self) -> Result<(), LoadError> {
        Ok(self.lane.finish()?)
    }
}

fn split_shape(shape: MatrixShape) -> Result<SplitShape, LoadError> {
    SplitShape::new(shape.kind, shape.rows, shape.columns)
        .ok_or_else(|| LoadError::Artifacts { layout: Layout::Split.name().to_owned() })
}
