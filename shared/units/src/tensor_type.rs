//! The storage types of GGUF tensors: their ids, names and block sizes.

use crate::Bytes;
use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! tensor_types {
    ($($name:ident = $id:literal, $block_len:literal elements in $block_bytes:literal bytes;)*) => {
        /// How a tensor's elements are stored. The discriminant is GGUF's type id.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[allow(non_camel_case_types, missing_docs)]
        #[repr(u32)]
        pub enum TensorType {
            $($name = $id,)*
        }

        impl TensorType {
            /// Every type this crate knows, in order of GGUF id.
            pub const ALL: &'static [TensorType] = &[$(TensorType::$name,)*];

            /// The type with this GGUF id.
            pub fn from_gguf_id(id: u32) -> Option<TensorType> {
                match id {
                    $($id => Some(TensorType::$name),)*
                    _ => None,
                }
            }

            /// The type with this name, as [`TensorType::name`] spells it.
            pub fn from_name(name: &str) -> Option<TensorType> {
                match name {
                    $(stringify!($name) => Some(TensorType::$name),)*
                    _ => None,
                }
            }

            /// The published spelling, for instance `Q4_K`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(TensorType::$name => stringify!($name),)*
                }
            }

            /// Elements in one block; a row's length is a multiple of it.
            pub const fn block_len(self) -> u64 {
                match self {
                    $(TensorType::$name => $block_len,)*
                }
            }

            /// Bytes of one block.
            pub const fn block_bytes(self) -> u64 {
                match self {
                    $(TensorType::$name => $block_bytes,)*
                }
            }
        }
    };
}

tensor_types! {
    F32 = 0, 1 elements in 4 bytes;
    F16 = 1, 1 elements in 2 bytes;
    Q4_0 = 2, 32 elements in 18 bytes;
    Q5_0 = 6, 32 elements in 22 bytes;
    Q8_0 = 8, 32 elements in 34 bytes;
    Q2_K = 10, 256 elements in 84 bytes;
    Q3_K = 11, 256 elements in 110 bytes;
    Q4_K = 12, 256 elements in 144 bytes;
    Q5_K = 13, 256 elements in 176 bytes;
    Q6_K = 14, 256 elements in 210 bytes;
    IQ2_XXS = 16, 256 elements in 66 bytes;
    I8 = 24, 1 elements in 1 bytes;
    I16 = 25, 1 elements in 2 bytes;
    I32 = 26, 1 elements in 4 bytes;
    I64 = 27, 1 elements in 8 bytes;
    F64 = 28, 1 elements in 8 bytes;
    BF16 = 30, 1 elements in 2 bytes;
}

impl TensorType {
    /// Bytes of `elements` elements stored as whole blocks; `None` when they do not fill whole blocks or the size
    /// does not fit 64 bits.
    pub fn byte_len(self, elements: u64) -> Option<Bytes> {
        if !elements.is_multiple_of(self.block_len()) {
            return None;
        }
        (elements / self.block_len()).checked_mul(self.block_bytes()).map(Bytes)
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_is_found_again_by_id_and_by_name() {
        for &kind in TensorType::ALL {
            assert_eq!(TensorType::from_gguf_id(kind as u32), Some(kind));
            assert_eq!(TensorType::from_name(kind.name()), Some(kind));
        }
        assert_eq!(TensorType::from_gguf_id(5), None);
    }

    #[test]
    fn sizes_are_whole_blocks_or_nothing() {
        assert_eq!(TensorType::Q4_K.byte_len(512), Some(Bytes(288)));
        assert_eq!(TensorType::Q4_K.byte_len(255), None);
        assert_eq!(TensorType::F64.byte_len(u64::MAX), None);
    }
}
