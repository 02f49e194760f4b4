//! Imports resident weights read-only and gives them out by tensor name.

mod tensor;
mod weights;

pub use tensor::{Storage, Tensor};
pub use weights::Weights;
