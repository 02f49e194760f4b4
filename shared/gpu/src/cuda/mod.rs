//! The CUDA driver as types that clean up after themselves: devices, streams, graphs, kernels and memory.
//!
//! The driver's library is looked for when it is first needed, so a program built with this still runs where there is
//! none. Every call makes the device's primary context current on its thread first, so all of this works from any
//! thread. Everything holds its [`Gpu`]; what refers to something else holds that too, so the order of dropping never
//! matters. What the driver refuses to take back is counted by [`leaked_handles`].
//!
//! Memory that goes between processes: [`PhysAlloc`] is the memory, [`ExportedFd`] the right to it, [`VaRange`] a
//! place for it, [`Mapping`] both together.
#![allow(unsafe_code)]

mod buffer;
mod copy;
mod cubin;
mod device;
mod driver;
mod error;
mod event;
mod function;
mod graph;
mod launch;
mod leaks;
mod module;
mod physical;
mod pinned;
mod stream;
mod trace;
mod va;
pub mod weights;

pub use buffer::DeviceBuffer;
pub use copy::{copy_async, download_async, upload_async, zero_async};
pub use cubin::{Cubin, load};
pub use device::{Gpu, GpuMemory};
pub use error::CudaError;
pub use event::Event;
pub use function::Function;
pub use graph::{Graph, GraphExec};
pub use launch::{Args, Launch};
pub use leaks::leaked_handles;
pub use module::Module;
pub use physical::{ExportedFd, PhysAlloc};
pub use pinned::PinnedBuffer;
pub use stream::Stream;
pub use trace::{KernelRun, KernelTrace};
pub use va::{Access, Mapping, VaRange};
