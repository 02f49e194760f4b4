//! The account behind one lock, so that two requests never spend the same bytes.

use crate::{
    BankPlan, Census, Claim, Consumer, Floors, Lease, Leases, Observation, Pressure, Quote, Residual, Source, Status,
    Verdict, evaluate,
};
use ds4_units::Bytes;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Decides on memory and remembers what it promised. Cloning gives another door to the same account.
#[derive(Clone, Debug)]
pub struct Governor {
    account: Arc<Mutex<Account>>,
    census: Census,
}

#[derive(Debug)]
struct Account {
    leases: Leases,
    floors: Floors,
    epoch: u64,
    decisions: Decisions,
    observation: Option<Observation>,
    looks: Looks,
    strain: (Pressure, u64),
    reconciled: Option<Reconciled>,
    plan: Option<BankPlan>,
}

/// What the last comparison of the account with the machine found, and how many found too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reconciled {
    /// The last one.
    pub residual: Residual,
    /// Comparisons that found more than the tolerance.
    pub flagged: u64,
}

/// How often the machine was asked how much memory is free, and how often it did not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Looks {
    by_source: [u64; Source::ALL.len()],
    /// Looks that came to nothing although the machine can say.
    pub errors: u64,
}

impl Looks {
    /// How often `source` was read.
    pub fn at(&self, source: Source) -> u64 {
        self.by_source[source as usize]
    }
}

/// How often each verdict was given to each consumer, and how much was missing last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decisions {
    counts: [[u64; Verdict::ALL.len()]; Consumer::ALL.len()],
    deficits: [Bytes; Consumer::ALL.len()],
}

impl Decisions {
    /// How often `consumer` got `verdict`.
    pub fn count(&self, consumer: Consumer, verdict: Verdict) -> u64 {
        self.counts[consumer as usize][verdict as usize]
    }

    /// What was missing at the consumer's last decision.
    pub fn deficit(&self, consumer: Consumer) -> Bytes {
        self.deficits[consumer as usize]
    }
}

impl Governor {
    /// An account without promises.
    pub fn new(floors: Floors, census: Census) -> Governor {
        let account = Account {
            leases: Leases::default(),
            floors,
            epoch: 0,
            decisions: Decisions::default(),
            observation: None,
            looks: Looks::default(),
            strain: (Pressure::None, 0),
            reconciled: None,
            plan: None,
        };
        Governor { account: Arc::new(Mutex::new(account)), census }
    }

    /// The same with the plan that was made for its conversations.
    #[must_use]
    pub fn with_plan(self, plan: BankPlan) -> Governor {
        self.lock().plan = Some(plan);
        self
    }

    /// How many conversations there may be, and why; nothing where nothing was planned.
    pub fn plan(&self) -> Option<BankPlan> {
        self.lock().plan.clone()
    }

    /// Decides on a claim and, when it is admitted, makes the promise in the same breath.
    pub fn admit(&self, observation: &Observation, claim: &Claim) -> Quote {
        let mut account = self.lock();
        let quote = evaluate(&account.leases, &account.floors, observation, claim);
        let consumer = claim.consumer;
        account.decisions.counts[consumer as usize][quote.verdict as usize] += 1;
        account.decisions.deficits[consumer as usize] = quote.deficit;
        account.observation = Some(*observation);
        if quote.verdict == Verdict::Admit {
            let lease = account.leases.get(consumer);
            let intent = claim.proposed.max(lease.resident);
            account.leases.set(consumer, Lease { intent, ..lease });
            account.epoch += 1;
        }
        quote
    }

    /// Takes note of a look at the machine.
    pub fn looked(&self, observation: &Observation) {
        let mut account = self.lock();
        for (source, _) in observation.read.by_source() {
            account.looks.by_source[source as usize] += 1;
        }
        account.looks.errors += u64::from(observation.status == Status::QueryError);
        account.observation = Some(*observation);
    }

    /// Counts of looks at the machine.
    pub fn looks(&self) -> Looks {
        self.lock().looks
    }

    /// Decides without promising.
    pub fn quote(&self, observation: &Observation, claim: &Claim) -> Quote {
        let account = self.lock();
        evaluate(&account.leases, &account.floors, observation, claim)
    }

    /// Says what a consumer holds now and may still come to hold: taken pages, refunds, things given back. What is held
    /// beyond the promise raises the promise: the account follows the facts.
    pub fn publish(&self, consumer: Consumer, intent: Bytes, resident: Bytes) {
        let mut account = self.lock();
        let lease = account.leases.get(consumer);
        let next = Lease { intent: intent.max(resident), resident, ..lease };
        if next != lease {
            account.leases.set(consumer, next);
            account.epoch += 1;
        }
    }

    /// Keeps memory free for a consumer, beyond what it was promised.
    pub fn reserve(&self, consumer: Consumer, reservation: Bytes) {
        let mut account = self.lock();
        let lease = account.leases.get(consumer);
        if lease.reservation != reservation {
            account.leases.set(consumer, Lease { reservation, ..lease });
            account.epoch += 1;
        }
    }

    /// The guard has looked at the machine.
    pub fn strained(&self, pressure: Pressure) {
        let mut account = self.lock();
        account.strain = (pressure, account.strain.1 + 1);
    }

    /// What the guard saw last, and how often it has looked: what was given up since then it has not seen.
    pub fn pressure(&self) -> (Pressure, u64) {
        self.lock().strain
    }

    /// The account was compared with the machine.
    pub fn reconciled(&self, residual: Residual) {
        let mut account = self.lock();
        let flagged = account.reconciled.map_or(0, |before| before.flagged) + u64::from(residual.flagged);
        account.reconciled = Some(Reconciled { residual, flagged });
    }

    /// What comparing the account with the machine found; `None` before the first comparison.
    pub fn reconciliation(&self) -> Option<Reconciled> {
        self.lock().reconciled
    }

    /// The last look at the machine, corrected by what is known since where it decided.
    pub fn observation(&self) -> Option<Observation> {
        self.lock().observation
    }

    /// What stays free whoever asks.
    pub fn floors(&self) -> Floors {
        self.lock().floors
    }

    /// All promises.
    pub fn leases(&self) -> Leases {
        self.lock().leases
    }

    /// Counts of decisions.
    pub fn decisions(&self) -> Decisions {
        self.lock().decisions
    }

    /// Claims that could not be true, by any consumer. None of them was admitted.
    pub fn faults(&self) -> u64 {
        let decisions = self.decisions();
        Consumer::ALL.iter().map(|&consumer| decisions.count(consumer, Verdict::Fault)).sum()
    }

    /// Changes of the account since the start.
    pub fn epoch(&self) -> u64 {
        self.lock().epoch
    }

    /// Who holds how much.
    pub fn census(&self) -> &Census {
        &self.census
    }

    fn lock(&self) -> MutexGuard<'_, Account> {
        // Every change is one assignment: what a panicked thread left is whole.
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
