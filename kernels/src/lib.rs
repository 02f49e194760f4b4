//! Operations on tensors, for any backend: what a model graph is made of.
//!
//! [`Backend`] lists the operations; [`mod@reference`] is the CPU backend and the truth. The crate knows shapes,
//! storage formats and formulas, and no model.

pub mod backend;
pub mod bank;
pub mod ceilings;
pub mod compression;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod experts;
pub mod hyper_connection;
pub mod kv_rows;
mod matrix;
mod places;
pub mod reference;
pub mod rope;
mod rows;
pub mod step;

pub use backend::{Backend, BackendError};
pub use matrix::{Matrix, MatrixError};
pub use rows::Rows;
