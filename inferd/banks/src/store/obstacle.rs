//! What is known against a save before anything is copied for it.

use super::{NotSaved, Store};
use crate::index::EntryId;
use crate::snapshot::SavePlan;
use ds4_units::Bytes;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;

impl Store {
    /// Why a conversation of so many tokens would not be written now, as far as that is known without the disk. What
    /// nothing is known against may fail all the same.
    pub(crate) fn obstacle(&self, tokens: u32, plan: &SavePlan) -> Option<NotSaved> {
        let now = self.disk.now();
        if !self.writing.claimed.load(Relaxed) {
            return Some(NotSaved::ReadOnly);
        }
        if now < self.writing.paused_until.load(Relaxed) {
            return Some(NotSaved::Paused);
        }
        if now < self.writing.failing_until.load(Relaxed) {
            return Some(NotSaved::Failing);
        }
        self.lack_of_room(self.bank_bytes(tokens, plan), plan)
    }

    /// Bytes of a bank that follow the plan: what its file takes at least.
    pub(crate) fn bank_bytes(&self, tokens: u32, plan: &SavePlan) -> Bytes {
        let blocks = self.geometry.blocks(tokens).saturating_sub(plan.first_block) as usize;
        Bytes((blocks * self.geometry.block_bytes + self.geometry.recurrent_bytes) as u64)
    }

    /// Why so many bytes would not fit even if everything were given up that may be: what the plan keeps may not.
    fn lack_of_room(&self, size: Bytes, plan: &SavePlan) -> Option<NotSaved> {
        let budget = self.options.budget;
        if size > budget {
            return Some(NotSaved::LargerThanBudget { size, budget });
        }
        let index = self.index();
        let pins = plan.parent.iter().chain(&plan.superseded);
        let kept: BTreeSet<EntryId> = pins.flat_map(|pin| index.chain(pin.id)).collect();
        let kept: u64 = kept.into_iter().filter_map(|id| index.get(id)).map(|entry| entry.size.0).sum();
        (kept + size.0 > budget.0).then(|| NotSaved::NoRoom { used: index.total(), budget })
    }
}
