//! DeepSeek V4: Flash, PRO and any other shape that fits the architecture's rules.

mod bank;
mod bind;
mod graph;
mod layout;
mod metadata;
mod model;
mod price;
mod prompt;
#[cfg(feature = "cuda")]
mod self_test;
mod shape;
mod tensors;

pub use prompt::{DeepSeek4Codec, PromptProfile};
pub use shape::{Compression, Shape, ShapeName};

use ds4_import::{ComputeDevice, Weights};
use ds4_kernels::Backend;
#[cfg(feature = "cuda")]
use ds4_kernels::cuda::{Cuda, CudaOptions};
use ds4_kernels::kv_rows::{PackedRows, PlainRows};
use ds4_kernels::reference::Cpu;
use ds4_model::{
    BankPrice, BindOptions, Family, FamilyError, KvRounding, LoadedModel, Model, PromptSide, Tokenizer, TokenizerError,
};
use std::sync::Arc;

/// The value of `general.architecture`, and the prefix of its metadata keys.
const ARCHITECTURE: &str = "deepseek4";

/// The family, as the table of families knows it.
pub struct DeepSeek4Family;

impl Family for DeepSeek4Family {
    fn architecture(&self) -> &'static str {
        ARCHITECTURE
    }

    fn validate(&self, file: &ds4_gguf::Model) -> Result<String, FamilyError> {
        validate(file).map(|shape| shape.name().to_string())
    }

    fn prompt_side(&self, file: &ds4_gguf::Model, profile: Option<&str>) -> Result<PromptSide, FamilyError> {
        let profile = PromptProfile::from_name(profile)?;
        let wrong = |error: TokenizerError| FamilyError::Tokenizer(error.to_string());
        let tokenizer = Arc::new(Tokenizer::from_gguf(file.metadata()).map_err(wrong)?);
        let codec = DeepSeek4Codec::new(Arc::clone(&tokenizer), profile).map_err(wrong)?;
        Ok((tokenizer, Arc::new(codec)))
    }

    fn bank_price(
        &self,
        file: &ds4_gguf::Model,
        kv_rounding: KvRounding,
        device: &ComputeDevice,
    ) -> Result<BankPrice, FamilyError> {
        let shape = validate(file)?;
        Ok(match (device, kv_rounding) {
            (ComputeDevice::Cpu, KvRounding::Exact) => price::of::<Cpu<PackedRows>>(&shape),
            (ComputeDevice::Cpu, KvRounding::Off) => price::of::<Cpu<PlainRows>>(&shape),
            #[cfg(feature = "cuda")]
            (ComputeDevice::Gpu(_), KvRounding::Exact) => price::of::<Cuda<PackedRows>>(&shape),
            #[cfg(feature = "cuda")]
            (ComputeDevice::Gpu(_), KvRounding::Off) => price::of::<Cuda<PlainRows>>(&shape),
        })
    }

    fn bind(
        &self,
        file: &ds4_gguf::Model,
        weights: &Weights,
        options: &BindOptions,
    ) -> Result<LoadedModel, FamilyError> {
        let (tokenizer, codec) = self.prompt_side(file, options.prompt_profile.as_deref())?;
        Ok(LoadedModel { model: bind_model(file, weights, options)?, tokenizer, codec })
    }
}

/// Checks a file's metadata and tensor table.
pub fn validate(file: &ds4_gguf::Model) -> Result<Shape, FamilyError> {
    let shape = Shape::read(file.metadata())?;
    tensors::check(&shape, |name| file.tensor(name).map(|tensor| (tensor.kind, tensor.dims.as_slice())))?;
    Ok(shape)
}

/// Binds weights to a model on the device that the options name. On a GPU a self-test comes first.
pub fn bind_model(
    file: &ds4_gguf::Model,
    weights: &Weights,
    options: &BindOptions,
) -> Result<Box<dyn Model>, FamilyError> {
    let shape = validate(file)?;
    match &options.device {
        ComputeDevice::Cpu => match options.kv_rounding {
            KvRounding::Exact => on(Cpu::<PackedRows>::new(), shape, weights, options),
            KvRounding::Off => on(Cpu::<PlainRows>::new(), shape, weights, options),
        },
        #[cfg(feature = "cuda")]
        ComputeDevice::Gpu(gpu) => {
            let cuda_options = CudaOptions { context: options.context };
            let packed = Cuda::<PackedRows>::new(gpu, cuda_options).map_err(bind::on_device)?;
            self_test::run(&packed)?;
            match options.kv_rounding {
                KvRounding::Exact => on(packed, shape, weights, options),
                KvRounding::Off => on(packed.with_rows::<PlainRows>(), shape, weights, options),
            }
        }
    }
}

/// Binds weights to a model on a backend of the caller's own.
pub fn bind_model_on<B: Backend>(
    backend: B,
    file: &ds4_gguf::Model,
    weights: &Weights,
    options: &BindOptions,
) -> Result<Box<dyn Model>, FamilyError> {
    on(backend, validate(file)?, weights, options)
}

fn on<B: Backend>(
    backend: B,
    shape: Shape,
    weights: &Weights,
    options: &BindOptions,
) -> Result<Box<dyn Model>, FamilyError> {
    Ok(Box::new(model::DeepSeek4::new(backend, shape, weights, options)?))
}
