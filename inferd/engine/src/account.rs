//! The memory account that conversations are paid from.

use ds4_governor::{
    Census, Charge, Claim, Class, Consumer, Domain, Floors, Governor, Observation, Quote, Reconciliation, Residual,
    Source, Status, Verdict,
};
use ds4_units::{Bytes, MemoryUse};
use std::time::{Duration, Instant};

/// Looks at the machine. Called from the engine's thread, so it must be quick.
pub type Observe = Box<dyn FnMut() -> Observation + Send>;

/// Says what this process holds beside conversations of the memory that they are kept in; nothing where it cannot say. As
/// quick.
pub type OwnMemory = Box<dyn FnMut() -> Option<Bytes> + Send>;

/// A look at the machine is good for so long: requests that come together are decided on one.
const FRESH: Duration = Duration::from_millis(50);

/// What the account may fail to explain without being flagged.
const UNEXPLAINED_MAX: Bytes = Bytes::mib(256);

/// Pays for conversations: decides whether one more fits, and keeps the books of what all of them hold.
pub struct Account {
    governor: Governor,
    observe: Observe,
    charge: Charge,
    /// What the model holds beside conversations, by what it is for.
    beside: [Charge; MemoryUse::ALL.len()],
    /// What was taken before and is held as long as the model: its weights.
    taken: Vec<Charge>,
    own: Option<Own>,
    look: Option<Look>,
    reconciliation: Option<Reconciliation>,
    tolerance: Bytes,
}

/// What this process holds itself, and what it held when memory was planned, before any step.
struct Own {
    now: OwnMemory,
    planned: Option<Bytes>,
}

impl Own {
    /// What it holds beyond that and `steps`, which is what steps have come to hold of what was planned for them.
    fn grown(&mut self, steps: Bytes) -> Bytes {
        let planned = self.planned.map(|planned| planned.0.saturating_add(steps.0));
        let grown = (self.now)().zip(planned).map(|(now, planned)| now.0.saturating_sub(planned));
        Bytes(grown.unwrap_or(0))
    }
}

/// A look at the machine, and what this account held then.
#[derive(Clone, Copy)]
struct Look {
    at: Instant,
    observation: Observation,
    held: Bytes,
}

impl Account {
    /// An account with this governor. Conversations may come to hold more than its plan says, where somebody else has made
    /// room; what is refused beyond the plan was never to be had.
    pub fn new(governor: Governor, observe: Observe) -> Account {
        let charge = governor.census().charge(Class::BatchBank, Domain::Device, Bytes::ZERO, Bytes::ZERO);
        let beside = MemoryUse::ALL.map(|what| {
            let (class, domain) = place(what);
            governor.census().charge(class, domain, Bytes::ZERO, Bytes::ZERO)
        });
        let (taken, tolerance) = (Vec::new(), UNEXPLAINED_MAX);
        Account { governor, observe, charge, beside, taken, own: None, look: None, reconciliation: None, tolerance }
    }

    /// Keeps the entries of what was taken before, for as long as the account: the model and its weights go together.
    #[must_use]
    pub fn holding(self, taken: Vec<Charge>) -> Account {
        Account { taken, ..self }
    }

    /// Flags what is not explained beyond `tolerance`, for machines on which nobody else takes memory.
    #[cfg(test)]
    pub(crate) fn tolerating(self, tolerance: Bytes) -> Account {
        Account { tolerance, ..self }
    }

    /// Conversations are kept in the memory that this process lives in as well. What it comes to hold beyond now and
    /// beyond what was planned for steps, for requests on their way and for whatever else no plan knows, is taken out of
    /// the floor: that is what the floor is for, and conversations that were planned have theirs. To be called before
    /// any step.
    #[must_use]
    pub fn living_on_the_floor(self, mut now: OwnMemory) -> Account {
        let planned = now();
        Account { own: Some(Own { now, planned }), ..self }
    }

    /// An account that always pays: for a program whose one conversation is all it does.
    pub fn unlimited() -> Account {
        let free = Observation::of(Source::None, Bytes(u64::MAX));
        Account::new(Governor::new(Floors::default(), Census::default()), Box::new(move || free))
    }

    /// The governor behind it.
    pub(crate) fn governor(&self) -> &Governor {
        &self.governor
    }

