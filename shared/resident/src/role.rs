//! What a model is for in a set of models that are loaded together.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The part a model plays in its set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The model that answers.
    Base,
    /// The small model that proposes tokens for the base (multi-token prediction).
    Mtp,
}

impl Role {
    /// The spelling in flags, plans and manifests.
    pub const fn name(self) -> &'static str {
        match self {
            Role::Base => "base",
            Role::Mtp => "mtp",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
