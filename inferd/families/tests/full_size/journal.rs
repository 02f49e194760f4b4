//! What every operation of a step gave on one backend, and by how much another one's results differ.
//!
//! Two computations of a model that rounds differ in two ways. Values are off by the noise of `f32` sums, which stays
//! small. And *decisions* fall to the other side where that noise meets a tie: the code of a stored value, the experts of
//! a token, the compressed rows of a query. A decision that fell otherwise changes everything after it, by as much as
//! the decision weighs. So a comparison can let the second computation go its own way, or give it the first one's
//! decisions, or the first one's result after every operation.

use crate::work::{Part, Work};
use ds4_kernels::Rows;
use ds4_kernels::compression::Selection;
use ds4_kernels::experts::{EXPERTS_USED, Routes};
use std::fmt;
use std::sync::Arc;

/// Which results a comparison goes on with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Its own.
    Nothing,
    /// The truth's decisions: stored rows, experts.
    Decisions,
    /// Every result of the truth, so that each operation is compared on equal inputs.
    Everything,
}

/// What an operation's result is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Rows.
    Value(&'static str),
    /// The streams after a site.
    Streams,
    /// Rows that are rounded and stored next.
    Unrounded(&'static str),
    /// Rows as storing has rounded them to codes.
    Codes(&'static str),
    /// Experts, with the logits that chose them.
    Routes,
    /// Compressed rows.
    Selection,
}

/// A result on the host.
pub(crate) enum Seen {
    Rows(Rows),
    Routes(Routes, Rows),
    Selection(Selection),
}

/// An operation that was put into the device's stream.
pub(crate) struct Launched {
    /// What it mainly is.
    pub(crate) part: Part,
    /// The least that its parts take.
    pub(crate) works: Vec<(Part, Work)>,
    /// Kernels that had been launched after it.
    pub(crate) kernels: u64,
}

/// Experts of every row, layer by layer.
pub(crate) type Chosen = Vec<Vec<[u32; EXPERTS_USED]>>;

/// What is noted of operations that nobody looks at.
#[derive(Default)]
struct Trace {
    operations: Vec<Launched>,
    /// Of the layers that are still to come, the next one last.
    routes: Chosen,
    /// How many compressed rows the layer has chosen for each query.
    top: Option<usize>,
}

enum Mode {
    Off,
    Trace(Trace),
    Routes(Chosen),
    Record(Vec<Seen>),
    Compare(Arc<Vec<Seen>>, Taken, Box<Findings>),
}

/// What a backend's operations show their results to.
pub(crate) struct Journal {
    mode: Mode,
    seen: usize,
}

impl Journal {
    pub(crate) fn new() -> Journal {
        Journal { mode: Mode::Off, seen: 0 }
    }

    /// Keeps every result from now on.
    pub(crate) fn record(&mut self) {
        *self = Journal { mode: Mode::Record(Vec::new()), seen: 0 };
    }

    /// Keeps the experts of every layer from now on.
    pub(crate) fn keep_routes(&mut self) {
        *self = Journal { mode: Mode::Routes(Vec::new()), seen: 0 };
    }

    /// The experts that were kept. Keeps none any more.
    pub(crate) fn routes(&mut self) -> Chosen {
        match std::mem::replace(&mut self.mode, Mode::Off) {
            Mode::Routes(routes) => routes,
            _ => Vec::new(),
        }
    }

    /// Takes note of every operation from now on; the layers of the step that comes choose these experts.
    pub(crate) fn trace(&mut self, mut routes: Chosen) {
        routes.reverse();
        *self = Journal { mode: Mode::Trace(Trace { routes, ..Trace::default() }), seen: 0 };
    }

    /// The operations of which note was taken. Takes note of none any more.
    pub(crate) fn traced(&mut self) -> Vec<Launched> {
        match std::mem::replace(&mut self.mode, Mode::Off) {
            Mode::Trace(trace) => trace.operations,
            _ => Vec::new(),
        }
    }

    /// Whether it takes note of operations.
    pub(crate) fn traces(&self) -> bool {
        matches!(self.mode, Mode::Trace(_))
    }

    /// Whether it looks at results.
    pub(crate) fn looks(&self) -> bool {
        !matches!(self.mode, Mode::Off | Mode::Trace(_))
    }

    /// Whether operations that stand for several may be computed at once, on a device that says whether it does so.
    pub(crate) fn takes_at_once(&self, does: impl FnOnce() -> bool) -> bool {
        match &self.mode {
            Mode::Off | Mode::Trace(_) => true,
            // Where each is looked at only in passing, what ships is compared.
            Mode::Compare(_, Taken::Nothing, _) => does(),
            Mode::Compare(..) | Mode::Record(_) | Mode::Routes(_) => false,
        }
    }

    /// Takes note of an operation.
    pub(crate) fn done(&mut self, part: Part, works: Vec<(Part, Work)>, kernels: u64) {
        if let Mode::Trace(trace) = &mut self.mode {
            trace.operations.push(Launched { part, works, kernels });
        }
    }

    /// What a product is that comes now.
    pub(crate) fn products(&self) -> Part {
        match &self.mode {
            Mode::Trace(trace) => match trace.operations.last().map(|last| last.part) {
                Some(Part::Settling | Part::QueryProducts) => Part::QueryProducts,
                Some(Part::Collapse) => Part::Head,
                _ => Part::InputProducts,
            },
            _ => Part::InputProducts,
        }
    }

    /// The layer has chosen so many compressed rows for each query.
    pub(crate) fn chose(&mut self, top: usize) {
        if let Mode::Trace(trace) = &mut self.mode {
            trace.top = Some(top);
        }
    }

    /// How many compressed rows the layer has chosen for each query, if it did.
    pub(crate) fn chosen(&mut self) -> Option<usize> {
        match &mut self.mode {
            Mode::Trace(trace) => trace.top.take(),
            _ => None,
        }
    }

    /// The experts of the next layer.
    pub(crate) fn next_routes(&mut self) -> Vec<[u32; EXPERTS_USED]> {
        match &mut self.mode {
            Mode::Trace(trace) => trace.routes.pop().unwrap_or_default(),
            _ => Vec::new(),
        }
    }

    /// What was kept. Keeps nothing any more.
    pub(crate) fn recorded(&mut self) -> Vec<Seen> {
        match std::mem::replace(&mut self.mode, Mode::Off) {
            Mode::Record(seen) => seen,
            _ => Vec::new(),
        }
    }

    /// Compares every result from now on with the truth's of the same steps.
    pub(crate) fn compare(&mut self, truth: &Arc<Vec<Seen>>, taken: Taken) {
        *self = Journal { mode: Mode::Compare(Arc::clone(truth), taken, Box::default()), seen: 0 };
    }

    /// What was found. Compares nothing any more.
    pub(crate) fn findings(&mut self) -> Findings {
        match std::mem::replace(&mut self.mode, Mode::Off) {
            Mode::Compare(.., findings) => *findings,
            _ => Findings::default(),
        }
    }

    /// Passes over results of the truth that the operation at hand does not show.
    pub(crate) fn skip(&mut self, results: usize) {
        self.seen += results;
    }

    /// Takes note of a result, which `bring` brings to the host; returns the one to go on with, if it is another.
    pub(crate) fn see(&mut self, kind: Kind, bring: impl FnOnce() -> Seen) -> Option<&Seen> {
        self.seen += 1;
        match &mut self.mode {
            Mode::Off | Mode::Trace(_) => None,
            Mode::Routes(routes) => {
                if kind == Kind::Routes
                    && let Seen::Routes(seen, _) = bring()
                {
                    routes.push(seen.experts);
                }
                None
            }
            Mode::Record(seen) => {
                seen.push(bring());
                None
            }
            Mode::Compare(truth, taken, findings) => {
                let want = &truth[self.seen - 1];
                findings.note(kind, &bring(), want);
                let is_decision = matches!(kind, Kind::Unrounded(_) | Kind::Routes);
                (*taken == Taken::Everything || *taken == Taken::Decisions && is_decision).then_some(want)
            }
        }
    }
}

/// Values that one thread compares.
const VALUES_AT_ONCE: usize = 4 << 20;

/// Differences of values above this, relative to the largest, are worth naming.
const NOTABLE: f32 = 1e-4;

/// Differences over all operations.
#[derive(Default)]
pub(crate) struct Findings {
    /// The largest difference of an operation's values, relative to their largest magnitude, and where.
    pub(crate) worst: (f32, String),
    /// The first operation with a notable difference.
    pub(crate) first: Option<(f32, String)>,
    /// Size of the differences of the streams relative to the streams, after every site.
    pub(crate) streams: Vec<f64>,
    /// Values stored as codes.
    pub(crate) codes: Decisions,
    /// Rows that chose experts.
    pub(crate) routes: Decisions,
    /// Chosen compressed rows.
    pub(crate) choices: Decisions,
    /// By how much the scores of experts that changed places were apart at most.
    margin: f32,
    /// Layers in which the last row, whose logits are compared, chose other experts.
    pub(crate) last_row: Vec<usize>,
}

/// Decisions, and how many fell otherwise.
#[derive(Default)]
pub(crate) struct Decisions {
    pub(crate) all: usize,
    pub(crate) otherwise: usize,
    first: Option<String>,
}

impl Decisions {
    fn add(&mut self, all: usize, otherwise: usize, place: impl FnOnce() -> String) {
        self.all += all;
        self.otherwise += otherwise;
        if otherwise > 0 && self.first.is_none() {
            self.first = Some(place());
        }
    }
}

impl Findings {
    fn note(&mut self, kind: Kind, got: &Seen, want: &Seen) {
        let site = self.streams.len();
        let place = move |what: &str| format!("{what} of layer {}{}", site / 2, ["", ", second half"][site % 2]);
        match (got, want) {
            (Seen::Rows(got), Seen::Rows(want)) => match kind {
                Kind::Codes(what) => {
                    let pairs = got.values().iter().zip(want.values());
                    let otherwise = pairs.filter(|(got, want)| got != want).count();
                    self.codes.add(want.values().len(), otherwise, || place(what));
                }
                Kind::Value(what) | Kind::Unrounded(what) => self.note_values(got, want, &place(what)),
                _ => {
                    self.note_values(got, want, &place("streams"));
                    self.streams.push(size_of_difference(got.values(), want.values()));
                }
            },
            (Seen::Routes(got, got_logits), Seen::Routes(want, want_logits)) => {
                let (mut otherwise, last) = (0, want.experts.len() - 1);
                for (row, (got, want)) in got.experts.iter().zip(&want.experts).enumerate() {
                    let left = without(want, got);
                    let came = without(got, want);
                    otherwise += usize::from(!left.is_empty());
                    if row == last && !left.is_empty() {
                        self.last_row.push(site / 2);
                    }
                    let moved = |expert: u32| {
                        let logit = |logits: &Rows| score(logits.row(row)[expert as usize]);
                        logit(want_logits) - logit(got_logits)
                    };
                    // Their scores, biased alike, were in one order there and in the other here.
                    let pairs = left.iter().zip(&came).map(|(&left, &came)| moved(left) - moved(came));
                    self.margin = pairs.fold(self.margin, f32::max);
                }
                self.routes.add(want.experts.len(), otherwise, || place("experts"));
            }
            (Seen::Selection(got), Seen::Selection(want)) => self.note_selection(got, want, &place("chosen rows")),
            _ => panic!("the two sides did not run the same operations: {kind:?}"),
        }
    }

    fn note_values(&mut self, got: &Rows, want: &Rows, place: &str) {
        assert_eq!((got.len(), got.width()), (want.len(), want.width()), "{place}");
        let (apart, top) = apart(got.values(), want.values());
        let off = apart / top;
        if off > self.worst.0 {
            self.worst = (off, place.to_string());
        }
        if off > NOTABLE && self.first.is_none() {
            self.first = Some((off, place.to_string()));
        }
    }

    fn note_selection(&mut self, got: &Selection, want: &Selection, place: &str) {
        let (mut all, mut otherwise) = (0, 0);
        for query in 0..want.len() {
            match (got.of(query), want.of(query)) {
                (Some(got), Some(want)) => {
                    all += want.len();
                    otherwise += want.iter().filter(|row| got.binary_search(row).is_err()).count();
                }
                // All rows against some.
                (got, want) => otherwise += usize::from(got != want),
            }
        }
        self.choices.add(all, otherwise, || place.to_string());
    }
}

/// Which of these experts are not among the others.
fn without(these: &[u32], others: &[u32]) -> Vec<u32> {
    these.iter().copied().filter(|expert| !others.contains(expert)).collect()
}

/// A router's score of a logit.
fn score(logit: f32) -> f32 {
    (logit.max(0.0) + (-logit.abs()).exp().ln_1p()).sqrt()
}

/// The largest difference and the largest magnitude that is expected.
fn apart(got: &[f32], want: &[f32]) -> (f32, f32) {
    let of_part = |(got, want): (&[f32], &[f32])| {
        got.iter().zip(want).fold((0.0f32, f32::MIN_POSITIVE), |(apart, top), (got, want)| {
            let off = (got - want).abs();
            (if off.is_nan() { f32::INFINITY } else { apart.max(off) }, top.max(want.abs()))
        })
    };
    let parts = got.chunks(VALUES_AT_ONCE).zip(want.chunks(VALUES_AT_ONCE));
    std::thread::scope(|scope| {
        let parts: Vec<_> = parts.map(|part| scope.spawn(move || of_part(part))).collect();
        let parts = parts.into_iter().map(|part| part.join().expect("comparing does not panic"));
        parts.fold((0.0f32, f32::MIN_POSITIVE), |(apart, top), (a, t)| (apart.max(a), top.max(t)))
    })
}

/// Size of the difference relative to `want`.
fn size_of_difference(got: &[f32], want: &[f32]) -> f64 {
    let pairs = got.iter().zip(want).map(|(&got, &want)| (f64::from(got), f64::from(want)));
    let (apart, all) =
        pairs.fold((0.0, 0.0), |(apart, all), (got, want)| (apart + (got - want) * (got - want), all + want * want));
    (apart / all).sqrt()
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.codes.all > 0 {
            write!(f, "codes {}, ", self.codes)?;
        }
        write!(f, "experts {}", self.routes)?;
        if self.routes.otherwise > 0 {
            write!(f, " (scores at most {:.1e} apart), the last row's in layers {:?}", self.margin, self.last_row)?;
        }
        if self.choices.all > 0 {
            write!(f, ", chosen rows {}", self.choices)?;
        }
        match &self.first {
            Some((off, place)) => write!(f, "; first off by {off:.1e}: {place}; worst ")?,
            None => write!(f, "; worst ")?,
        }
        write!(f, "{:.1e}: {}; streams after each layer", self.worst.0, self.worst.1)?;
        self.streams.iter().skip(1).step_by(2).try_for_each(|off| write!(f, " {off:.0e}"))
    }
}

impl fmt::Display for Decisions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} otherwise", self.otherwise, self.all)?;
        self.first.as_ref().map_or(Ok(()), |first| write!(f, " from {first} on"))
    }
}
