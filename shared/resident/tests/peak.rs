//! Memory while loading. Alone in its file, because it measures the whole process.

mod support;

use ds4_gguf::{Model, writer::Writer};
use ds4_resident::{PlanOptions, Progress, Reading, Role, load, staging_bytes};
use ds4_units::{Bytes, TensorType};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use support::{Plenty, load_options, plan_of};

/// Memory of this process: its own, and the ranges it holds.
fn held(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    let own: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    let begin = format!("/memfd:{name}-");
    let size = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.unwrap().path();
        let ours = path.read_link().is_ok_and(|target| target.to_string_lossy().starts_with(&begin));
        if ours { std::fs::metadata(path).map_or(0, |metadata| metadata.blocks() * 512) } else { 0 }
    };
    own * 1024 + std::fs::read_dir("/proc/self/fd").unwrap().map(size).sum::<u64>()
}

struct Peak(AtomicU64);

impl Progress for Peak {
    fn read(&self, _done: Bytes) {
        self.0.fetch_max(held("peak"), Ordering::Relaxed);
    }

    fn note(&self, _text: &str) {}
}

#[test]
fn the_peak_is_at_most_staging_and_one_range_above_what_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    {
        let tensor = |writer: Writer, i: u64| {
            writer.tensor(&format!("t{i}"), TensorType::I8, &[6 << 20], support::bytes(6 << 20, i))
        };
        (0..16).fold(Writer::new("example"), tensor).write(&path).unwrap();
    }
    let model = Model::open(&path).unwrap();
    let span = Bytes::mib(16);
    let plan = plan_of(&model, &PlanOptions { span, ..PlanOptions::default() });
    assert!(plan.ranges.len() >= 6);
    let peak = Peak(AtomicU64::new(0));
    let cancel = AtomicBool::new(false);
    let reading = Reading { threads: 4, progress: &peak, cancel: &cancel };
    let resident = load(&plan, &[(Role::Base, &model)], &load_options("peak"), &Plenty, &reading).unwrap();
    let stays = held("peak");
    assert!(stays > plan.totals.raw.0);
    let above = peak.0.load(Ordering::Relaxed).saturating_sub(stays);
    assert!(above <= staging_bytes(4).0 + span.0, "{}", Bytes(above));
    drop(resident);
    assert!(held("peak") + plan.totals.raw.0 <= stays);
}