    /// Asks for a promise that all conversations together may come to hold `proposed` bytes; makes it if it can.
    pub(crate) fn ask(&mut self, proposed: Bytes) -> Quote {
        let observation = self.look();
        self.governor.admit(
            &observation,
            &Claim { consumer: Consumer::BatchBanks, proposed, transient: Bytes::ZERO, limit: None },
        )
    }

    /// The refusal of what cannot be had now, if it is more than was planned for all conversations together: nobody's end
    /// brings it.
    pub(crate) fn beyond_plan(&mut self, price: Bytes) -> Option<Quote> {
        let limit = self.governor.plan().map(|plan| plan.budget).filter(|&budget| price > budget);
        limit?;
        let observation = self.look();
        let claim = Claim { consumer: Consumer::BatchBanks, proposed: price, transient: Bytes::ZERO, limit };
        Some(self.governor.admit(&observation, &claim)).filter(|quote| quote.verdict == Verdict::RefuseClass)
    }

    /// Enters what conversations were promised and what they hold.
    pub(crate) fn publish(&mut self, promised: Bytes, resident: Bytes) {
        self.charge.resize(resident, resident);
        self.governor.publish(Consumer::BatchBanks, promised, resident);
    }

    /// Keeps memory free for conversations on their way back from disk.
    pub(crate) fn keep_free_for_restores(&self, bytes: Bytes) {
        self.governor.reserve(Consumer::Restore, bytes);
    }

    /// Enters what the model holds beside conversations, and how much more that may come to be: nobody else is promised
    /// what recordings of steps will take.
    pub(crate) fn publish_beside(&mut self, held: &[(MemoryUse, Bytes)], to_come: Bytes) {
        let of = |what: MemoryUse| held.iter().filter(|(held, _)| *held == what).map(|(_, bytes)| bytes.0).sum();
        for (charge, what) in self.beside.iter_mut().zip(MemoryUse::ALL) {
            let bytes = Bytes(of(what));
            charge.resize(bytes, bytes);
        }
        let steps = Bytes(of(MemoryUse::Activations).saturating_add(of(MemoryUse::Recordings)));
        self.governor.publish(Consumer::Prewarm, Bytes(steps.0.saturating_add(to_come.0)), steps);
        let weights = self.taken.iter().filter(|charge| charge.class() != Class::WeightImport);
        let weights: u64 = weights.map(|charge| charge.committed().0).sum();
        let boot = Bytes(weights.saturating_add(of(MemoryUse::SmallWeights)));
        self.governor.publish(Consumer::EngineBoot, boot, boot);
    }

    /// What conversations hold and what is beside them.
    fn held(&self) -> Bytes {
        Bytes(self.charge.committed().0 + self.beside_held().0)
    }

    /// What the model holds beside conversations, where they are.
    fn beside_held(&self) -> Bytes {
        let there = self.beside.iter().zip(MemoryUse::ALL).filter(|(_, what)| what.is_on_device());
        Bytes(there.map(|(charge, _)| charge.committed().0).sum())
    }

    /// Looks at the machine, for whoever wants to know how it is before anything is decided.
    pub(crate) fn first_look(&mut self) {
        self.observed();
    }

    fn observed(&mut self) -> Observation {
        let observation = (self.observe)();
        self.governor.looked(&observation);
        observation
    }

    /// Compares the account with the machine, at a moment when nothing runs. The first call only takes note of where
    /// things stand.
    pub(crate) fn reconcile(&mut self) -> Option<Residual> {
        let observation = self.observed();
        let live = self.governor.census().live(Domain::Device);
        let Some(reconciliation) = &mut self.reconciliation else {
            self.reconciliation = Reconciliation::start(&observation, live, self.tolerance);
            return None;
        };
        let residual = reconciliation.compare(&observation, live)?;
        self.governor.reconciled(residual);
        Some(residual)
    }

    /// The machine as it is now: a recent look, corrected by what this account has taken and given back since.
    fn look(&mut self) -> Observation {
        let held = self.held();
        if let Some(Look { at, observation, held: then }) = self.look
            && at.elapsed() < FRESH
        {
            let free = Bytes(observation.free.0.saturating_add(then.0).saturating_sub(held.0));
            return Observation { free, ..observation };
        }
        let mut observation = self.observed();
        let steps = self.beside_held();
        let grown = self.own.as_mut().map_or(Bytes::ZERO, |own| own.grown(steps)).min(self.governor.floors().floor);
        observation.free = Bytes(observation.free.0.saturating_add(grown.0));
        // A look that failed is not worth keeping.
        self.look = (observation.status == Status::Ok).then(|| Look { at: Instant::now(), observation, held });
        observation
    }
}

