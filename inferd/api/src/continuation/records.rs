//! The records behind the registry, with the time as an argument.

use super::{Counts, KeepTurns, Kept, Lost, Protocol};
use crate::limits;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::time::Instant;

struct Record {
    kept: Arc<Kept>,
    /// The calls of the answer, in order.
    calls: Vec<String>,
    /// Nothing was said after it.
    is_last: bool,
    since: Instant,
    bytes: usize,
}

/// Oldest first.
pub(super) struct Records {
    keep: KeepTurns,
    records: VecDeque<Record>,
    /// Calls of turns that are not kept any more.
    forgotten: VecDeque<(Protocol, String)>,
    counts: Counts,
}

impl Records {
    pub(super) fn new(keep: KeepTurns) -> Records {
        Records { keep, records: VecDeque::new(), forgotten: VecDeque::new(), counts: Counts::default() }
    }

    /// What became of turns so far, and how many are kept now.
    pub(super) fn counts(&mut self, now: Instant) -> Counts {
        self.give_up_old(now);
        Counts { live: self.records.len() as u64, ..self.counts }
    }

    pub(super) fn by_calls(&mut self, protocol: Protocol, ids: &[String], now: Instant) -> Result<Arc<Kept>, Lost> {
        let found = self.find_by_calls(protocol, ids, now);
        self.counts.looked(found.is_ok());
        found
    }

    fn find_by_calls(&mut self, protocol: Protocol, ids: &[String], now: Instant) -> Result<Arc<Kept>, Lost> {
        self.give_up_old(now);
        let known = |id: &String| {
            let held = |record: &Record| record.kept.protocol == protocol && record.calls.contains(id);
            self.records.iter().any(held) || self.forgotten.iter().any(|(of, call)| *of == protocol && call == id)
        };
        if let Some(unknown) = ids.iter().find(|id| !known(id)) {
            return Err(Lost::Unknown(unknown.clone()));
        }
        let is_whole = |record: &&Record| {
            record.is_last
                && record.kept.protocol == protocol
                && record.calls.len() == ids.len()
                && record.calls.iter().all(|call| ids.contains(call))
        };
        self.records.iter().rev().find(is_whole).map(|record| record.kept.clone()).ok_or(Lost::MovedOn)
    }

    pub(super) fn by_response(&mut self, id: &str, now: Instant) -> Option<Arc<Kept>> {
        self.give_up_old(now);
        let found = self.records.iter().rev().find(|record| record.kept.id.as_deref() == Some(id));
        let found = found.map(|record| record.kept.clone());
        self.counts.looked(found.is_some());
        found
    }

    pub(super) fn forget(&mut self, id: &str, now: Instant) -> bool {
        self.give_up_old(now);
        let found = self.records.iter().position(|record| record.kept.id.as_deref() == Some(id));
        found.is_some_and(|index| self.give_up(index))
    }

    pub(super) fn keep(&mut self, kept: Kept, now: Instant) {
        self.give_up_old(now);
        let (calls, before) = kept.said.transcript.calls_of_last_answer();
        for record in &mut self.records {
            let continued = record.kept.protocol == kept.protocol
                && !record.calls.is_empty()
                && record.calls.iter().all(|call| before.contains(call.as_str()));
            self.counts.demoted += u64::from(record.is_last && continued);
            record.is_last &= !continued;
        }
        let bytes = kept.said.transcript.text_len();
        let is_found = kept.id.is_some() || !calls.is_empty();
        if !is_found || self.keep.records == 0 || bytes > limits::KEPT_BYTES_MAX {
            return;
        }
        self.make_room(bytes, now);
        self.counts.published += 1;
        self.records.push_back(Record { kept: Arc::new(kept), calls, is_last: true, since: now, bytes });
    }

    /// Gives up the oldest turns. Those that are in their grace go last.
    fn make_room(&mut self, bytes: usize, now: Instant) {
        while self.records.len() >= self.keep.records || self.bytes() + bytes > limits::KEPT_BYTES_MAX {
            let victim = self
                .records
                .iter()
                .position(|record| !record.is_last || record.calls.is_empty() || now - record.since >= self.keep.grace);
            if !self.give_up(victim.unwrap_or(0)) {
                return;
            }
        }
    }

    fn bytes(&self) -> usize {
        self.records.iter().map(|record| record.bytes).sum()
    }

    fn give_up_old(&mut self, now: Instant) {
        while self.records.front().is_some_and(|record| now - record.since >= self.keep.lifetime) {
            self.give_up(0);
        }
    }

