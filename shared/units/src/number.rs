//! Newtypes over plain integers. The inner value is public: the type exists to name the unit.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! unit {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// The value as an index or length. All units fit `usize` on the 64-bit hosts ds4 runs on.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

unit! {
    /// A size in bytes. Displays in binary units (`3.50 GiB`).
    Bytes(u64)
}
unit! {
    /// A position in a file, in bytes from its start.
    FileOffset(u64)
}
unit! {
    /// A number of tokens.
    Tokens(u32)
}
unit! {
    /// The 0-based position of a token in its conversation.
    TokenPos(u32)
}
unit! {
    /// A token's id in the model's vocabulary.
    TokenId(u32)
}
unit! {
    /// One conversation's slot of mutable model state.
    BankId(u32)
}
unit! {
    /// The 0-based index of a transformer layer.
    LayerIndex(u32)
}

impl Bytes {
    /// No bytes.
    pub const ZERO: Bytes = Bytes(0);

    /// `n` KiB.
    pub const fn kib(n: u64) -> Bytes {
        Bytes(n << 10)
    }

    /// `n` MiB.
    pub const fn mib(n: u64) -> Bytes {
        Bytes(n << 20)
    }

    /// `n` GiB.
    pub const fn gib(n: u64) -> Bytes {
        Bytes(n << 30)
    }

    /// The sum, or `None` when it does not fit 64 bits.
    pub fn checked_add(self, other: Bytes) -> Option<Bytes> {
        self.0.checked_add(other.0).map(Bytes)
    }

    /// The next multiple of `step` (a power of two), or `None` when it does not fit 64 bits.
    pub fn checked_round_up(self, step: Bytes) -> Option<Bytes> {
        debug_assert!(step.0.is_power_of_two());
        let mask = step.0 - 1;
        self.0.checked_add(mask).map(|sum| Bytes(sum & !mask))
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
        for (unit, size) in UNITS {
            if self.0 >= size {
                return write!(f, "{:.2} {unit}", self.0 as f64 / size as f64);
            }
        }
        write!(f, "{} B", self.0)
    }
}

impl TokenPos {
    /// The position `count` tokens later. Positions stay below 2^32 because contexts do.
    pub fn after(self, count: Tokens) -> TokenPos {
        TokenPos(self.0 + count.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_display_in_binary_units() {
        assert_eq!(Bytes(512).to_string(), "512 B");
        assert_eq!(Bytes::mib(1).to_string(), "1.00 MiB");
        assert_eq!(Bytes(86_715_000_000).to_string(), "80.76 GiB");
    }

    #[test]
    fn rounding_up_refuses_to_wrap() {
        assert_eq!(Bytes(1).checked_round_up(Bytes::kib(4)), Some(Bytes(4096)));
        assert_eq!(Bytes(4096).checked_round_up(Bytes::kib(4)), Some(Bytes(4096)));
        assert_eq!(Bytes(u64::MAX).checked_round_up(Bytes::kib(4)), None);
    }
}
