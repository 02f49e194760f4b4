//! Every operation of the CUDA backend against the CPU, at the shapes products have and at odd ones. Needs a GPU: without
//! one these tests fail.

mod kit;
