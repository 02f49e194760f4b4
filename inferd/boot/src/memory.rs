//! What the machine says about its memory, for the memory account.

use ds4_governor::{Observation, Readings};
use ds4_resident::{MemorySource, SystemMemory};
use ds4_units::Bytes;
use std::time::{Duration, Instant};

/// A look at the machine is good for so long: requests that come together are decided on one.
const FRESH: Duration = Duration::from_millis(50);

/// Stays free on a machine whose main memory holds the conversations.
pub const HOST_FLOOR: Bytes = Bytes::mib(512);

/// Looks at the memory that conversations are kept in, at most every 50 ms. Reads a few small files of the kernel.
pub fn observer() -> impl FnMut() -> Observation + Send {
    let machine = SystemMemory::new();
    let mut last: Option<(Instant, Observation)> = None;
    move || match last {
        Some((at, observation)) if at.elapsed() < FRESH => observation,
        _ => {
            let observation = Observation::of_device(&readings(&machine));
            last = Some((Instant::now(), observation));
            observation
        }
    }
}

fn readings(machine: &SystemMemory) -> Readings {
    let Ok(observed) = machine.observe() else {
        return Readings { mem_available: Some(Err(())), ..Readings::default() };
    };
    let room = |group: &ds4_resident::GroupLimit| Bytes(group.limit.0.saturating_sub(group.used.0));
    Readings {
        mem_available: Some(Ok(observed.available)),
        cgroup_room: observed.groups.iter().map(room).min().map(Ok),
        ..Readings::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ds4_governor::Status;

    #[test]
    fn this_machine_says_how_much_it_has() {
        let observation = observer()();
        assert_eq!(observation.status, Status::Ok);
        assert!(observation.free > Bytes::ZERO);
    }
}
