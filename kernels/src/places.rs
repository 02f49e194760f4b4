//! Which bytes of a step's memory are given out: offsets and lengths only.

use std::collections::BTreeMap;

/// What is given out and what is free between it. The same requests in the same order get the same places.
#[derive(Default)]
pub(crate) struct Places {
    /// Lengths of the gaps before `end`, by where they start. No two touch.
    gaps: BTreeMap<u64, u64>,
    /// Behind it nothing is given out.
    end: u64,
}

impl Places {
    /// Where `len` bytes are free; they are no longer.
    pub(crate) fn take(&mut self, len: u64) -> u64 {
        if let Some((&offset, &gap)) = self.gaps.iter().find(|&(_, &gap)| gap >= len) {
            self.gaps.remove(&offset);
            if gap > len {
                self.gaps.insert(offset + len, gap - len);
            }
            return offset;
        }
        let offset = self.end;
        self.end = offset + len;
        offset
    }

    /// Takes back what was given out.
    pub(crate) fn give_back(&mut self, mut offset: u64, mut len: u64) {
        if let Some((&before, &gap)) = self.gaps.range(..offset).next_back()
            && before + gap == offset
        {
            self.gaps.remove(&before);
            (offset, len) = (before, gap + len);
        }
        if let Some(gap) = self.gaps.remove(&(offset + len)) {
            len += gap;
        }
        if offset + len == self.end {
            self.end = offset;
        } else {
            self.gaps.insert(offset, len);
        }
    }

    /// Behind it nothing is given out.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that look random.
    fn next(state: &mut u64) -> u64 {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *state >> 33
    }

    #[test]
    fn no_byte_is_given_to_two_and_all_come_back() {
        let (mut places, mut state, mut out) = (Places::default(), 7, Vec::<(u64, u64)>::new());
        for round in 0..20_000 {
            let grows = next(&mut state) % 100 < if round < 15_000 { 52 } else { 20 };
            if grows || out.is_empty() {
                let len = 1 + next(&mut state) % 300;
                let offset = places.take(len);
                let apart = |&(other, own): &(u64, u64)| offset + len <= other || other + own <= offset;
                assert!(out.iter().all(apart) && offset + len <= places.end());
                out.push((offset, len));
            } else {
                let (offset, len) = out.swap_remove(next(&mut state) as usize % out.len());
                places.give_back(offset, len);
                assert!(out.iter().all(|&(other, own)| other + own <= places.end()));
            }
        }
        out.into_iter().for_each(|(offset, len)| places.give_back(offset, len));
        assert_eq!((places.end(), places.gaps.len()), (0, 0));
    }

    #[test]
    fn the_same_requests_get_the_same_places() {
        let run = || {
            let mut places = Places::default();
            let first = [places.take(100), places.take(50), places.take(100)];
            places.give_back(first[0], 100);
            (first, [places.take(30), places.take(60), places.take(30)])
        };
        assert_eq!(run(), run());
        assert_eq!(run(), ([0, 100, 150], [0, 30, 250]));
    }
}
