use std::fmt;

/// What a process holds of memory beside weights and conversations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemoryUse {
    /// What steps work in; kept between them.
    Activations,
    /// Recorded launches of steps.
    Recordings,
    /// Weights so small that every process has its own copy.
    SmallWeights,
    /// Host memory that a device copies from and to.
    Staging,
}

impl MemoryUse {
    /// All of them.
    pub const ALL: [MemoryUse; 4] =
        [MemoryUse::Activations, MemoryUse::Recordings, MemoryUse::SmallWeights, MemoryUse::Staging];

    /// Whether it lies in the memory that the model computes in.
    pub fn is_on_device(self) -> bool {
        self != MemoryUse::Staging
    }
}

impl fmt::Display for MemoryUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MemoryUse::Activations => "activations of steps",
            MemoryUse::Recordings => "recordings of steps",
            MemoryUse::SmallWeights => "small weights copied for this process",
            MemoryUse::Staging => "host memory that the device copies from and to",
        })
    }
}