    /// Forgets a turn but not that its calls were made.
    fn give_up(&mut self, index: usize) -> bool {
        let Some(record) = self.records.remove(index) else { return false };
        let protocol = record.kept.protocol;
        self.forgotten.extend(record.calls.into_iter().map(|call| (protocol, call)));
        let surplus = self.forgotten.len().saturating_sub(limits::FORGOTTEN_CALLS_MAX);
        self.forgotten.drain(..surplus);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::continuation::Said;
    use crate::transcript::Transcript;
    use ds4_model::{AssistantMessage, ToolArguments, ToolCall};
    use std::time::Duration;

    fn said(turns: &[&[&str]]) -> Transcript {
        let mut transcript = Transcript::default();
        for calls in turns {
            transcript.user("do it");
            for id in *calls {
                let arguments = ToolArguments::parse("");
                let tool_calls = vec![ToolCall { id: (*id).into(), name: "f".into(), arguments }];
                transcript.answer(AssistantMessage { tool_calls, ..AssistantMessage::default() });
            }
        }
        transcript
    }

    fn turn(id: &str, turns: &[&[&str]]) -> Kept {
        let said = Said { transcript: said(turns), ..Said::default() };
        Kept { protocol: Protocol::Responses, id: Some(id.to_owned()), said }
    }

    fn records(records: usize) -> (Records, Instant) {
        (Records::new(KeepTurns { records, ..KeepTurns::default() }), Instant::now())
    }

    fn found(records: &mut Records, ids: &[&str], now: Instant) -> Result<Option<String>, Lost> {
        let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
        records.by_calls(Protocol::Responses, &ids, now).map(|kept| kept.id.clone())
    }

    #[test]
    fn results_are_taken_for_exactly_the_calls_of_a_turn() {
        let (mut records, now) = records(8);
        records.keep(turn("r1", &[&["a", "b"]]), now);
        records.keep(turn("r2", &[&["c"]]), now);
        assert_eq!(found(&mut records, &["b", "a"], now), Ok(Some("r1".into())));
        assert_eq!(found(&mut records, &["a"], now), Err(Lost::MovedOn));
        assert_eq!(found(&mut records, &["a", "c"], now), Err(Lost::MovedOn));
        assert_eq!(found(&mut records, &["a", "x"], now), Err(Lost::Unknown("x".into())));
        let other = records.by_calls(Protocol::Messages, &["c".into()], now);
        assert_eq!(other.unwrap_err(), Lost::Unknown("c".into()));
    }

    #[test]
    fn a_conversation_that_went_on_leaves_its_older_turn_behind() {
        let (mut records, now) = records(8);
        records.keep(turn("r1", &[&["a"]]), now);
        records.keep(turn("r2", &[&["a"], &["b"]]), now);
        assert_eq!(found(&mut records, &["a"], now), Err(Lost::MovedOn));
        assert_eq!(found(&mut records, &["b"], now), Ok(Some("r2".into())));
        assert_eq!(records.by_response("r1", now).unwrap().id.as_deref(), Some("r1"));
    }

    #[test]
    fn what_becomes_of_turns_is_counted() {
        let (mut records, now) = records(8);
        records.keep(turn("r1", &[&["a"]]), now);
        records.keep(turn("r2", &[&["a"], &["b"]]), now);
        records.keep(Kept { id: None, ..turn("", &[&[]]) }, now);
        let _ = (found(&mut records, &["b"], now), found(&mut records, &["a"], now), found(&mut records, &["x"], now));
        let _ = (records.by_response("r1", now), records.by_response("nobody", now));
        let counts = Counts { published: 2, resolved: 2, missed: 3, demoted: 1, live: 2 };
        assert_eq!(records.counts(now), counts);
        assert_eq!(records.counts(now + Duration::from_secs(300)), Counts { live: 0, ..counts });
    }

    #[test]
    fn turns_grow_old_and_their_calls_are_remembered() {
        let (mut records, now) = records(8);
        records.keep(turn("r1", &[&["a"]]), now);
        assert!(found(&mut records, &["a"], now + Duration::from_secs(299)).is_ok());
        assert_eq!(found(&mut records, &["a"], now + Duration::from_secs(300)), Err(Lost::MovedOn));
        assert!(records.by_response("r1", now).is_none());
    }

    #[test]
    fn a_turn_in_its_grace_is_given_up_last() {
        let (mut records, now) = records(2);
        records.keep(turn("r1", &[&["a"]]), now);
        records.keep(turn("plain", &[&[]]), now);
        records.keep(turn("r2", &[&["b"]]), now + Duration::from_secs(1));
        assert!(found(&mut records, &["a"], now).is_ok(), "a turn without calls went first");
        records.keep(turn("r3", &[&["c"]]), now + Duration::from_secs(60));
        assert_eq!(found(&mut records, &["a"], now + Duration::from_secs(60)), Err(Lost::MovedOn));
        assert!(found(&mut records, &["b"], now + Duration::from_secs(60)).is_ok());
    }
}
