//! What an owner takes from the machine.

use crate::kit::{Rig, greet, status};
use ds4_tests::Process;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

/// A `VmRSS:`-like line of a process's status, in bytes.
fn memory(process: &Process, key: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/status", process.pid())).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    line.trim().strip_suffix(" kB").unwrap().trim().parse::<u64>().unwrap() * 1024
}

/// Memory that the owner's ranges really take.
fn range_memory(process: &Process) -> u64 {
    let fds = fs::read_dir(format!("/proc/{}/fd", process.pid())).unwrap();
    let ranges = fds.filter_map(|fd| {
        let path = fd.unwrap().path();
        let target = fs::read_link(&path).ok()?;
        target.to_str()?.contains("memfd:ds4-").then(|| fs::metadata(&path).unwrap().blocks() * 512)
    });
    ranges.sum()
}

/// Clock ticks of processor time used so far.
fn ticks(process: &Process) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.pid())).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_ascii_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[test]
fn peak_memory_is_what_stays_and_the_staging_buffers() {
    let rig = Rig::slow(512);
    let owner = rig.ready(&["--span-mb", "64"]);
    let status = status(&rig.connect()).unwrap();
    // The end of a range is rounded up to 64 KiB and never written.
    let unused = status.bytes - range_memory(&owner);
    assert!(unused < status.ranges * (64 << 10), "{unused} bytes are planned and not used");
    // Ranges are never mapped, so they are not in these figures; they only grow while loading.
    let (peak, now) = (memory(&owner, "VmHWM:"), memory(&owner, "VmRSS:"));
    let staging = status.memory.iter().find(|term| term.term == "staging").unwrap().bytes;
    assert!(peak - now <= staging, "{peak} - {now} is more than {staging}");
    assert!(now < 64 << 20, "{now} bytes resident beside the weights");
    owner.terminate().unwrap();
}

/// How often threads of a process have begun to wait for something: each time is one at which they had something to do.
fn wakes(process: &Process) -> u64 {
    let threads = fs::read_dir(format!("/proc/{}/task", process.pid())).unwrap();
    let of_thread = |text: String| -> Option<u64> {
        text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?.trim().parse().ok()
    };
    // A thread may end while it is looked at.
    threads.filter_map(|thread| of_thread(fs::read_to_string(thread.ok()?.path().join("status")).ok()?)).sum()
}

/// How long an owner is watched at a time.
const WATCHED: Duration = Duration::from_secs(4);

#[test]
fn an_idle_owner_uses_no_processor_time() {
    let rig = Rig::new();
    let owner = rig.ready(&[]);
    let worker = rig.connect();
    greet(&worker).unwrap();
    // What it did before may still be on its way into the figures, the longer the busier the machine is. Once a second it
    // looks for a keeper; who polled would wake more often, and who span would use time, in every one of these spells.
    let mut spells = Vec::new();
    for _ in 0..5 {
        let (wakes_before, ticks_before) = (wakes(&owner), ticks(&owner));
        std::thread::sleep(WATCHED);
        // Fewer than before: threads have ended, which is no rest either.
        let spell = (wakes(&owner).abs_diff(wakes_before), ticks(&owner) - ticks_before);
        if spell.0 <= 2 * WATCHED.as_secs() && spell.1 <= 1 {
            return drop(owner.terminate().unwrap());
        }
        spells.push(spell);
    }
    panic!("woke so often, and used so many ticks, in {WATCHED:?} each: {spells:?}");
}

#[test]
fn the_ranges_are_sealed_against_every_change() {
    let rig = Rig::new();
    let owner = rig.ready(&[]);
    let fds = fs::read_dir(format!("/proc/{}/fd", owner.pid())).unwrap();
    let ranges: Vec<_> = fds
        .map(|fd| fd.unwrap().path())
        .filter(|path| fs::read_link(path).is_ok_and(|target| target.to_string_lossy().contains("memfd:ds4-weights")))
        .collect();
    let names: Vec<_> = ranges.iter().map(|range| fs::read_link(range).unwrap()).collect();
    assert_eq!(ranges.len(), 2, "{names:?}");
    for range in ranges {
        let file = fs::OpenOptions::new().read(true).write(true).open(&range).unwrap();
        assert!(file.set_len(1).is_err() && file.set_len(1 << 40).is_err());
        assert!(std::os::unix::fs::FileExt::write_at(&file, b"x", 0).is_err());
    }
    owner.terminate().unwrap();
}
