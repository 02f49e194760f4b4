//! Running out of file descriptors while loading. Alone in its file, because the limit is the whole process's.

mod support;

use ds4_gpu::RangeError;
use ds4_resident::LoadError;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use support::{load_all, model, open_ranges, plan_of, small_ranges};

/// Takes every free descriptor number below the highest one in use, so that the next ones are consecutive.
fn fill_gaps() -> (Vec<File>, u64) {
    let numbers = std::fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap().file_name());
    let highest: RawFd = numbers.map(|name| name.to_str().unwrap().parse().unwrap()).max().unwrap();
    let mut files = Vec::new();
    loop {
        let file = File::open("/dev/null").unwrap();
        let number = file.as_raw_fd();
        if number > highest {
            return (files, number as u64);
        }
        files.push(file);
    }
}

#[test]
fn a_range_that_cannot_be_created_frees_those_before_it_and_the_next_load_works() {
    let folder = tempfile::tempdir().unwrap();
    let model = model(folder.path());
    let plan = plan_of(&model, &small_ranges());
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    let (_gaps, next) = fill_gaps();
    for k in 0..plan.ranges.len() {
        // One descriptor is for reading the file directly, k are for ranges.
        setrlimit(Resource::RLIMIT_NOFILE, next + 1 + k as u64, hard).unwrap();
        let result = load_all(&model, &plan, "scarce");
        setrlimit(Resource::RLIMIT_NOFILE, hard.min(1024), hard).unwrap();
        let error = result.unwrap_err();
        assert!(matches!(error, LoadError::Range(RangeError::Create { .. })), "{error}");
        let expected = format!("cannot create range \"scarce-base-{k:03}\"");
        assert!(error.to_string().starts_with(&expected), "{error}");
        assert!(error.to_string().contains("Too many open files"), "{error}");
        assert_eq!(open_ranges("scarce"), 0);
    }
    assert_eq!(load_all(&model, &plan, "scarce").unwrap().ranges.len(), plan.ranges.len());
}
