//! The CUDA backend. Every operation has a file here, which launches, and one in `cu/`, which computes; the CPU backend
//! says what.
//!
//! Operations only put kernels into one stream: nothing waits for the device between [`crate::Backend::prepare`] and
//! [`crate::Backend::finish`], and nothing is allocated once a step of its size has run before.
#![allow(unsafe_code)]

mod arena;
mod attend;
mod attend_many;
mod backend;
mod bank;
mod batch;
mod best;
mod ceilings;
mod compress;
mod copies;
mod device;
mod embed;
mod experts;
mod feed_forward;
mod few;
mod gemm;
mod gemm_operand;
mod gemm_plan;
mod growing;
mod hyper_connection;
mod kernels;
mod layout;
mod loader;
mod matrix;
mod measure;
mod multiply;
mod multiply_plan;
mod normalize;
mod operand;
mod plan;
mod repeat;
mod rotate;
mod route;
mod rows;
mod select;
mod step;
mod store_window;
mod streams;
mod vector;

pub use backend::Cuda;
pub use bank::{DeviceBank, DeviceCheckpoint};
pub use ceilings::ceilings;
pub use device::CudaOptions;
pub use loader::check;
pub use matrix::DeviceMatrix;
pub use plan::{Buffer, Moment, StepPlan};
pub use repeat::Repeats;
pub use route::{DeviceRoutes, ExpertTable};
pub use rows::DeviceRows;
pub use select::{Chosen, DeviceSelection};
pub use vector::DeviceVector;

use crate::kv_rows::KvFormat;
use ds4_gpu::cuda::Function;

/// The kernel for rows of format `F`.
fn of_format<'a, F: KvFormat>(packed: &'a Function, plain: &'a Function) -> &'a Function {
    if is_packed::<F>() { packed } else { plain }
}

fn is_packed<F: KvFormat>() -> bool {
    F::NAME == "packed"
}
