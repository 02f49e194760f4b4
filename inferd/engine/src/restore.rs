//! Conversations that come back from disk, and those that go there.
//!
//! A request whose conversation is on disk waits while it is read and checked, on a thread of its own, and then copied
//! into a bank, a part between two steps; everybody else goes on. What was read becomes a kept conversation like any
//! other, and the request is admitted as if its last turn had been a moment ago.

use crate::Keep;
use crate::admit::Origin;
use crate::disk::{DiskBanks, Restored};
use crate::limits::{IMPORT_PART, IMPORT_PART_ALONE};
use crate::running::Running;
use crate::scheduler::{Scheduler, Waiting};
use crate::warm::Warm;
use ds4_banks::{Kept, LoadTicket, SaveReason};
use ds4_model::{BankError, Import, PromptRecord, StepError};
use ds4_units::{BankId, Bytes, Tokens};
use std::time::Duration;

/// How long an idle engine waits for the disk before it looks into its inbox again.
const DISK_LOOK: Duration = Duration::from_millis(2);

/// A request whose conversation is on its way back.
pub(crate) struct Restoring {
    pub(crate) waiting: Waiting,
    /// What its conversation may come to hold.
    price: Bytes,
    stage: Stage,
}

/// How far a conversation has come.
enum Stage {
    /// It is being read. Memory is kept free for it.
    Reading(LoadTicket<Restored>),
    /// It is being copied into a bank, for which memory was promised. One at a time.
    Filling(Box<Filling>),
}

struct Filling {
    import: Import,
    record: PromptRecord,
    kept: Kept,
}

impl Restoring {
    /// What is kept free for it.
    pub(crate) fn reserved(&self) -> Bytes {
        if self.is_filling() { Bytes::ZERO } else { self.price }
    }

    /// What was promised for its bank.
    pub(crate) fn promised(&self) -> Bytes {
        if self.is_filling() { self.price } else { Bytes::ZERO }
    }

    pub(crate) fn is_filling(&self) -> bool {
        matches!(self.stage, Stage::Filling(_))
    }

    /// The bank that is being filled.
    pub(crate) fn bank(&self) -> Option<BankId> {
        match &self.stage {
            Stage::Filling(filling) => filling.import.bank,
            Stage::Reading(_) => None,
        }
    }
}

impl Scheduler {
    /// Has a request's conversation read, if that saves computing. Gives the request back if not.
    pub(crate) fn restore_first(&mut self, mut waiting: Waiting) -> Option<Waiting> {
        if waiting.looked || waiting.request.prompt_logprobs || self.disk.is_none() {
            return Some(waiting);
        }
        let tokens = Tokens(waiting.request.prompt.tokens().len() as u32);
        let price = self.model.price(tokens);
        // What is read without a place for it is read in vain. Its request waits for one as well, and looks again.
        if !self.could_keep(price, self.wish(&waiting)) {
            return Some(waiting);
        }
        let Some(disk) = &self.disk else { return Some(waiting) };
        waiting.looked = true;
        let choice = self.choose(self.wish(&waiting));
        match disk.look(&waiting.request.prompt, choice.left().unwrap_or(tokens.index())) {
            Some(ticket) => {
                self.restoring.push(Restoring { waiting, price, stage: Stage::Reading(ticket) });
                // Whoever comes next must not be promised the memory that it comes back to.
                self.enter_into_books();
                None
            }
            None => Some(waiting),
        }
    }

    /// Takes what the disk has read, and copies a part of it. Requests whose conversations are there, or are not to be
    /// had, are the next to be admitted, in their order.
    pub(crate) fn take_restored(&mut self, patience: Duration) {
        let mut patience = patience;
        let mut ready = Vec::new();
        let mut index = 0;
        // While one is copied the others wait: they may go on from the same conversation.
        while index < self.restoring.len() && !self.restoring.iter().any(Restoring::is_filling) {
            let Stage::Reading(ticket) = &self.restoring[index].stage else { break };
            let Some(result) = ticket.wait_for(std::mem::take(&mut patience)) else {
                index += 1;
                continue;
            };
            let mut waiting = self.restoring.remove(index).waiting;
            match result.ok().and_then(|restored| self.begin_filling(restored, &mut waiting)) {
                Some((price, filling)) => {
                    let stage = Stage::Filling(Box::new(filling));
                    self.restoring.insert(index, Restoring { waiting, price, stage });
                }
                None => ready.push(waiting),
            }
        }
        ready.extend(self.fill());
        ready.into_iter().rev().for_each(|waiting| self.push_front(waiting));
    }

    /// Waits a little for the disk when there is nothing else to do.
    pub(crate) fn wait_for_disk(&mut self) {
        if !self.restoring.is_empty() {
            self.take_restored(DISK_LOOK);
        }
    }

    /// Requests whose readers are gone leave; returns how many.
    pub(crate) fn drop_cancelled_restores(&mut self) -> usize {
        let is_gone = |restoring: &mut Restoring| restoring.waiting.outbox.is_cancelled();
        let gone: Vec<Restoring> = self.restoring.extract_if(.., is_gone).collect();
        gone.iter().filter_map(Restoring::bank).for_each(|bank| self.model.close_bank(bank));
        gone.len()
    }

