//! Units and newtypes that every ds4 crate shares: sizes, positions, ids, tensor storage types and their layouts.
//!
//! Nothing here allocates, reads a file or knows a daemon; there is no logic beyond arithmetic.

mod layout;
mod memory_use;
mod number;
mod tensor_type;

pub use layout::Layout;
pub use memory_use::MemoryUse;
pub use number::{BankId, Bytes, FileOffset, LayerIndex, TokenId, TokenPos, Tokens};
pub use tensor_type::TensorType;
