//! The CUDA backend. Every operation has a file here, which launches, and one in `cu/`, which computes; the CPU backend
//! says what.
//!
//! Operations only put kernels into one stream: nothing waits for the device between [`crate::Backend::prepare`] and
//! [`crate::Backend::finish`], and nothing is allocated once a step of its size has run before.
#![allow(unsafe_code)]

mod arena;
mod bank;
mod device;
mod embed;
mod experts;
mod feed_forward;
mod growing;
mod hyper_connection;
mod kernels;
mod loader;
mod matrix;
mod multiply;
mod normalize;
mod operand;
mod rotate;
mod route;
mod rows;
mod step;
mod vector;

pub use bank::{DeviceBank, DeviceCheckpoint};
pub use device::CudaOptions;
pub use matrix::DeviceMatrix;
pub use route::{DeviceRoutes, ExpertTable};
pub use rows::DeviceRows;
pub use vector::DeviceVector;
