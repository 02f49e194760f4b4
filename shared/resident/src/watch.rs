//! Watches memory while loading, so that it stops before the kernel has to kill something.

use crate::error::LoadError;
use crate::memory::{MemoryError, MemorySource};
use crate::plan::PlannedRange;
use ds4_units::Bytes;

/// What must stay available while loading into host memory.
pub const HOST_TRIP_FLOOR: Bytes = Bytes::mib(512);

/// What must stay available of the host's memory while loading into another.
const BESIDE_TRIP_FLOOR: Bytes = Bytes::gib(2);

/// Compares what is available with the floor, before each range: where the range goes, and on the host beside that.
pub(crate) struct Watch<'a> {
    there: Watched<'a>,
    beside: Option<Watched<'a>>,
}

/// One pool of memory.
struct Watched<'a> {
    memory: &'a dyn MemorySource,
    floor: Bytes,
    swap_at_start: Bytes,
}

impl<'a> Watch<'a> {
    pub(crate) fn start(memory: &'a dyn MemorySource, floor: Bytes) -> Result<Watch<'a>, LoadError> {
        let beside = memory.beside().map(|host| Watched::start(host, BESIDE_TRIP_FLOOR)).transpose()?;
        Ok(Watch { there: Watched::start(memory, floor)?, beside })
    }

    /// Refuses when the next range would leave less than the floor. Swap that has filled up since the start counts as
    /// memory that is gone.
    pub(crate) fn check(&self, next: &PlannedRange) -> Result<(), LoadError> {
        self.there.check(next.id, next.allocated)?;
        // What passes through the host is taken already.
        self.beside.as_ref().map_or(Ok(()), |host| host.check(next.id, Bytes::ZERO))
    }
}

impl<'a> Watched<'a> {
    fn start(memory: &'a dyn MemorySource, floor: Bytes) -> Result<Watched<'a>, MemoryError> {
        Ok(Watched { memory, floor, swap_at_start: memory.observe()?.swap_used })
    }

    fn check(&self, range: u32, need: Bytes) -> Result<(), LoadError> {
        let observation = self.memory.observe()?;
        let budget = observation.budget();
        let swapped = observation.swap_used.0.saturating_sub(self.swap_at_start.0);
        let available = Bytes(budget.chosen.bytes.0.saturating_sub(swapped));
        if available.0 >= self.floor.0.saturating_add(need.0) {
            return Ok(());
        }
        let largest: Vec<String> = self.memory.largest_processes().iter().map(ToString::to_string).collect();
        let (floor, budget, largest) = (self.floor, budget.chosen.source, largest.join(", "));
        Err(LoadError::MemoryVanished { range, need, floor, available, budget, largest })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{GroupLimit, Observation, ProcessMemory};
    use crate::plan::Placement;
    use crate::role::Role;

    /// So much memory, and a host beside it.
    struct Pool(Observation, Option<Box<Pool>>);

    impl MemorySource for Pool {
        fn observe(&self) -> Result<Observation, MemoryError> {
            Ok(self.0.clone())
        }

        fn largest_processes(&self) -> Vec<ProcessMemory> {
            Vec::new()
        }

        fn beside(&self) -> Option<&dyn MemorySource> {
            self.1.as_deref().map(|host| host as &dyn MemorySource)
        }
    }

    #[test]
    fn a_device_has_room_and_the_host_beside_it_or_its_control_group_runs_short() {
        let next = PlannedRange {
            id: 3,
            role: Role::Base,
            placement: Placement::Packed,
            len: Bytes::gib(1),
            allocated: Bytes::gib(1),
        };
        let group =
            |left: u64| GroupLimit { file: "memory.max".into(), limit: Bytes::gib(8), used: Bytes((8 << 30) - left) };
        let check = |available, groups| {
            let host = Observation { available, groups, ..Observation::default() };
            let device = Observation { source: "free GPU memory", available: Bytes::gib(3), ..Observation::default() };
            let pool = Pool(device, Some(Box::new(Pool(host, None))));
            Watch::start(&pool, Bytes::gib(2)).unwrap().check(&next)
        };
        assert!(check(Bytes::gib(2), vec![group(2 << 30)]).is_ok());
        for (available, groups, source) in
            [(Bytes((2 << 30) - 1), vec![], "MemAvailable"), (Bytes::gib(64), vec![group((2 << 30) - 1)], "memory.max")]
        {
            match check(available, groups) {
                Err(LoadError::MemoryVanished { range: 3, need: Bytes::ZERO, floor, available, budget, .. }) => {
                    assert_eq!((floor, available.0, budget.as_str()), (Bytes::gib(2), (2 << 30) - 1, source));
                }
                other => panic!("{other:?}"),
            }
        }
    }
}
