//! The buffers of a step, and the life of each: noted while the step's operations are only tried out.

use ds4_units::Bytes;
use std::fmt;
use std::panic::Location;

/// Kernels that write before they wait for the launch in front of them; `arena.rs` says to what they may.
const EARLY_WRITERS: [&str; 3] = ["few_up", "few_settle_packed", "few_settle_plain"];
/// Kernels that let the next launch start before they have waited themselves.
const EARLY_STARTERS: [&str; 2] = ["few_settle_packed", "few_settle_plain"];

/// What the operations of a step asked for, in order.
#[derive(Clone, Debug, Default)]
pub struct StepPlan {
    /// Every buffer.
    pub buffers: Vec<Buffer>,
    /// Kernels that would have been launched, in order.
    pub launches: Vec<String>,
    /// Requests and returns so far.
    events: usize,
}

/// A buffer: where it lies and when somebody has it.
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    /// Who asked for it.
    pub source: &'static Location<'static>,
    /// Where it begins.
    pub offset: Bytes,
    /// Its length, rounded up as memory is given out.
    pub len: Bytes,
    /// From when on it is held.
    pub from: Moment,
    /// When it was given back; nothing: it was still held at the end.
    pub until: Option<Moment>,
}

/// A moment between two launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// Requests and returns before it.
    pub event: usize,
    /// Launches before it.
    pub launch: usize,
}

impl StepPlan {
    pub(super) fn take(&mut self, source: &'static Location<'static>, offset: u64, len: u64) -> usize {
        let from = self.now();
        self.buffers.push(Buffer { source, offset: Bytes(offset), len: Bytes(len), from, until: None });
        self.buffers.len() - 1
    }

    pub(super) fn give_back(&mut self, buffer: usize) {
        let now = self.now();
        self.buffers[buffer].until = Some(now);
    }

    fn now(&mut self) -> Moment {
        self.events += 1;
        Moment { event: self.events, launch: self.launches.len() }
    }

    /// Memory that has to be there.
    pub fn bytes(&self) -> Bytes {
        Bytes(self.buffers.iter().map(Buffer::end).max().unwrap_or(0))
    }

    /// Launches, by name and number, that may write to memory while others use it: they write before they wait, and there is
    /// a buffer that was taken after the launch in front of them, or that one has not waited either. None is right.
    pub fn written_too_early(&self) -> Vec<(&str, usize)> {
        let launches = self.launches.iter().map(String::as_str).enumerate();
        let writers = launches.filter(|(_, kernel)| EARLY_WRITERS.contains(kernel));
        let is_wrong = |launch: usize| {
            let before = launch.checked_sub(1).map(|before| self.launches[before].as_str());
            let is_started_early = before.is_some_and(|before| EARLY_STARTERS.contains(&before));
            is_started_early || self.buffers.iter().any(|buffer| buffer.from.launch == launch)
        };
        writers.filter(|&(launch, _)| is_wrong(launch)).map(|(launch, kernel)| (kernel, launch)).collect()
    }

    /// The buffers that are held together at the moment when they are most, and what they add up to.
    pub fn most_held(&self) -> (Bytes, Vec<Buffer>) {
        let held = |at: Moment| self.buffers.iter().filter(move |buffer| buffer.is_held(at));
        let sum = |at: Moment| held(at).map(|buffer| buffer.len.0).sum::<u64>();
        // It grows at requests only.
        let Some(at) = self.buffers.iter().map(|buffer| buffer.from).max_by_key(|&at| sum(at)) else {
            return (Bytes::ZERO, Vec::new());
        };
        (Bytes(sum(at)), held(at).copied().collect())
    }
}

impl Buffer {
    fn end(&self) -> u64 {
        self.offset.0 + self.len.0
    }

    /// Whether somebody has it.
    pub fn is_held(&self, at: Moment) -> bool {
        self.from <= at && self.until.is_none_or(|until| at < until)
    }

    /// Whether there is a moment when both are held.
    pub fn meets(&self, other: &Buffer) -> bool {
        self.is_held(other.from) || other.is_held(self.from)
    }

    /// Whether they have a byte in common.
    pub fn overlaps(&self, other: &Buffer) -> bool {
        self.offset.0 < other.end() && other.offset.0 < self.end()
    }
}

impl fmt::Display for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.source.file().rsplit_once("cuda/").map_or(self.source.file(), |(_, file)| file);
        let until = self.until.map_or_else(|| "the end".to_owned(), |until| until.launch.to_string());
        let source = format!("{file}:{}", self.source.line());
        let mib = |bytes: Bytes| bytes.0 as f64 / f64::from(1 << 20);
        write!(
            f,
            "{:9.2} MiB at {:8.2}, launches {} to {until}: {source}",
            mib(self.len),
            mib(self.offset),
            self.from.launch
        )
    }
}
