//! DeepSeek V4: Flash, PRO and any other shape that fits the architecture's rules.

mod bank;
mod bind;
mod graph;
mod layout;
mod metadata;
mod model;
mod prompt;
mod shape;
mod tensors;

pub use prompt::{DeepSeek4Codec, PromptProfile};
pub use shape::{Compression, Shape, ShapeName};

use ds4_import::Weights;
use ds4_kernels::kv_rows::{PackedRows, PlainRows};
use ds4_kernels::reference::Cpu;
use ds4_model::{
    BindOptions, Family, FamilyError, KvRounding, LoadedModel, Model, PromptSide, Tokenizer, TokenizerError,
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

/// Binds weights to a model on the CPU.
pub fn bind_model(
    file: &ds4_gguf::Model,
    weights: &Weights,
    options: &BindOptions,
) -> Result<Box<dyn Model>, FamilyError> {
    let shape = validate(file)?;
    Ok(match options.kv_rounding {
        KvRounding::Exact => Box::new(model::DeepSeek4::new(Cpu::<PackedRows>::new(), shape, weights, options)?),
        KvRounding::Off => Box::new(model::DeepSeek4::new(Cpu::<PlainRows>::new(), shape, weights, options)?),
    })
}
