//! Memory that can be shared with other processes, as types whose Drop frees it.
//!
//! A range goes one way through its life, whatever kind of memory it is:
//!
//! 1. create: [`HostRange::create`] reserves a named range of a fixed length;
//! 2. fill: [`HostRange::write_at`] copies bytes in, from several threads if need be;
//! 3. seal: [`HostRange::seal`] gives up the right to change it, for everybody and for ever;
//! 4. export: [`SealedRange::export`] makes file descriptors that may go to other processes;
//! 5. import: [`SealedRange::import`] turns a received descriptor into a range, if it proves to be sealed;
//! 6. map: [`SealedRange::map`] or [`ReadMapping::map`] makes the bytes readable in this process.
//!
//! The memory lives as long as anyone has a descriptor or a mapping of it, in whatever process, so a reader survives
//! the owner's death.
//!
//! Memory that goes on changing while others keep it is a [`HostRegion`], or [`SharedWords`]: one process at a time may
//! write, and the next one takes it over once that one is dead.
//!
//! These are the steps of host memory (memfd). With feature `cuda` there is memory of CUDA devices too, in module
//! `cuda` with everything else of such a device. [`Memory`] is either kind, for those who only pass it on.

mod claim;
#[cfg(feature = "cuda")]
pub mod cuda;
mod error;
pub mod layout;
mod mapping;
mod memory;
mod range;
mod region;
mod shared;
mod words;

pub use error::RangeError;
pub use mapping::ReadMapping;
pub use memory::{DeviceMemory, DevicePtr, Memory, MemoryError};
pub use range::{HostRange, SealedRange};
pub use region::{FrozenRegion, HostRegion, MemoryPiece};
pub use shared::SharedRange;
pub use words::SharedWords;
