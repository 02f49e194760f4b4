//! Embeddings of the step's tokens.

use super::device::Device;
use super::loader::Loader;
use super::matrix::DeviceMatrix;
use super::rows::DeviceRows;
use crate::hyper_connection::STREAMS;
use ds4_gpu::cuda::{Args, CudaError, Function, Launch};
use ds4_units::TensorType;

/// The kernels of this file's `.cu`, one per type of table.
pub(crate) struct Kernels {
    embed: Vec<(TensorType, Function)>,
}

const NAMES: [(TensorType, &str); 7] = [
    (TensorType::F32, "embed_f32"),
    (TensorType::F16, "embed_f16"),
    (TensorType::BF16, "embed_bf16"),
    (TensorType::Q8_0, "embed_q8_0"),
    (TensorType::Q2_K, "embed_q2_k"),
    (TensorType::Q4_K, "embed_q4_k"),
    (TensorType::IQ2_XXS, "embed_iq2_xxs"),
];

impl Kernels {
    pub(super) fn load(loader: &Loader<'_>) -> Result<Kernels, CudaError> {
        let embed = NAMES.into_iter().map(|(kind, name)| Ok((kind, loader.function("embed", name)?)));
        Ok(Kernels { embed: embed.collect::<Result<_, CudaError>>()? })
    }
}

/// The four streams of every row, each the token's embedding.
pub(super) fn embed(device: &Device, table: &DeviceMatrix) -> DeviceRows {
    let (step, columns) = (device.step(), table.columns());
    let out = device.rows(step.rows as usize, columns * STREAMS);
    let kernel = device.kernels.embed.embed.iter().find(|(kind, _)| *kind == table.kind());
    let args = Args::new().with(table.address()).with(step.tokens).with(out.address()).with(columns as u32).with(0u32);
    let start = Launch::new(1, 256).grid([columns.div_ceil(256) as u32, step.rows, 1]).overlap();
    // SAFETY: tokens lie in the vocabulary, which is the rows of the table; `out` has four streams per row.
    unsafe { device.launch(&kernel.expect("a matrix has a supported type").1, start, &args) };
    out
}
