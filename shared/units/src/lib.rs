//! Units and newtypes that every ds4 crate shares: sizes, positions, ids and the tensor storage types.
//!
//! Nothing here allocates, reads a file or knows a daemon; there is no logic beyond arithmetic.

mod number;
mod tensor_type;

pub use number::{BankId, Bytes, FileOffset, LayerIndex, TokenId, TokenPos, Tokens};
pub use tensor_type::TensorType;