    /// Has a restored conversation promised memory for its bank, if it still saves computing.
    fn begin_filling(&mut self, restored: Restored, waiting: &mut Waiting) -> Option<(Bytes, Filling)> {
        let Restored { record, image, kept } = restored;
        let tokens = Tokens(record.tokens().len() as u32);
        let wish = self.wish(waiting);
        let overlap = record.overlap(wish.prompt);
        if overlap.reused != tokens {
            return None;
        }
        // Another request may have brought it back meanwhile.
        let choice = self.choose(wish);
        let left = (overlap.total.0 - tokens.0) as usize;
        // What was kept free for it is for it now.
        self.enter_into_books();
        if choice.left().is_some_and(|already| already <= left) {
            return None;
        }
        if !self.can_keep(tokens, wish) {
            // Somebody else has taken the place meanwhile. There will be another.
            waiting.looked = false;
            return None;
        }
        let import = Import::of_checked(record.tokens().to_vec(), image);
        Some((self.model.price(tokens), Filling { import, record, kept }))
    }

    /// Copies a part of the conversation that is being filled; once it is whole it is kept, and its request returned.
    /// Nothing is kept in doubt.
    fn fill(&mut self) -> Option<Waiting> {
        let index = self.restoring.iter().position(Restoring::is_filling)?;
        let Stage::Filling(filling) = &mut self.restoring[index].stage else { return None };
        // Who is written an answer must not wait long; prompts take as long themselves.
        let is_heard = self.running.iter().any(Running::is_decoding);
        let part = if is_heard { IMPORT_PART } else { IMPORT_PART_ALONE };
        let whole = self.model.import_part(&mut filling.import, part);
        if whole == Ok(false) {
            return None;
        }
        let Restoring { waiting, stage, .. } = self.restoring.remove(index);
        let Stage::Filling(filling) = stage else { return Some(waiting) };
        let Filling { import, record, kept } = *filling;
        match (whole, import.bank) {
            (Ok(_), Some(bank)) if self.model.frontier(bank) == Some(Tokens(record.tokens().len() as u32)) => {
                let held = self.held(bank);
                let (origin, used) = (Origin::Disk(kept), self.watch.now());
                self.warm.keep(Warm { bank, record, held, origin, grace: None, used, trimmed: false });
            }
            (failed, bank) => {
                bank.into_iter().for_each(|bank| self.model.close_bank(bank));
                match failed {
                    Ok(_) => self.refuse(&kept, "its bank has another length"),
                    Err(BankError::Image { problem }) => self.refuse(&kept, &problem),
                    Err(_) => {}
                }
            }
        }
        self.enter_into_books();
        Some(waiting)
    }

    /// A request that cannot be computed with a conversation from disk, or from a killed worker: the file is set aside,
    /// the memory given back, and the request begins from nothing. False when they are not to blame.
    pub(crate) fn begin_cold(&mut self, index: usize, error: &StepError) -> bool {
        if matches!(error, StepError::Device { lost: true, .. }) {
            return false;
        }
        match self.running[index].take_origin() {
            Origin::Here => return false,
            Origin::Disk(kept) => self.refuse(&kept, &error.to_string()),
            Origin::Adopted => Scheduler::doubt_adopted(&self.counters),
        }
        self.model.close_bank(self.running[index].bank);
        let bank = self.model.open_bank();
        self.running[index].begin_cold(bank);
        true
    }

    fn refuse(&self, kept: &Kept, why: &str) {
        if let Some(disk) = &self.disk {
            disk.refuse(kept, why);
        }
    }

    /// Saves a running conversation when it is time.
    pub(crate) fn save_if_due(&mut self, index: usize) {
        let running = &mut self.running[index];
        let Some(disk) = self.disk.as_ref().filter(|_| running.keep != Keep::Nothing) else { return };
        let (record, held) = running.record();
        let Some(reason) = disk.due(held.index(), running.stored, running.is_new_and_to_be_saved()) else { return };
        let mut record = record.clone();
        record.truncate(held);
        // What could not be saved is tried again when it has grown as much again.
        disk.save(self.model.as_ref(), running.bank, &record, reason);
        running.stored = held.index();
    }

    /// A conversation that ended and stays in memory: saved if the disk has it in a form in which it cannot be found.
    pub(crate) fn leave_to_memory(&mut self, bank: BankId, record: &PromptRecord, is_cut: bool) {
        if is_cut {
            self.save_before_it_goes(bank, record, SaveReason::Continued);
        }
        if let Some(disk) = &mut self.disk {
            disk.note_chance(record.tokens().len());
        }
    }

    /// Saves a conversation that is about to lose its bank.
    pub(crate) fn save_before_it_goes(&self, bank: BankId, record: &PromptRecord, reason: SaveReason) {
        if let Some(disk) = &self.disk {
            disk.save(self.model.as_ref(), bank, record, reason);
        }
    }

    /// How much of a conversation is on disk.
    pub(crate) fn stored(&self, record: &PromptRecord, held: Tokens) -> usize {
        self.disk.as_ref().map_or(0, |disk| disk.stored(&record.tokens()[..held.index()]))
    }

    /// Saves everything that is sound and waits for the disk.
    pub(crate) fn leave_to_disk(&mut self, running: Vec<(BankId, PromptRecord)>) {
        let Some(disk) = self.disk.take() else { return };
        let warm = self.warm.iter().map(|warm| (warm.bank, warm.record.clone()));
        let left: Vec<(BankId, PromptRecord)> = warm.chain(running).collect();
        for (bank, record) in &left {
            disk.save(self.model.as_ref(), *bank, record, SaveReason::Shutdown);
        }
        DiskBanks::close(disk, left.iter().map(|(_, record)| record));
    }
}
