//! Models of the published shapes on GPUs that there are on paper only: host code and launches are those of a GPU; a driver
//! on paper counts memory and computes nothing.

mod bank_memory;
#[path = "../../../../../shared/gpu/tests/paper/mod.rs"]
mod paper;
mod step_memory;

use super::Sources;
use super::model::DeepSeek4;
use super::self_test::{self, published_type};
use super::shape::{Compression, Shape, ShapeName};
use super::tensors::{self, Expected};
use ds4_gpu::cuda::Gpu;
use ds4_gpu::{DeviceMemory, DevicePtr, Memory, MemoryError, layout};
use ds4_import::{ComputeDevice, Tensor, Weights};
use ds4_kernels::cuda::{Cuda, CudaOptions};
use ds4_kernels::kv_rows::PackedRows;
use ds4_model::{BindOptions, KvRounding, LogitsWanted, Model, Segment, StepBatch, StepError};
use ds4_units::{BankId, Bytes, Layout, TokenId, TokenPos, Tokens};
use std::sync::Arc;

/// The longest conversation of measurements: a prompt of 32k and some answer.
const CONTEXT: Tokens = Tokens(33_024);

type OnPaper = DeepSeek4<Cuda<PackedRows>>;

fn flash() -> Shape {
    let late = |layer: usize| if layer.is_multiple_of(2) { Compression::Indexed } else { Compression::Dense };
    let first = [Compression::None; 2];
    let shape = Shape {
        hidden: 4096,
        vocabulary: 129_280,
        trained_context: 1 << 20,
        heads: 64,
        head_width: 512,
        query_rank: 1024,
        output_groups: 8,
        output_rank: 1024,
        experts: 256,
        expert_width: 2048,
        hash_layers: 3,
        index_heads: 64,
        index_top: 512,
        compression: first.into_iter().chain((2..43).map(late)).collect(),
        clamps: vec![10.0; 43],
        ..self_test::narrow()
    };
    assert_eq!(shape.name(), ShapeName::Flash);
    shape
}

fn pro() -> Shape {
    let late = |layer: usize| if layer.is_multiple_of(2) { Compression::Indexed } else { Compression::Dense };
    let shape = Shape {
        hidden: 7168,
        heads: 128,
        query_rank: 1536,
        output_groups: 16,
        experts: 384,
        expert_width: 3072,
        index_top: 1024,
        compression: [Compression::Dense; 2].into_iter().chain((2..61).map(late)).collect(),
        clamps: vec![10.0; 61],
        ..flash()
    };
    assert_eq!(shape.name(), ShapeName::Pro);
    shape
}

/// Weights without bytes.
struct Unbacked {
    address: DevicePtr,
    len: Bytes,
}

impl DeviceMemory for Unbacked {
    fn address(&self) -> DevicePtr {
        self.address
    }

    fn len(&self) -> Bytes {
        self.len
    }

    fn read(&self, _offset: u64, out: &mut [u8]) -> Result<(), MemoryError> {
        out.fill(0);
        Ok(())
    }
}

fn weights(expected: Vec<Expected>) -> Weights {
    let mut end = 1 << 50;
    let tensors = expected.into_iter().map(|expected| {
        let (kind, elements) = (published_type(&expected), expected.dims.iter().product::<usize>());
        let columns = expected.dims[0];
        let (own, len) = match layout::is_split(kind) {
            true => (Layout::Split, layout::split_len(kind, elements / columns, columns)),
            false => (Layout::Gguf, kind.byte_len(elements as u64)),
        };
        let len = len.expect("whole blocks");
        let memory = Memory::Device(Arc::new(Unbacked { address: DevicePtr(end), len }));
        end += len.0.next_multiple_of(2 << 20);
        let dims = expected.dims.iter().map(|&dim| dim as u64).collect();
        Tensor::new(expected.name, kind, dims, own, memory, 0..len.index()).expect("as many bytes as elements take")
    });
    Weights::from_tensors(tensors.collect::<Vec<_>>()).expect("names are unique")
}

fn model(device: usize, shape: &Shape, with_draft: bool, context: Tokens) -> OnPaper {
    let gpu = Gpu::open(device).expect("a device on paper");
    let cuda = Cuda::new(&gpu, CudaOptions { context }).expect("kernels for it");
    let options = BindOptions { context, kv_rounding: KvRounding::Exact, device: ComputeDevice::Gpu(gpu) };
    let own = weights(tensors::expected(shape));
    let draft = with_draft.then(|| weights(tensors::expected_of_draft(shape)));
    let sources = Sources { weights: &own, draft: draft.as_ref() };
    DeepSeek4::new(cuda, shape.clone(), sources, &options).expect("it binds")
}

/// Computes so many tokens more of each of these conversations.
fn step(model: &mut OnPaper, segments: &[(BankId, usize)]) -> Result<(), StepError> {
    let most = segments.iter().map(|&(_, tokens)| tokens).max().unwrap_or(0);
    let tokens = vec![TokenId(1); most];
    let segments: Vec<Segment<'_>> = segments
        .iter()
        .map(|&(bank, count)| {
            let start = TokenPos(model.frontier(bank).expect("it is open").0);
            Segment { bank, start, tokens: &tokens[..count], logits: LogitsWanted::Last, drafted: 0 }
        })
        .collect();
    model.step(&StepBatch { segments: &segments }).map(drop)
}
