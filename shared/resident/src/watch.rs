//! Watches memory while loading, so that it stops before the kernel has to kill something.

use crate::error::LoadError;
use crate::memory::MemorySource;
use crate::plan::PlannedRange;
use ds4_units::Bytes;

/// What must stay available while loading into host memory.
pub const HOST_TRIP_FLOOR: Bytes = Bytes::mib(512);

/// Compares what is available with the floor, before each range.
pub(crate) struct Watch<'a> {
    memory: &'a dyn MemorySource,
    floor: Bytes,
    swap_at_start: Bytes,
}

impl<'a> Watch<'a> {
    pub(crate) fn start(memory: &'a dyn MemorySource, floor: Bytes) -> Result<Watch<'a>, LoadError> {
        Ok(Watch { memory, floor, swap_at_start: memory.observe()?.swap_used })
    }

    /// Refuses when the next range would leave less than the floor. Swap that has filled up since the start counts as
    /// memory that is gone.
    pub(crate) fn check(&self, next: &PlannedRange) -> Result<(), LoadError> {
        let observation = self.memory.observe()?;
        let budget = observation.budget();
        let swapped = observation.swap_used.0.saturating_sub(self.swap_at_start.0);
        let available = Bytes(budget.chosen.bytes.0.saturating_sub(swapped));
        if available.0 >= self.floor.0.saturating_add(next.allocated.0) {
            return Ok(());
        }
        let largest: Vec<String> = self.memory.largest_processes().iter().map(ToString::to_string).collect();
        Err(LoadError::MemoryVanished {
            range: next.id,
            need: next.allocated,
            floor: self.floor,
            available,
            budget: budget.chosen.source,
            largest: largest.join(", "),
        })
    }
}
