//! How much memory the machine says is free. Pure data: whoever reads the machine fills in [`Readings`].

use crate::class::labels;
use ds4_units::Bytes;

labels! {
    /// Whether an observation is worth something.
    Status {
        /// It is.
        Ok = "ok",
        /// This machine cannot say.
        Unsupported = "unsupported",
        /// It could, but did not this time.
        QueryError = "query_error",
    }
}

labels! {
    /// Which reading decided.
    Source {
        /// None: there is no answer.
        None = "none",
        /// What the GPU driver says is free.
        CudaFree = "cuda_free",
        /// What the kernel says can be had without swapping.
        MemAvailable = "meminfo_available",
        /// The room left in a control group.
        Cgroup = "cgroup",
    }
}

/// A reading that may have failed. "Cannot be read here" and "was not readable now" differ.
type Reading = Option<Result<Bytes, ()>>;

/// What was read. `None`: the machine has no such thing. `Some(Err(()))`: it has, and reading failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readings {
    /// Free memory of the GPU.
    pub cuda_free: Reading,
    /// `MemAvailable`.
    pub mem_available: Reading,
    /// The smallest room left in a control group.
    pub cgroup_room: Reading,
    /// The GPU computes in host memory.
    pub integrated: bool,
    /// All memory there is of what is looked at, free or not.
    pub total: Option<Bytes>,
}

impl Readings {
    /// What each source has said, those left out that this machine does not have.
    pub fn by_source(&self) -> impl Iterator<Item = (Source, Result<Bytes, ()>)> {
        let asked = [(Source::CudaFree, self.cuda_free), (Source::MemAvailable, self.mem_available)];
        asked.into_iter().filter_map(|(source, said)| said.map(|said| (source, said)))
    }
}

/// Memory that can be had at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    /// Whether the figures mean anything.
    pub status: Status,
    /// Where `free` is from.
    pub source: Source,
    /// What can be had.
    pub free: Bytes,
    /// What was read for it.
    pub read: Readings,
}

impl Observation {
    /// An observation of a machine that answered.
    pub fn of(source: Source, free: Bytes) -> Observation {
        Observation { status: Status::Ok, source, free, read: Readings::default() }
    }

    pub(crate) fn without(status: Status) -> Observation {
        Observation { status, source: Source::None, free: Bytes::ZERO, read: Readings::default() }
    }

    /// Memory of a discrete GPU: the driver's word, nobody else's.
    pub fn of_discrete_device(readings: &Readings) -> Observation {
        choose(readings.cuda_free.map(|free| (Source::CudaFree, free)), None)
    }

    /// Memory of the host: available memory, or the room in a control group where that is less.
    pub fn of_host(readings: &Readings) -> Observation {
        choose(readings.mem_available.map(|free| (Source::MemAvailable, free)), readings.cgroup_room)
    }

    /// Memory of a GPU that shares the host's. The driver counts page cache as used, so the larger of both answers is
    /// the useful one.
    pub fn of_integrated_device(readings: &Readings) -> Observation {
        let larger = match (readings.cuda_free, readings.mem_available) {
            (Some(Ok(cuda)), Some(Ok(host))) if cuda > host => Some((Source::CudaFree, Ok(cuda))),
            (_, Some(host)) => Some((Source::MemAvailable, host)),
            (cuda, None) => cuda.map(|cuda| (Source::CudaFree, cuda)),
        };
        choose(larger, readings.cgroup_room)
    }

    /// Memory the model computes in.
    pub fn of_device(readings: &Readings) -> Observation {
        let observed = match (readings.cuda_free, readings.integrated) {
            (None, _) => Observation::of_host(readings),
            (Some(_), true) => Observation::of_integrated_device(readings),
            (Some(_), false) => Observation::of_discrete_device(readings),
        };
        Observation { read: *readings, ..observed }
    }
}

fn choose(main: Option<(Source, Result<Bytes, ()>)>, limit: Reading) -> Observation {
    match (main, limit) {
        (None, _) => Observation::without(Status::Unsupported),
        // A reading that failed is never taken for "nothing is free", nor a failed limit for "no limit".
        (Some((_, Err(()))), _) | (_, Some(Err(()))) => Observation::without(Status::QueryError),
        (Some((_, Ok(free))), Some(Ok(room))) if room < free => Observation::of(Source::Cgroup, room),
        (Some((source, Ok(free))), _) => Observation::of(source, free),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readings(cuda: Reading, host: Reading, cgroup: Reading, integrated: bool) -> Readings {
        Readings { cuda_free: cuda, mem_available: host, cgroup_room: cgroup, integrated, total: None }
    }

    fn decided(cuda: Reading, host: Reading, cgroup: Reading, integrated: bool) -> (Source, Bytes) {
        let read = readings(cuda, host, cgroup, integrated);
        let observed = Observation::of_device(&read);
        assert_eq!((observed.status, observed.read), (Status::Ok, read));
        (observed.source, observed.free)
    }

    const fn some(bytes: u64) -> Reading {
        Some(Ok(Bytes(bytes)))
    }

    #[test]
    fn an_integrated_gpu_uses_the_larger_answer_because_page_cache_can_be_dropped() {
        assert_eq!(decided(some(10), some(70), None, true), (Source::MemAvailable, Bytes(70)));
        assert_eq!(decided(some(80), some(70), some(60), true), (Source::Cgroup, Bytes(60)));
    }

    #[test]
    fn a_discrete_gpu_does_not_care_about_the_host() {
        assert_eq!(decided(some(10), some(70), some(5), false), (Source::CudaFree, Bytes(10)));
    }

    #[test]
    fn without_a_gpu_the_host_decides_within_its_control_group() {
        assert_eq!(decided(None, some(70), some(90), false), (Source::MemAvailable, Bytes(70)));
        assert_eq!(decided(None, some(70), some(30), false), (Source::Cgroup, Bytes(30)));
    }

    #[test]
    fn a_failed_reading_is_neither_zero_nor_unlimited() {
        for broken in [
            readings(Some(Err(())), some(70), None, false),
            readings(None, Some(Err(())), None, false),
            readings(None, some(70), Some(Err(())), false),
        ] {
            assert_eq!(Observation::of_device(&broken).status, Status::QueryError, "{broken:?}");
        }
        assert_eq!(Observation::of_device(&Readings::default()).status, Status::Unsupported);
    }
}
