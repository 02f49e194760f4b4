//! Every operation of the CUDA backend against the CPU, at the shapes products have and at odd ones. Needs a GPU: without
//! one these tests fail.

mod attend;
mod banks;
mod ceilings;
mod data;
mod embed;
mod feed_forward;
mod hyper_connection;
mod kit;
mod merging;
mod multiply;
mod normalize;
mod rotate;
mod route;
mod select;
mod streams;