/// Under which class and where it is entered.
fn place(what: MemoryUse) -> (Class, Domain) {
    match what {
        MemoryUse::Activations => (Class::ScratchSticky, Domain::Device),
        MemoryUse::Recordings => (Class::GraphExec, Domain::Device),
        MemoryUse::SmallWeights => (Class::WeightArena, Domain::Device),
        MemoryUse::Staging => (Class::StagePin, Domain::PinnedHost),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ds4_governor::Readings;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// An account over a machine with so much free memory, which the test changes.
    fn account(free: u64) -> (Account, Arc<AtomicU64>) {
        let free = Arc::new(AtomicU64::new(free));
        let seen = free.clone();
        let observe = move || Observation::of(Source::MemAvailable, Bytes(seen.load(Ordering::Relaxed)));
        (Account::new(Governor::new(Floors::default(), Census::default()), Box::new(observe)), free)
    }

    #[test]
    fn what_was_given_back_a_moment_ago_may_be_promised_again_at_once() {
        let (mut account, _) = account(100);
        account.publish(Bytes(80), Bytes(80));
        assert_eq!(account.ask(Bytes(181)).verdict, Verdict::RefuseLive);
        // The kernel may take its time to show it.
        account.publish(Bytes(20), Bytes(20));
        assert_eq!(account.ask(Bytes(180)).verdict, Verdict::Admit);
        assert_eq!(account.ask(Bytes(181)).deficit, Bytes(1));
    }

    #[test]
    fn what_recordings_will_take_is_promised_to_nobody_and_what_they_have_taken_is_not_counted_twice() {
        let (mut account, free) = account(100);
        account.publish_beside(&[(MemoryUse::Recordings, Bytes(7))], Bytes(30));
        assert_eq!(account.ask(Bytes(71)).deficit, Bytes(1));
        assert_eq!(account.ask(Bytes(70)).verdict, Verdict::Admit);
        account.publish_beside(&[(MemoryUse::Recordings, Bytes(37))], Bytes::ZERO);
        assert_eq!(account.ask(Bytes(70)).verdict, Verdict::Admit);
        std::thread::sleep(FRESH);
        free.store(70, Ordering::Relaxed);
        assert_eq!(account.ask(Bytes(71)).deficit, Bytes(1));
    }

    #[test]
    fn everything_is_entered_under_its_class_and_what_others_own_is_not_in_the_lease() {
        let (mut account, _) = account(1 << 30);
        let census = account.governor().census().clone();
        let charge = |class, bytes, taken| census.charge(class, Domain::Device, Bytes(bytes), Bytes(taken));
        account = account.holding(vec![charge(Class::WeightImport, 900, 1000), charge(Class::WeightArena, 90, 100)]);
        let uses = [(MemoryUse::Activations, 3), (MemoryUse::SmallWeights, 5), (MemoryUse::Recordings, 7)];
        let uses = uses.into_iter().chain([(MemoryUse::Staging, 11), (MemoryUse::Recordings, 20)]);
        account.publish_beside(&uses.map(|(what, bytes)| (what, Bytes(bytes))).collect::<Vec<_>>(), Bytes(40));
        let live = |domain| Class::ALL.iter().map(|&class| census.cell(class, domain).live().0).collect::<Vec<_>>();
        assert_eq!(live(Domain::Device), [0, 1000, 105, 0, 0, 3, 27]);
        assert_eq!(live(Domain::PinnedHost), [0, 0, 0, 11, 0, 0, 0]);
        let lease = |consumer| account.governor().leases().get(consumer);
        assert_eq!(
            (lease(Consumer::EngineBoot).intent, lease(Consumer::EngineBoot).resident),
            (Bytes(105), Bytes(105))
        );
        assert_eq!((lease(Consumer::Prewarm).intent, lease(Consumer::Prewarm).resident), (Bytes(70), Bytes(30)));
        drop(account);
        assert_eq!((census.live(Domain::Device), census.live(Domain::PinnedHost)), (Bytes::ZERO, Bytes::ZERO));
    }

    #[test]
    fn what_the_process_itself_takes_comes_out_of_the_floor_as_long_as_that_lasts() {
        let (free, own) = (Arc::new(AtomicU64::new(100)), Arc::new(AtomicU64::new(1000)));
        let (seen, held) = (free.clone(), own.clone());
        let observe = move || Observation::of(Source::MemAvailable, Bytes(seen.load(Ordering::Relaxed)));
        let floors = Floors { floor: Bytes(20), ..Floors::default() };
        let account = Account::new(Governor::new(floors, Census::default()), Box::new(observe));
        let mut account = account.living_on_the_floor(Box::new(move || Some(Bytes(held.load(Ordering::Relaxed)))));
        for (takes, fits) in [(0, 80), (15, 80), (20, 80), (25, 75), (0, 80)] {
            own.store(1000 + takes, Ordering::Relaxed);
            free.store(100 - takes, Ordering::Relaxed);
            std::thread::sleep(FRESH);
            assert_eq!(account.ask(Bytes(fits + 1)).deficit, Bytes(1), "{takes}");
            assert_eq!(account.ask(Bytes(fits)).verdict, Verdict::Admit);
        }
        // It may give back what it held before; that is nobody's yet.
        own.store(900, Ordering::Relaxed);
        free.store(200, Ordering::Relaxed);
        std::thread::sleep(FRESH);
        assert_eq!(account.ask(Bytes(181)).deficit, Bytes(1));
    }

    #[test]
    fn what_steps_come_to_hold_of_what_was_planned_for_them_is_neither_the_floors_nor_counted_twice() {
        let (free, own) = (Arc::new(AtomicU64::new(100)), Arc::new(AtomicU64::new(1000)));
        let (seen, held) = (free.clone(), own.clone());
        let observe = move || Observation::of(Source::MemAvailable, Bytes(seen.load(Ordering::Relaxed)));
        let floors = Floors { floor: Bytes(20), ..Floors::default() };
        let account = Account::new(Governor::new(floors, Census::default()), Box::new(observe));
        let mut account = account.living_on_the_floor(Box::new(move || Some(Bytes(held.load(Ordering::Relaxed)))));
        for (steps, requests) in [(0, 0), (0, 15), (5, 15), (30, 15), (30, 0)] {
            account.publish_beside(&[(MemoryUse::Activations, Bytes(steps))], Bytes(30 - steps));
            own.store(1000 + steps + requests, Ordering::Relaxed);
            free.store(100 - steps - requests, Ordering::Relaxed);
            std::thread::sleep(FRESH);
            assert_eq!(account.ask(Bytes(51)).deficit, Bytes(1), "{steps} and {requests}");
            assert_eq!(account.ask(Bytes(50)).verdict, Verdict::Admit);
        }
    }

    #[test]
    fn every_look_is_counted_by_what_was_read_and_those_that_failed_are_errors() {
        let mut broken = false;
        let observe = move || {
            let said = if std::mem::replace(&mut broken, true) { Err(()) } else { Ok(Bytes(100)) };
            let read = Readings { mem_available: Some(said), total: Some(Bytes(300)), ..Readings::default() };
            Observation::of_device(&read)
        };
        let mut account = Account::new(Governor::new(Floors::default(), Census::default()), Box::new(observe));
        account.first_look();
        assert_eq!(account.governor().observation().unwrap().read.total, Some(Bytes(300)));
        // A recent look would be good for another question; one that failed is not.
        assert_eq!(account.ask(Bytes(1)).verdict, Verdict::RetryObservation);
        assert_eq!(account.ask(Bytes(1)).verdict, Verdict::RetryObservation);
        let looks = account.governor().looks();
        assert_eq!((looks.at(Source::MemAvailable), looks.at(Source::CudaFree), looks.errors), (3, 0, 2));
    }

    #[test]
    fn a_leak_is_flagged_at_the_second_quiet_moment_after_it() {
        let (mut account, free) = account(10 << 30);
        assert!(account.reconcile().is_none());
        assert!(!account.reconcile().unwrap().flagged);
        account.publish(Bytes(1 << 30), Bytes(1 << 30));
        free.fetch_sub(1 << 30, Ordering::Relaxed);
        assert_eq!(account.reconcile().unwrap().bytes, 0);
        free.fetch_sub(300 << 20, Ordering::Relaxed);
        let residual = account.reconcile().unwrap();
        assert_eq!((residual.bytes, residual.flagged), (300 << 20, true));
        assert_eq!(account.governor().reconciliation().unwrap().flagged, 1);
    }
}
