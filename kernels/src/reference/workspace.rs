//! Memory of a step on the CPU: activations and scratch, given out and taken back as operations come and go.
//!
//! It is taken once, for the largest step there may be, and stays: afterwards steps take nothing of the process's memory
//! that was not counted before. What does not fit, and everything while nothing was taken, is the allocator's.
//!
//! Taking it makes no pages: that would hold up a start for milliseconds. Pieces are made, from the first value on, when
//! steps reach them first; until then they are counted as what is still to come.
#![allow(unsafe_code)]

use crate::BackendError;
use crate::Rows;
use crate::places::Places;
use ds4_units::Bytes;
use std::cell::UnsafeCell;
use std::collections::TryReserveError;
use std::fmt;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Pieces begin at multiples of so many values: no two share a cache line.
const ALIGN: usize = 16;

/// All memory of a backend's steps. Cloning gives another door to it.
#[derive(Clone, Default)]
pub(crate) struct Workspace(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// What was taken; nothing at first.
    held: Arc<Held>,
    /// How many of these values are there, from the first on: initialised, in pages that the process has.
    made: usize,
    /// Which of it is given out, counted in values.
    places: Places,
    /// While operations are only tried out: how many values they have reached.
    tried: Option<u64>,
    /// How many pieces the allocator had to give although memory was taken.
    beyond: usize,
}

/// Values that pieces lie in.
#[derive(Default)]
struct Held(Box<[UnsafeCell<MaybeUninit<f32>>]>);

impl Held {
    /// So many values, none of which is there yet.
    fn reserve(values: usize) -> Result<Held, TryReserveError> {
        let mut cells = Vec::new();
        cells.try_reserve_exact(values)?;
        // SAFETY: so many were reserved, and a value that may be uninitialised needs nothing written.
        unsafe { cells.set_len(values) };
        Ok(Held(cells.into_boxed_slice()))
    }
}

// SAFETY: values that are there are reached through pieces alone, which borrow them as a vector's are borrowed, and no two
// pieces that exist at a time have a value in common (`Places`). Others are reached by who makes them, with the lock.
unsafe impl Sync for Held {}

impl State {
    /// Has the first `end` values be there.
    fn make(&mut self, end: usize) {
        if end <= self.made {
            return;
        }
        let values = &self.held.0[self.made..end];
        let start = UnsafeCell::raw_get(values.as_ptr());
        // SAFETY: nobody else reaches them. All pieces of what is held lie below `made`, whoever makes more has the lock, and
        // the pointer came out of the cells, which may be written through a shared reference.
        let values = unsafe { std::slice::from_raw_parts_mut(start, values.len()) };
        // Nobody may read what nobody has written: it is no number.
        values.fill(MaybeUninit::new(f32::NAN));
        self.made = end;
    }
}

/// Values of a step: its own until it is dropped. While operations are only tried out it has none.
pub(crate) struct Piece(Source);

enum Source {
    /// The allocator's.
    Own(Vec<f32>),
    /// A part of what was taken.
    Lent { held: Arc<Held>, place: Place, len: usize },
    /// Nothing, but its place is taken.
    Tried(#[expect(dead_code, reason = "given back when it is dropped")] Place),
}

/// Room for so many values, which nobody else has until it is dropped.
struct Place {
    workspace: Workspace,
    offset: usize,
    len: u64,
}

/// Room for tasks of one piece of work. Their pieces take places of one length: whatever they need and in whatever order
/// they come and go, a gap that one leaves is a place for the next.
pub(crate) struct Tasks<'a> {
    workspace: &'a Workspace,
    most: usize,
}

impl Tasks<'_> {
    /// Room for `len` values, with whatever is in it, for one task.
    pub(crate) fn take(&self, len: usize) -> Piece {
        debug_assert!(len <= self.most);
        self.workspace.take_within(self.most.max(len), len)
    }
}

impl Workspace {
    /// Room for `len` values, with whatever is in it.
    pub(crate) fn take(&self, len: usize) -> Piece {
        self.take_within(len, len)
    }

