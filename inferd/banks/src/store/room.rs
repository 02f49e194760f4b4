//! Making room: under the budget, and above what is left to others on the file system.

use super::{NotSaved, Store};
use crate::index::Victim;
use crate::limits::FREE_SPACE_FLOOR;
use crate::stats::Eviction;
use ds4_units::Bytes;
use tracing::warn;

impl Store {
    /// Gives files up until `size` more bytes fit. What was given up stays gone if that is not enough.
    pub(super) fn make_room(&self, size: Bytes) -> Result<(), NotSaved> {
        let budget = self.options.budget;
        if size > budget {
            return Err(NotSaved::LargerThanBudget { size, budget });
        }
        while self.index().total().0 + size.0 > budget.0 {
            self.give_up_one(Eviction::Budget)?;
        }
        let (free, capacity) = self.disk.free()?;
        let floor = FREE_SPACE_FLOOR.0.min(capacity.0 / 20);
        if free.0 < floor.saturating_add(size.0) {
            return Err(NotSaved::DiskFull { free, needed: Bytes(floor.saturating_add(size.0)) });
        }
        Ok(())
    }

    /// Gives up the file whose loss costs least.
    pub(super) fn give_up_one(&self, why: Eviction) -> Result<(), NotSaved> {
        let now = self.disk.now();
        let mut index = self.index();
        let in_use = NotSaved::NoRoom { used: index.total(), budget: self.options.budget };
        // It is taken out before it is deleted: nobody can choose it in between.
        let (folder, file) = match index.victim(now).ok_or(in_use)? {
            Victim::Entry(id) => match index.remove(id) {
                Some(entry) => (self.folder.clone(), entry.name.file()),
                None => return Ok(()),
            },
            Victim::Stray(stray) => {
                index.bad.retain(|other| *other != stray);
                index.others.retain(|other| *other != stray);
                index.unread.retain(|other| *other != stray);
                (stray.folder, stray.file)
            }
        };
        drop(index);
        self.counters.evicted(why);
        match self.disk.remove(&folder, &file) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(error) => {
                warn!(file, %error, "cannot remove a file: the folder may grow over its budget");
                Err(error.into())
            }
        }
    }
}
