//! Conversations whose memory a keeper holds, so that a killed worker's successor goes on with them.
//!
//! What a bank holds at a kill is in its journal, which the model writes; nothing has to be sent for that. But the keeper
//! must have the descriptors that the journal names. It is told of banks whose descriptors are others than it has, and of
//! banks that are gone, and has heard before the tokens of the step are sent that took new memory, so that what a client
//! has seen can always be gone on with. Until it has heard, a journal still tells the state before the step; so it has to
//! hear before the next one too, of what was cut back or restored since.

use crate::admit::Origin;
use crate::scheduler::Scheduler;
use crate::stats::Counters;
use crate::warm::Warm;
use ds4_model::{Adopted, Model, Parcel, PromptRecord, Tokenizer};
use ds4_parking::{Parking, ParkingOptions, Stats};
use ds4_units::{BankId, Tokens};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the keeper has to let go of memory that is needed now.
const LETTING_GO: Duration = Duration::from_millis(200);

/// How long the tokens of a step wait for the keeper to hear of its memory. It takes a fraction of a millisecond; with a
/// keeper that hangs answers go on, and what it has not heard of would be computed again after a kill.
const HEARING: Duration = Duration::from_millis(100);

/// Where and for how long conversations are parked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParkedOptions {
    /// The keeper's socket.
    pub socket: PathBuf,
    /// How long a conversation stays there when its worker is gone.
    pub orphaned: Duration,
}

/// What was found at the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inherited {
    /// Conversations taken over.
    pub banks: usize,
    /// Their tokens.
    pub tokens: u64,
    /// Why others were not, in words. They are freed.
    pub doubts: Vec<String>,
}

/// What the keeper was told of a bank.
struct Told {
    set: String,
    /// What it has; `None` when it has nothing.
    epoch: Option<u32>,
}

/// Conversations parked with a keeper, for one engine.
pub struct ParkedBanks {
    parking: Parking,
    told: BTreeMap<BankId, Told>,
    /// Sets that are to be forgotten and could not be yet.
    to_forget: BTreeSet<String>,
    /// Not all of that may have been heard yet.
    unheard: bool,
    /// Which keeper was told all this.
    connection: u64,
    next: u64,
    adopted: Vec<Warm>,
    inherited: Inherited,
}

impl ParkedBanks {
    /// Makes the model keep journals and takes over what killed workers of the same model have left. `content` is the
    /// identity of its weights. Blocks until that is done; without a keeper there is nothing to take over.
    pub fn open(
        options: &ParkedOptions,
        content: [u8; 32],
        model: &mut dyn Model,
        tokenizer: &Tokenizer,
    ) -> io::Result<ParkedBanks> {
        model.keep_journals(content);
        let (socket, orphaned) = (options.socket.clone(), options.orphaned);
        let parking = ParkingOptions { socket, orphaned };
        // A model without a fingerprint leaves nothing, and finds nothing.
        let fingerprint = model.fingerprint().unwrap_or_default();
        let (parking, orphans) = Parking::open(parking, fingerprint)?;
        let connection = parking.connection();
        let (told, adopted, inherited) = Default::default();
        let to_forget = BTreeSet::new();
        let mut parked =
            ParkedBanks { parking, told, to_forget, unheard: false, connection, next: 0, adopted, inherited };
        let mut found = Vec::new();
        for orphan in orphans {
            let epoch = u32::try_from(orphan.generation).unwrap_or(0);
            match model.adopt(Parcel { epoch, fds: orphan.fds }) {
                Ok(adopted) => found.push((adopted, Told { set: orphan.set, epoch: Some(epoch) })),
                Err(error) => {
                    parked.inherited.doubts.push(error.to_string());
                    parked.to_forget.insert(orphan.set);
                }
            }
        }
        found.sort_by_key(|(adopted, _)| adopted.used_ms);
        for (Adopted { bank, tokens, .. }, told) in found {
            parked.inherited.banks += 1;
            parked.inherited.tokens += tokens.len() as u64;
            let record = PromptRecord::of_tokens(&tokens, tokenizer);
            parked.adopted.push(Warm {
                bank,
                record,
                held: model.resident_bytes(bank).unwrap_or_default(),
                origin: Origin::Adopted,
                grace: None,
                used: Instant::now(),
                trimmed: false,
            });
            parked.told.insert(bank, told);
        }
        Ok(parked)
    }

