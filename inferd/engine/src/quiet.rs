//! What is done when nothing is: memory nobody needs goes back, and the account is compared with the machine. And what
//! is done when memory runs out for reasons outside this process.

use crate::running::End;
use crate::scheduler::Scheduler;
use crate::{Event, Refusal, RequestFault};
use ds4_banks::SaveReason;
use ds4_governor::Pressure;
use ds4_units::Bytes;
use std::time::{Duration, Instant};

/// After so much quiet the machine is compared with the account.
const SETTLED: Duration = Duration::from_secs(2);

impl Scheduler {
    /// The engine has had nothing to compute for so long.
    pub(crate) fn idle(&mut self, quiet: Duration) {
        self.counters.note_work();
        self.relieve();
        self.give_back_beside();
        self.trim_rested();
        // There may be another keeper than there was.
        self.tell_keeper();
        if quiet >= SETTLED {
            self.enter_into_books();
            self.reconcile();
        }
    }

    /// Gives back what kept conversations that nobody has used for a while hold beyond what their next turn needs, each
    /// once until it is used again, whatever others do meanwhile.
    pub(crate) fn trim_rested(&mut self) {
        let Some(then) = self.watch.now().checked_sub(self.options.idle_trim) else { return };
        let rested = self.warm.untrimmed_since(then);
        if rested.is_empty() {
            return;
        }
        let before = self.warm.held();
        for &bank in &rested {
            self.model.trim(bank);
            let held = self.held(bank);
            self.warm.was_trimmed(bank, held);
        }
        let given_back = Bytes(before.0.saturating_sub(self.warm.held().0));
        self.counters.trims.add(rested.len());
        self.counters.trimmed_bytes.add(given_back.index());
        self.enter_into_books();
        if given_back > Bytes::ZERO {
            tracing::info!(bytes = %given_back, rested = rested.len(), "memory: idle conversations gave back");
        }
    }

    fn reconcile(&mut self) {
        let flagged_before = self.account.governor().reconciliation().is_some_and(|last| last.residual.flagged);
        let Some(residual) = self.account.reconcile() else { return };
        if residual.flagged && !flagged_before {
            let held = self.account.governor().census().live(ds4_governor::Domain::Device);
            let who =
                if residual.bytes > 0 { "taken by somebody else, or lost" } else { "given back by somebody else" };
            tracing::warn!(
                residual_mib = residual.bytes / (1 << 20),
                one_time_mib = residual.one_time / (1 << 20),
                held = %held,
                "memory: the account does not explain what the machine says; {who}"
            );
        }
    }

    /// Makes room for others when the machine runs out of memory: one thing for every look of the guard, so that it can
    /// see what that brought. Idle conversations first, then, at the last limit, work: the newest that waits, then the
    /// newest that runs, saved before it goes.
    pub(crate) fn relieve(&mut self) {
        let (pressure, look) = self.account.governor().pressure();
        if pressure == Pressure::None || look == self.relieved {
            return;
        }
        self.relieved = look;
        if let Some(victim) = self.oldest_kept() {
            return self.give_up(victim);
        }
        match pressure {
            Pressure::Hard if !self.refuse_newest() => self.end_newest(),
            // Nothing of ours is left that could make room: whoever waits is told so.
            Pressure::Soft if self.running.is_empty() => while self.refuse_newest() {},
            _ => {}
        }
    }

    fn refuse_newest(&mut self) -> bool {
        let Some(waiting) = self.take_newest_waiting() else { return false };
        let refusal = self.refusal_of_pressure();
        self.counters.refused(refusal.reason);
        waiting.outbox.end(Event::Failed(refusal.into()));
        true
    }

    fn refusal_of_pressure(&self) -> Refusal {
        Refusal { retry_after: self.next_end(), ..Refusal::of_pressure() }
    }

    fn end_newest(&mut self) {
        let Some(index) = self.running.len().checked_sub(1) else { return };
        let running = &self.running[index];
        let bank = running.bank;
        let (record, held) = running.record();
        let mut record = record.clone();
        record.truncate(held);
        self.save_before_it_goes(bank, &record, SaveReason::Evict);
        let refusal = self.refusal_of_pressure();
        self.retire(vec![(index, End::Fault(RequestFault::Memory(refusal)))]);
        if self.warm.holds(bank) {
            self.give_up(bank);
        }
    }

    /// Requests that have waited longer than anybody should are told so.
    pub(crate) fn turn_away_old(&mut self) {
        let limit = self.options.queue_age_max;
        if limit.is_zero() {
            return;
        }
        let now = Instant::now();
        while let Some(waiting) = self.take_waiting_since(now.checked_sub(limit)) {
            self.counters.failed.add(1);
            let wait = self.counters.time_for(self.waiting_count() + 1);
            waiting.outbox.end(Event::Failed(RequestFault::QueuedTooLong { limit, wait }));
        }
    }
}
