//! Host memory (memfd).

use super::{Backing, Held, Lane, Spot};
use crate::error::LoadError;
use crate::identity::LEAF;
use crate::staging::Staging;
use ds4_gpu::{HostRange, SharedRange};
use ds4_manifest::Digest;
use ds4_units::{Bytes, Layout};
use rayon::prelude::*;
use std::ops::Range;

/// Host memory.
pub(crate) struct HostBacking;

impl Backing for HostBacking {
    type Range = HostRange;
    type Lane = HostLane;

    fn create(&self, name: &str, len: Bytes) -> Result<HostRange, LoadError> {
        Ok(HostRange::create(name, len)?)
    }

    fn lane(&self) -> Result<HostLane, LoadError> {
        Ok(HostLane { staging: Staging::new() })
    }

    fn digests(&self, ranges: &[HostRange], pieces: &[Held]) -> Result<Vec<Digest>, LoadError> {
        let digest = |bytes: &mut Vec<u8>, piece: &Held| {
            let bytes = &mut bytes[..piece.len];
            ranges[piece.range].read_at(piece.spot.offset + piece.spot.start, bytes)?;
            Ok(Digest::of(bytes))
        };
        pieces.par_iter().map_init(|| vec![0; LEAF.index()], digest).collect()
    }

    fn read(&self, range: &HostRange, offset: u64, out: &mut [u8]) -> Result<(), LoadError> {
        Ok(range.read_at(offset, out)?)
    }

    fn share(&self, range: HostRange) -> Result<SharedRange, LoadError> {
        Ok(SharedRange::Host(range.seal()?))
    }
}

/// A buffer from which bytes are written at once.
pub(crate) struct HostLane {
    staging: Staging,
}

impl Lane for HostLane {
    type Range = HostRange;

    fn window(&mut self) -> Result<&mut [u8], LoadError> {
        Ok(self.staging.window())
    }

    fn put(&mut self, place: Range<usize>, to: Option<(&HostRange, Spot)>) -> Result<Option<Digest>, LoadError> {
        let bytes = &self.staging.window()[place];
        if let Some((range, spot)) = to {
            if spot.split.is_some() {
                return Err(LoadError::Artifacts { layout: Layout::Split.name().to_owned() });
            }
            range.write_at(spot.offset + spot.start, bytes)?;
        }
        Ok(Some(Digest::of(bytes)))
    }

    fn finish(&mut self) -> Result<(), LoadError> {
        Ok(())
    }
}