    /// The same in a place for `most` values.
    fn take_within(&self, most: usize, len: usize) -> Piece {
        let mut state = self.state();
        let rounded = most.next_multiple_of(ALIGN) as u64;
        if rounded == 0 || (state.tried.is_none() && state.held.0.is_empty()) {
            drop(state);
            return Piece::from(vec![0.0; len]);
        }
        let offset = state.places.take(rounded) as usize;
        let (end, place) = (state.places.end(), Place { workspace: self.clone(), offset, len: rounded });
        if let Some(reached) = &mut state.tried {
            *reached = end.max(*reached);
            return Piece(Source::Tried(place));
        }
        if offset + len <= state.held.0.len() {
            state.make(offset + len);
            let held = Arc::clone(&state.held);
            return Piece(Source::Lent { held, place, len });
        }
        state.beyond += 1;
        drop((state, place));
        Piece::from(vec![0.0; len])
    }

    /// Room for rows, with whatever is in it.
    pub(crate) fn rows(&self, len: usize, width: usize) -> Rows {
        Rows::over(len, width, self.take(len * width))
    }

    /// Room for tasks of the work to come, one on every thread, each of which takes up to `most` values while it runs.
    pub(crate) fn tasks(&self, most: usize) -> Tasks<'_> {
        if self.is_tried() {
            drop(self.take(rayon::current_num_threads() * most.next_multiple_of(ALIGN)));
        }
        Tasks { workspace: self, most }
    }

    /// Does the work of an operation, whose memory was taken before: nothing while operations are only tried out.
    pub(crate) fn work(&self, work: impl FnOnce()) {
        if !self.is_tried() {
            work();
        }
    }

    /// What `operations` would take, all at once. They do no work.
    pub(crate) fn try_out(&self, operations: impl FnOnce()) -> Bytes {
        self.state().tried = Some(0);
        operations();
        bytes_of(self.state().tried.take().unwrap_or_default() as usize)
    }

    /// Takes memory for operations that have so much at once. Its pages come when it is reached first.
    pub(crate) fn hold(&self, bytes: Bytes) -> Result<(), BackendError> {
        let values = bytes.index().div_ceil(size_of::<f32>());
        if values <= self.state().held.0.len() {
            return Ok(());
        }
        // What was held may go first: whoever has a piece of it keeps it.
        let mut state = self.state();
        (state.held, state.made) = Default::default();
        let held = Held::reserve(values).map_err(|_| BackendError::OutOfMemory {
            what: "a step's activations",
            asked: bytes,
            free: Bytes::ZERO,
        })?;
        state.held = Arc::new(held);
        Ok(())
    }

    /// Memory that was taken, given out or not.
    pub(crate) fn bytes(&self) -> Bytes {
        bytes_of(self.state().held.0.len())
    }

    /// How much of it is there.
    pub(crate) fn made(&self) -> Bytes {
        bytes_of(self.state().made)
    }

    /// How many pieces did not fit into it so far.
    pub(crate) fn beyond(&self) -> usize {
        self.state().beyond
    }

    /// Whether operations are only tried out.
    pub(crate) fn is_tried(&self) -> bool {
        self.state().tried.is_some()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn bytes_of(values: usize) -> Bytes {
    Bytes((values * size_of::<f32>()) as u64)
}

impl fmt::Debug for Workspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Workspace").field(&self.bytes()).finish()
    }
}

impl From<Vec<f32>> for Piece {
    fn from(values: Vec<f32>) -> Piece {
        Piece(Source::Own(values))
    }
}

impl From<Piece> for Vec<f32> {
    fn from(mut piece: Piece) -> Vec<f32> {
        match &mut piece.0 {
            Source::Own(values) => std::mem::take(values),
            _ => piece.to_vec(),
        }
    }
}

impl Deref for Piece {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match &self.0 {
            Source::Own(values) => values,
            Source::Lent { held, place, len } => {
                let values = &held.0[place.offset..place.offset + *len];
                // SAFETY: they were initialised before this piece was given out (`take`), and live as long as `held`. No
                // other piece has them while this one exists, and this one lends them by its own borrows: nobody changes
                // them during this one.
                unsafe { std::slice::from_raw_parts(values.as_ptr().cast::<f32>(), values.len()) }
            }
            Source::Tried(_) => &[],
        }
    }
}

