//! What the machine says about its memory, for the memory account.

use ds4_governor::{Observation, Readings};
use ds4_import::ComputeDevice;
use ds4_resident::{MemorySource, SystemMemory};
use ds4_units::Bytes;

/// Stays free on a machine whose main memory holds the conversations. Less of it does when the worker itself takes more
/// than was planned, for requests on their way: what steps take is in the plan.
const HOST_FLOOR: Bytes = Bytes::mib(512);

/// Stays free on a GPU with memory of its own, for whoever else uses it: what steps take is in the plan.
#[cfg(feature = "cuda")]
const DEVICE_FLOOR: Bytes = Bytes::gib(2);

/// What stays free, unless told otherwise, of the memory that conversations are kept in.
pub fn default_floor(device: &ComputeDevice) -> Bytes {
    match device {
        ComputeDevice::Cpu => HOST_FLOOR,
        #[cfg(feature = "cuda")]
        ComputeDevice::Gpu(_) => DEVICE_FLOOR,
    }
}

/// Looks at the memory that conversations are kept in. Asks the device or reads a few small files of the kernel.
pub fn observer(device: &ComputeDevice) -> impl FnMut() -> Observation + Send + use<> {
    let (machine, device) = (SystemMemory::new(), device.clone());
    move || Observation::of_device(&readings(&device, &machine))
}

/// What this process holds of the memory that conversations are kept in, beside them: its anonymous pages, where that is
/// the host's (conversations are shared memory). Reads a small file of the kernel.
pub fn own_memory(device: &ComputeDevice) -> impl FnMut() -> Option<Bytes> + Send + use<> {
    let is_the_host = matches!(device, ComputeDevice::Cpu);
    move || if is_the_host { anonymous_pages() } else { None }
}

fn anonymous_pages() -> Option<Bytes> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let kib = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?.trim().strip_suffix("kB")?.trim();
    Some(Bytes(kib.parse::<u64>().ok()? * 1024))
}

fn readings(device: &ComputeDevice, machine: &SystemMemory) -> Readings {
    match device {
        ComputeDevice::Cpu => of_the_host(machine),
        #[cfg(feature = "cuda")]
        ComputeDevice::Gpu(gpu) => {
            let memory = gpu.memory().map_err(|_| ());
            let (cuda_free, total) = (Some(memory.map(|memory| memory.free)), memory.ok().map(|memory| memory.total));
            let host = if gpu.is_integrated() { of_the_host(machine) } else { Readings::default() };
            Readings { cuda_free, total, integrated: gpu.is_integrated(), ..host }
        }
    }
}

fn of_the_host(machine: &SystemMemory) -> Readings {
    let Ok(observed) = machine.observe() else {
        return Readings { mem_available: Some(Err(())), ..Readings::default() };
    };
    let room = |group: &ds4_resident::GroupLimit| Bytes(group.limit.0.saturating_sub(group.used.0));
    Readings {
        mem_available: Some(Ok(observed.available)),
        total: observed.total,
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
        let observation = observer(&ComputeDevice::Cpu)();
        assert_eq!(observation.status, Status::Ok);
        assert!(observation.free > Bytes::ZERO);
        assert!(observation.read.total >= Some(observation.free));
    }

    #[test]
    fn this_process_says_what_it_holds_itself() {
        let mut held = own_memory(&ComputeDevice::Cpu);
        let mut held = || held().expect("the kernel says it");
        let before = held();
        let pages = vec![1u8; 64 << 20];
        let grown = held().0.saturating_sub(before.0);
        assert!((60 << 20..80 << 20).contains(&grown) && pages[1] == 1, "{before} and {grown} more");
    }
}
