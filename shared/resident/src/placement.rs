//! Puts pieces of memory into ranges: the arithmetic of a plan.

use crate::plan::{Placement, PlannedRange};
use crate::role::Role;
use ds4_manifest::Place;
use ds4_units::Bytes;

/// Items from this size on lie at a multiple of it.
pub(crate) const LARGE: Bytes = Bytes::mib(2);
/// Smaller items lie at a multiple of this, which suits every word a kernel loads.
const SMALL_ALIGN: Bytes = Bytes(256);

/// Fills ranges one after the other.
pub(crate) struct Packer {
    span: Bytes,
    granularity: Bytes,
    ranges: Vec<PlannedRange>,
}

impl Packer {
    pub(crate) fn new(span: Bytes, granularity: Bytes) -> Packer {
        Packer { span, granularity, ranges: Vec::new() }
    }

    /// Places items of one model, in their order, in new ranges. `None` when a size does not fit 64 bits.
    pub(crate) fn place(&mut self, role: Role, lens: &[Bytes]) -> Option<Vec<Place>> {
        let mut places = vec![Place { range: 0, offset: Bytes::ZERO, len: Bytes::ZERO }; lens.len()];
        for (placement, align) in [(Placement::PerTensor, LARGE), (Placement::Packed, SMALL_ALIGN)] {
            let mut open = false;
            for (&len, place) in lens.iter().zip(&mut places) {
                if (len >= LARGE) != (placement == Placement::PerTensor) {
                    continue;
                }
                if !open || !self.fits(len, align) {
                    self.open(role, placement)?;
                    open = true;
                }
                *place = self.append(len, align)?;
            }
        }
        Some(places)
    }

    /// The ranges of everything that was placed.
    pub(crate) fn finish(self) -> Vec<PlannedRange> {
        self.ranges
    }

    /// Whether the item can go to the end of the last range without taking it over the span.
    fn fits(&self, len: Bytes, align: Bytes) -> bool {
        let start = self.ranges.last().and_then(|range| range.len.checked_round_up(align));
        start.and_then(|start| start.checked_add(len)).is_some_and(|end| end <= self.span)
    }

    fn open(&mut self, role: Role, placement: Placement) -> Option<()> {
        let id = u32::try_from(self.ranges.len()).ok()?;
        self.ranges.push(PlannedRange { id, role, placement, len: Bytes::ZERO, allocated: Bytes::ZERO });
        Some(())
    }

    fn append(&mut self, len: Bytes, align: Bytes) -> Option<Place> {
        let range = self.ranges.last_mut()?;
        let offset = range.len.checked_round_up(align)?;
        range.len = offset.checked_add(len)?;
        range.allocated = range.len.checked_round_up(self.granularity)?;
        Some(Place { range: range.id, offset, len })
    }
}
