//! The memory account that conversations are paid from.

use ds4_governor::{Census, Charge, Claim, Class, Consumer, Domain, Floors, Governor, Observation, Quote, Source};
use ds4_units::Bytes;

/// Looks at the machine. Called from the engine's thread, so it must be quick: it may answer from a recent look.
pub type Observe = Box<dyn FnMut() -> Observation + Send>;

/// Pays for conversations: decides whether one more fits, and keeps the books of what all of them hold.
pub struct Account {
    governor: Governor,
    observe: Observe,
    limit: Option<Bytes>,
    charge: Charge,
}

impl Account {
    /// An account with this governor. `limit` is the most that all conversations may hold together.
    pub fn new(governor: Governor, observe: Observe, limit: Option<Bytes>) -> Account {
        let charge = governor.census().charge(Class::BatchBank, Domain::Device, Bytes::ZERO, Bytes::ZERO);
        Account { governor, observe, limit, charge }
    }

    /// An account that always pays: for a program whose one conversation is all it does.
    pub fn unlimited() -> Account {
        let free = Observation::of(Source::None, Bytes(u64::MAX));
        Account::new(Governor::new(Floors::default(), Census::default()), Box::new(move || free), None)
    }

    /// The governor behind it.
    pub(crate) fn governor(&self) -> &Governor {
        &self.governor
    }

    /// Asks for a promise that all conversations together may come to hold `proposed` bytes; makes it if it can.
    pub(crate) fn ask(&mut self, proposed: Bytes) -> Quote {
        let observation = (self.observe)();
        self.governor.admit(
            &observation,
            &Claim { consumer: Consumer::BatchBanks, proposed, transient: Bytes::ZERO, limit: self.limit },
        )
    }

    /// Enters what conversations were promised and what they hold.
    pub(crate) fn publish(&mut self, promised: Bytes, resident: Bytes) {
        self.charge.resize(resident, resident);
        self.governor.publish(Consumer::BatchBanks, promised, resident);
    }
}
