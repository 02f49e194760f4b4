//! What only the program that serves knows of the machine below, for whoever looks.

use ds4_units::Bytes;

/// Facts about weights and device.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// Weights that are in memory in another form than the file's.
    pub derived: Derived,
    /// Reads how many handles the device's driver did not take back so far. Quick.
    pub leaked_handles: fn() -> u64,
}

impl Default for Machine {
    /// Weights as they are in the file, and a device without handles.
    fn default() -> Machine {
        Machine { derived: Derived::default(), leaked_handles: || 0 }
    }
}

/// Weights in another form than the file's: a GPU's kernels read them so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Derived {
    /// Tensors that an owner lent in this form.
    pub imported: u64,
    /// Tensors that this process has brought into it.
    pub built: u64,
    /// Bytes of both.
    pub bytes: Bytes,
}

impl Derived {
    /// Every word for where they come from.
    pub(crate) const SOURCES: [&'static str; 4] = ["none", "imported", "built", "mixed"];

    /// Where they come from, one of [`Derived::SOURCES`].
    pub(crate) fn source(&self) -> &'static str {
        match (self.imported, self.built) {
            (0, 0) => "none",
            (_, 0) => "imported",
            (0, _) => "built",
            _ => "mixed",
        }
    }

    pub(crate) fn tensors(&self) -> u64 {
        self.imported + self.built
    }
}
