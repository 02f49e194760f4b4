//! Looks at the machine's memory while everybody else is busy with it.

use crate::memory::observer;
use ds4_governor::{Governor, Pressure, PressureLimits, Strain};
use ds4_import::ComputeDevice;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;
use tracing::{info, warn};

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How long everything stood still for want of memory, as the kernel says; absent on some kernels.
const STALLS: &str = "/proc/pressure/memory";

/// A thread that tells the governor how much the machine is strained. Dropping it ends the thread.
pub struct Guard {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Guard {
    /// Starts looking at the memory that conversations are kept in.
    ///
    /// # Errors
    /// When the operating system gives no thread.
    pub fn start(governor: Governor, device: &ComputeDevice, limits: PressureLimits) -> io::Result<Guard> {
        let (stop, stopped) = mpsc::channel();
        let mut observe = observer(device);
        let stalls = File::open(STALLS).ok();
        let thread = std::thread::Builder::new().name("memory-guard".into()).spawn(move || {
            let mut level = Pressure::None;
            while stopped.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
                let strain = Strain { observation: observe(), stalled: stalls.as_ref().and_then(stalled) };
                let next = limits.judge(level, &strain);
                if next != level {
                    tell(next, &strain);
                    level = next;
                }
                governor.strained(level);
            }
        })?;
        Ok(Guard { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // It has no secrets to tell if it panicked.
            let _ = thread.join();
        }
    }
}

fn tell(level: Pressure, strain: &Strain) {
    let (free, stalled) = (strain.observation.free, strain.stalled);
    match level {
        Pressure::None => info!(%free, "memory: the machine has room again"),
        Pressure::Soft => {
            warn!(%free, stalled, "memory: the machine runs short; nothing new is admitted, idle conversations go")
        }
        Pressure::Hard => warn!(%free, stalled, "memory: the machine is at its end; the newest work goes"),
    }
}

/// Percent of the last ten seconds in which everything waited for memory.
fn stalled(file: &File) -> Option<f32> {
    let mut text = [0; 512];
    let read = file.read_at(&mut text, 0).ok()?;
    parse(std::str::from_utf8(&text[..read]).ok()?)
}

fn parse(text: &str) -> Option<f32> {
    let full = text.lines().find(|line| line.starts_with("full "))?;
    full.split_whitespace().find_map(|field| field.strip_prefix("avg10="))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ds4_governor::{Census, Floors};
    use ds4_units::Bytes;
    use std::time::Instant;

    #[test]
    fn the_kernels_words_are_understood() {
        let text =
            "some avg10=1.50 avg60=0.20 avg300=0.00 total=99\nfull avg10=12.25 avg60=0.10 avg300=0.00 total=42\n";
        assert_eq!(parse(text), Some(12.25));
        assert_eq!(parse("some avg10=1.50 avg60=0.20 avg300=0.00 total=99\n"), None);
    }

    #[test]
    fn a_machine_below_the_limit_is_strained_until_the_guard_goes() {
        let governor = Governor::new(Floors::default(), Census::default());
        let limits = PressureLimits { soft: Bytes(u64::MAX / 2), hard: Bytes::ZERO, stalled: 101.0 };
        let guard = Guard::start(governor.clone(), &ComputeDevice::Cpu, limits).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while governor.pressure().0 != Pressure::Soft {
            assert!(Instant::now() < deadline);
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(guard);
        let looks = governor.pressure().1;
        std::thread::sleep(3 * LOOK_EVERY);
        assert_eq!(governor.pressure().1, looks);
    }
}
