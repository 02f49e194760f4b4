//! Loading as people see it.

use ds4_host::Progress as Display;
use ds4_import::Progress;
use ds4_units::Bytes;

/// Shows bytes read, and notes as log lines.
pub(crate) struct Shown(Display);

impl Shown {
    pub(crate) fn new(label: &str, total: Bytes) -> Shown {
        Shown(Display::bytes(label, total))
    }
}

impl Progress for Shown {
    fn read(&self, done: Bytes) {
        self.0.set(done);
    }

    fn note(&self, text: &str) {
        tracing::info!("{text}");
    }
}

/// Notes only: for work that is over in milliseconds.
pub(crate) struct Notes;

impl Progress for Notes {
    fn read(&self, _done: Bytes) {}

    fn note(&self, text: &str) {
        tracing::info!("{text}");
    }
}
