//! Imports resident weights read-only and gives them out by tensor name.
//!
//! [`attach`] takes them from an owner: it reads the owner's manifest, checks that the weights are the wanted ones,
//! receives the ranges over the owner's socket and maps them. [`self_load`] reads the model's file instead, through
//! the same code as the owner. Either gives all tensors or an error; nothing stays mapped after an error, and trying
//! again is as good as the first time.

mod attach;
mod device;
mod error;
mod identity;
mod lease;
mod mapped;
mod receive;
mod self_load;
mod tensor;
mod weights;

pub use attach::{AttachOptions, Attached, ImportReport, attach, published};
pub use device::{ComputeDevice, MapError};
pub use ds4_resident::{ContentRoot, Progress};
pub use error::{ImportError, ImportFailure};
pub use lease::{Lease, OwnerState};
pub use self_load::{SelfLoadError, SelfLoadOptions, SelfLoaded, preflight, self_load};
pub use tensor::Tensor;
pub use weights::Weights;
