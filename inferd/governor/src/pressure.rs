//! Whether the machine is running out of memory, whoever takes it.

use crate::class::labels;
use crate::{Observation, Status};
use ds4_units::Bytes;

labels! {
    /// How bad it is.
    Pressure {
        /// There is room.
        None = "none",
        /// Nothing new is admitted and idle conversations are given up.
        Soft = "soft",
        /// Work is ended, the newest first, until there is room.
        Hard = "hard",
    }
}

/// What a guard looks at, several times a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Strain {
    /// Free memory of the kind that runs short.
    pub observation: Observation,
    /// Percent of the last ten seconds in which everything waited for memory; `None` where the kernel does not say.
    pub stalled: Option<f32>,
}

/// Where pressure begins. Below the floor, which is never promised to anyone: what is taken there was taken by others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PressureLimits {
    /// Free memory below which it is soft.
    pub soft: Bytes,
    /// Free memory below which it is hard.
    pub hard: Bytes,
    /// Stalled percentage from which memory within twice the soft limit counts as hard.
    pub stalled: f32,
}

impl PressureLimits {
    /// Half of the floor is soft, an eighth of it is hard.
    pub fn below(floor: Bytes) -> PressureLimits {
        PressureLimits { soft: Bytes(floor.0 / 2), hard: Bytes(floor.0 / 8), stalled: 20.0 }
    }

    /// The pressure now, `before` being what it was: it ends only when a quarter more than the limit is free. What
    /// cannot be measured changes nothing.
    pub fn judge(&self, before: Pressure, strain: &Strain) -> Pressure {
        if strain.observation.status != Status::Ok {
            return before;
        }
        let free = strain.observation.free.0;
        let below = |limit: Bytes, level: Pressure| {
            let eased = if before >= level { limit.0 + limit.0 / 4 } else { limit.0 };
            free < eased
        };
        let stalls = strain.stalled.is_some_and(|percent| percent >= self.stalled);
        if below(self.hard, Pressure::Hard) || stalls && free < self.soft.0.saturating_mul(2) {
            Pressure::Hard
        } else if below(self.soft, Pressure::Soft) {
            Pressure::Soft
        } else {
            Pressure::None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Source;

    fn strain(free: u64, stalled: Option<f32>) -> Strain {
        Strain { observation: Observation::of(Source::MemAvailable, Bytes(free)), stalled }
    }

    #[test]
    fn pressure_comes_at_its_limits_and_goes_a_quarter_above_them() {
        let limits = PressureLimits::below(Bytes(800));
        let mut level = Pressure::None;
        let seen: Vec<Pressure> = [900, 400, 399, 499, 500, 100, 99, 124, 125, 499, 500]
            .into_iter()
            .map(|free| {
                level = limits.judge(level, &strain(free, None));
                level
            })
            .collect();
        let seen: Vec<&str> = seen.iter().map(|level| level.name()).collect();
        let expected = "none none soft soft none soft hard hard soft soft none";
        assert_eq!(seen.join(" "), expected);
    }

    #[test]
    fn a_machine_that_stalls_near_the_limit_is_at_its_end_and_far_from_it_is_busy_with_something_else() {
        let limits = PressureLimits::below(Bytes(800));
        assert_eq!(limits.judge(Pressure::None, &strain(799, Some(20.0))), Pressure::Hard);
        assert_eq!(limits.judge(Pressure::None, &strain(799, Some(19.9))), Pressure::None);
        assert_eq!(limits.judge(Pressure::None, &strain(800, Some(90.0))), Pressure::None);
    }

    #[test]
    fn what_cannot_be_measured_changes_nothing() {
        let limits = PressureLimits::below(Bytes(800));
        let blind = Strain { observation: Observation::without(Status::QueryError), stalled: None };
        assert_eq!(limits.judge(Pressure::Soft, &blind), Pressure::Soft);
    }
}
