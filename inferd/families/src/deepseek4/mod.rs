//! DeepSeek V4: Flash, PRO and any other shape that fits the architecture's rules.

mod bank;
mod bind;
mod draft;
mod graph;
#[cfg(test)]
mod host_step_memory;
mod layout;
mod metadata;
mod model;
#[cfg(all(test, feature = "cuda"))]
mod on_paper;
mod price;
mod prompt;
#[cfg(feature = "cuda")]
mod self_test;
mod shape;
mod speculate;
mod tensors;
mod trial;

pub use prompt::{DeepSeek4Codec, PromptProfile};
pub use shape::{Compression, Shape, ShapeName};

#[cfg(feature = "cuda")]
use ds4_gpu::cuda::Gpu;
use ds4_import::{ComputeDevice, Weights};
use ds4_kernels::Backend;
#[cfg(feature = "cuda")]
use ds4_kernels::cuda::{Cuda, CudaOptions};
use ds4_kernels::kv_rows::{PackedRows, PlainRows};
use ds4_kernels::reference::Cpu;
use ds4_model::{
    BankPrice, BindOptions, DraftSource, Family, FamilyError, KvRounding, Model, PromptSide, Tokenizer, TokenizerError,
};
use std::sync::Arc;
#[cfg(feature = "cuda")]
use std::{thread::ScopedJoinHandle, time::Instant};
#[cfg(feature = "cuda")]
use tracing::info;

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

    fn validate_draft(&self, file: &ds4_gguf::Model, draft: &ds4_gguf::Model) -> Result<(), FamilyError> {
        draft::check(&validate(file)?, file, draft)
    }

    fn bank_price(
        &self,
        file: &ds4_gguf::Model,
        with_draft: bool,
        kv_rounding: KvRounding,
        device: &ComputeDevice,
    ) -> Result<BankPrice, FamilyError> {
        let shape = validate(file)?;
        Ok(match (device, kv_rounding) {
            (ComputeDevice::Cpu, KvRounding::Exact) => price::of::<Cpu<PackedRows>>(&shape, with_draft),
            (ComputeDevice::Cpu, KvRounding::Off) => price::of::<Cpu<PlainRows>>(&shape, with_draft),
            #[cfg(feature = "cuda")]
            (ComputeDevice::Gpu(_), KvRounding::Exact) => price::of::<Cuda<PackedRows>>(&shape, with_draft),
            #[cfg(feature = "cuda")]
            (ComputeDevice::Gpu(_), KvRounding::Off) => price::of::<Cuda<PlainRows>>(&shape, with_draft),
        })
    }

    fn bind(
        &self,
        file: &ds4_gguf::Model,
        weights: &Weights,
        draft: Option<DraftSource<'_>>,
        options: &BindOptions,
    ) -> Result<Box<dyn Model>, FamilyError> {
        bind_model(file, weights, draft, options)
    }
}

/// Checks a file's metadata and tensor table.
pub fn validate(file: &ds4_gguf::Model) -> Result<Shape, FamilyError> {
    let shape = Shape::read(file.metadata())?;
    tensors::check(tensors::expected(&shape), |name| {
        file.tensor(name).map(|tensor| (tensor.kind, tensor.dims.as_slice()))
    })?;
    Ok(shape)
}

/// Binds weights to a model on the device that the options name, with a draft block if there is one. On a GPU a self-test
/// comes first.
pub fn bind_model(
    file: &ds4_gguf::Model,
    weights: &Weights,
    draft: Option<DraftSource<'_>>,
    options: &BindOptions,
) -> Result<Box<dyn Model>, FamilyError> {
    let shape = validate(file)?;
    if let Some(draft) = draft {
        draft::check(&shape, file, draft.file)?;
    }
    let sources = Sources { weights, draft: draft.map(|draft| draft.weights) };
    match &options.device {
        ComputeDevice::Cpu => match options.kv_rounding {
            KvRounding::Exact => on(Cpu::<PackedRows>::new(), shape, sources, options),
            KvRounding::Off => on(Cpu::<PlainRows>::new(), shape, sources, options),
        },
        #[cfg(feature = "cuda")]
        ComputeDevice::Gpu(gpu) => on_gpu(gpu, shape, sources, options),
    }
}

/// Loads kernels, tests them and binds weights, as far as that can go on at the same time.
#[cfg(feature = "cuda")]
fn on_gpu(gpu: &Gpu, shape: Shape, sources: Sources<'_>, options: &BindOptions) -> Result<Box<dyn Model>, FamilyError> {
    let began = Instant::now();
    let ms = |began: Instant| began.elapsed().as_millis() as u64;
    std::thread::scope(|threads| {
        let truth = threads.spawn(self_test::Truth::compute);
        let cuda_options = CudaOptions { context: options.context };
        let packed = Cuda::<PackedRows>::new(gpu, cuda_options).map_err(bind::on_device)?;
        let (tested, kernels_ms) = (packed.clone(), ms(began));
        let test = threads.spawn(move || {
            let truth = joined(truth)?;
            let (truth_ms, began) = (ms(began), Instant::now());
            let off = self_test::run(&tested, &truth)?;
            Ok::<_, FamilyError>((truth_ms, ms(began), off))
        });
        let binding = Instant::now();
        let model = match options.kv_rounding {
            KvRounding::Exact => on(packed, shape, sources, options),
            KvRounding::Off => on(packed.with_rows::<PlainRows>(), shape, sources, options),
        };
        let weights_ms = ms(binding);
        let (truth_ms, test_ms, off) = joined(test)?;
        info!(
            kernels_ms,
            weights_ms,
            truth_ms,
            test_ms,
            total_ms = ms(began),
            off = format_args!("{:.1e} plain, {:.1e} packed, {:.1e} wide", off.plain, off.packed, off.wide),
            "kernels loaded and tested, weights bound"
        );
        model
    })
}

/// What a thread came to. One that panicked has found a defect, which goes on in this thread.
#[cfg(feature = "cuda")]
fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Binds weights to a model on a backend of the caller's own.
pub fn bind_model_on<B: Backend>(
    backend: B,
    file: &ds4_gguf::Model,
    weights: &Weights,
    options: &BindOptions,
) -> Result<Box<dyn Model>, FamilyError> {
    on(backend, validate(file)?, Sources { weights, draft: None }, options)
}

/// Tensors of the model, and of its draft block if it has one.
#[derive(Clone, Copy)]
struct Sources<'a> {
    weights: &'a Weights,
    draft: Option<&'a Weights>,
}

fn on<B: Backend>(
    backend: B,
    shape: Shape,
    sources: Sources<'_>,
    options: &BindOptions,
) -> Result<Box<dyn Model>, FamilyError> {
    Ok(Box::new(model::DeepSeek4::new(backend, shape, sources, options)?))
}