impl DerefMut for Piece {
    fn deref_mut(&mut self) -> &mut [f32] {
        match &mut self.0 {
            Source::Own(values) => values,
            Source::Lent { held, place, len } => {
                let values = &held.0[place.offset..place.offset + *len];
                let start = UnsafeCell::raw_get(values.as_ptr()).cast::<f32>();
                // SAFETY: as in `deref`; the pointer came out of the cells, which may be written through a shared
                // reference, and the borrow of the only piece that has them is exclusive.
                unsafe { std::slice::from_raw_parts_mut(start, values.len()) }
            }
            Source::Tried(_) => &mut [],
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.workspace.state().places.give_back(self.offset as u64, self.len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rayon::prelude::*;

    /// Some operations that hold a few pieces at a time, on several threads too.
    fn operations(workspace: &Workspace) {
        let first = workspace.take(100);
        let mut second = workspace.rows(3, 50);
        let tasks = workspace.tasks(70);
        workspace.work(|| {
            second.values_mut().fill(2.0);
            (0..200u16).into_par_iter().for_each(|task| {
                let mut own = tasks.take(70 - usize::from(task % 60));
                own.fill(f32::from(task));
                assert!(own.iter().all(|&value| value == f32::from(task)));
            });
            assert!(second.values().iter().all(|&value| value == 2.0));
        });
        drop(first);
        assert_eq!((second.len(), second.width()), (3, 50));
    }

    #[test]
    fn what_was_planned_is_enough_and_less_is_not() {
        let workspace = Workspace::default();
        operations(&workspace);
        let needed = workspace.try_out(|| operations(&workspace));
        assert_eq!(needed, bytes_of(112 + 160 + 80 * rayon::current_num_threads()));
        assert_eq!((workspace.bytes(), workspace.beyond()), (Bytes::ZERO, 0));
        workspace.hold(needed).unwrap();
        for _ in 0..50 {
            operations(&workspace);
        }
        assert_eq!((workspace.bytes(), workspace.beyond()), (needed, 0));
        let less = Workspace::default();
        less.hold(bytes_of(112 + 150)).unwrap();
        operations(&less);
        assert!(less.beyond() > 0);
        assert_eq!(less.bytes(), bytes_of(112 + 150));
    }

    #[test]
    fn pieces_outlive_memory_that_is_taken_anew() {
        let workspace = Workspace::default();
        workspace.hold(bytes_of(32)).unwrap();
        let mut before = workspace.take(32);
        before.fill(1.0);
        workspace.hold(bytes_of(64)).unwrap();
        let mut after = workspace.take(32);
        after.fill(2.0);
        assert!(before.iter().all(|&value| value == 1.0) && workspace.beyond() == 0);
        drop(before);
        assert!(after.iter().all(|&value| value == 2.0));
        drop(after);
        assert_eq!((workspace.take(64).len(), workspace.beyond()), (64, 0));
    }

    #[test]
    fn nobody_reads_a_number_that_nobody_has_written() {
        let workspace = Workspace::default();
        workspace.hold(bytes_of(64)).unwrap();
        let mut first = workspace.take(20);
        assert!(first.iter().all(|value| value.is_nan()));
        first.fill(1.0);
        assert!(workspace.take(30).iter().all(|value| value.is_nan()));
        assert!(first.iter().all(|&value| value == 1.0));
    }

    #[test]
    fn what_is_taken_is_made_when_it_is_reached_and_counted_from_the_beginning() {
        let workspace = Workspace::default();
        workspace.hold(bytes_of(1 << 20)).unwrap();
        let counted = || (workspace.made(), workspace.bytes());
        assert_eq!(counted(), (Bytes::ZERO, bytes_of(1 << 20)));
        workspace.try_out(|| drop(workspace.take(1 << 19)));
        assert_eq!(counted().0, Bytes::ZERO);
        let first = workspace.take(1000);
        assert_eq!(counted().0, bytes_of(1000));
        drop((workspace.take(16), first));
        drop(workspace.take(1000));
        assert_eq!(counted().0, bytes_of(1008 + 16));
        drop(workspace.take(1 << 20));
        assert_eq!(counted(), (bytes_of(1 << 20), bytes_of(1 << 20)));
        workspace.hold(bytes_of(1 << 21)).unwrap();
        assert_eq!(counted(), (Bytes::ZERO, bytes_of(1 << 21)));
    }
}