    /// What was found at the start.
    pub fn inherited(&self) -> &Inherited {
        &self.inherited
    }

    /// The banks that were taken over.
    pub fn banks(&self) -> impl Iterator<Item = BankId> + '_ {
        self.adopted.iter().map(|warm| warm.bank)
    }

    /// Where its counts can be read.
    pub(crate) fn watch(&self) -> Arc<dyn Fn() -> Stats + Send + Sync> {
        Arc::new(self.parking.watch())
    }

    /// Tells the keeper what is new. `banks` are all there are.
    fn tell(&mut self, model: &dyn Model, banks: &BTreeSet<BankId>) {
        if self.connection != self.parking.connection() {
            // Another keeper has nothing of ours.
            self.connection = self.parking.connection();
            self.told.values_mut().for_each(|told| told.epoch = None);
            self.to_forget.clear();
        }
        let gone: Vec<BankId> = self.told.keys().filter(|bank| !banks.contains(bank)).copied().collect();
        gone.into_iter().for_each(|bank| self.forget(bank));
        let parking = &self.parking;
        self.to_forget.retain(|set| !parking.forget(set));
        if !parking.is_connected() {
            return;
        }
        for &bank in banks {
            let Some(epoch) = model.epoch(bank) else { continue };
            if self.told.get(&bank).is_some_and(|told| told.epoch == Some(epoch)) {
                continue;
            }
            // What cannot be exported now is tried again after the next step.
            let Ok(Some(parcel)) = model.parcel(bank) else { continue };
            let set = self.told.get(&bank).map_or_else(|| Parking::name(self.next), |told| told.set.clone());
            if self.parking.park(&set, u64::from(parcel.epoch), parcel.fds) {
                self.told.insert(bank, Told { set, epoch: Some(parcel.epoch) });
                self.next += 1;
                self.unheard = true;
            }
        }
    }

    /// Waits a moment until the keeper has what it was told to take.
    fn until_heard(&mut self) {
        if self.unheard {
            self.unheard = !self.parking.settle(HEARING);
        }
    }

    fn forget(&mut self, bank: BankId) {
        if let Some(told) = self.told.remove(&bank)
            && !self.parking.forget(&told.set)
        {
            self.to_forget.insert(told.set);
        }
    }
}

impl Scheduler {
    /// Keeps the most recently used of what was taken over, as many as there may be.
    pub(crate) fn keep_adopted(&mut self) {
        let Some(parked) = &mut self.parked else { return };
        let adopted = std::mem::take(&mut parked.adopted);
        let too_many = adopted.len().saturating_sub(self.options.banks);
        for (index, warm) in adopted.into_iter().enumerate() {
            let whole = self.model.frontier(warm.bank) == Some(Tokens(warm.record.tokens().len() as u32));
            if index < too_many || !whole {
                self.model.close_bank(warm.bank);
            } else {
                self.warm.keep(warm);
            }
        }
        self.counters.warm.set(self.warm.len());
        self.tell_keeper();
    }

    /// Tells the keeper what is new since it was told last, and waits for nothing.
    pub(crate) fn tell_keeper(&mut self) {
        if let Some(parked) = &mut self.parked {
            let warm = self.warm.iter().map(|warm| warm.bank);
            let banks = self.running.iter().map(|running| running.bank).chain(warm).collect();
            parked.tell(self.model.as_ref(), &banks);
        }
    }

    /// The same, and returns when the keeper has what it is to take. In most steps that is nothing.
    pub(crate) fn hand_over(&mut self) {
        self.tell_keeper();
        self.parked.iter_mut().for_each(ParkedBanks::until_heard);
    }

    /// Makes the keeper let go of a bank that was closed because its memory is needed, and waits a moment for that.
    pub(crate) fn let_go(&mut self, bank: BankId) {
        if let Some(parked) = &mut self.parked
            && parked.told.contains_key(&bank)
        {
            parked.forget(bank);
            // If it takes longer the memory comes a little later; whoever needs it is refused or waits, as ever.
            let _ = parked.parking.settle(LETTING_GO);
        }
    }

    /// A conversation from a killed worker cannot be computed with: it is given up, whatever the reason.
    pub(crate) fn doubt_adopted(counters: &Counters) {
        counters.adopted_doubted.add(1);
    }
}
