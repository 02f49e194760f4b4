//! From tensors by name to a graph's weights on a backend.

use super::layout::{BankLayout, CompressedPlaces, DraftPlaces, LayerPlaces};
use super::shape::{Compression, INDEX_WIDTH, Shape};
use super::tensors;
use ds4_import::{Tensor, Weights};
use ds4_kernels::backend::{Backend, BackendError, HyperSite, Mlp, Routing};
use ds4_kernels::compression::{Compressor, RowKind};
use ds4_kernels::experts::{EXPERTS_USED, ExpertConstants};
use ds4_kernels::reference::blocks;
use ds4_kernels::rope::Rope;
use ds4_kernels::{Matrix, bank::WindowPlace};
use ds4_model::FamilyError;
use std::borrow::Cow;

/// A model's weights on a backend.
pub(super) struct ModelWeights<B: Backend> {
    pub(super) embedding: B::Matrix,
    pub(super) layers: Vec<Layer<B>>,
    pub(super) head: HyperSite<B>,
    pub(super) output: B::Matrix,
}

/// One layer.
pub(super) struct Layer<B: Backend> {
    pub(super) attention_site: HyperSite<B>,
    pub(super) attention: Attention<B>,
    pub(super) feed_forward_site: HyperSite<B>,
    pub(super) feed_forward: FeedForward<B>,
}

/// A layer's attention.
pub(super) struct Attention<B: Backend> {
    pub(super) query_a: B::Matrix,
    pub(super) query_a_norm: B::Vector,
    pub(super) query_b: B::Matrix,
    pub(super) kv: B::Matrix,
    pub(super) kv_norm: B::Vector,
    pub(super) sinks: B::Vector,
    pub(super) output_a: B::Matrix,
    pub(super) output_b: B::Matrix,
    pub(super) rope: Rope,
    pub(super) window: WindowPlace,
    pub(super) rows: Option<CompressorWeights<B>>,
    pub(super) indexer: Option<IndexerWeights<B>>,
}

impl<B: Backend> Attention<B> {
    /// The compressors it feeds: that of its rows, then that of its indexer's keys.
    pub(super) fn compressors(&self) -> impl Iterator<Item = &CompressorWeights<B>> {
        self.rows.iter().chain(self.indexer.iter().map(|indexer| &indexer.keys))
    }
}

/// A compressor with the matrices that feed it.
pub(super) struct CompressorWeights<B: Backend> {
    pub(super) values: B::Matrix,
    pub(super) gates: B::Matrix,
    pub(super) compressor: Compressor<B::Vector>,
}

/// A layer's indexer.
pub(super) struct IndexerWeights<B: Backend> {
    pub(super) keys: CompressorWeights<B>,
    pub(super) queries: B::Matrix,
    pub(super) head_weights: B::Matrix,
}

/// A layer's experts.
pub(super) struct FeedForward<B: Backend> {
    pub(super) router: B::Matrix,
    pub(super) routing: Routing<B>,
    pub(super) routed: Mlp<B>,
    pub(super) shared: Mlp<B>,
    pub(super) constants: ExpertConstants,
}

/// A draft block on a backend.
pub(super) struct DraftWeights<B: Backend> {
    pub(super) token_norm: B::Vector,
    pub(super) token: B::Matrix,
    pub(super) streams_norm: B::Vector,
    pub(super) streams: B::Matrix,
    pub(super) layer: Layer<B>,
    pub(super) head: HyperSite<B>,
    pub(super) places: DraftPlaces,
}

/// What makes one layer another than the next.
struct LayerKind {
    compression: Compression,
    by_token: bool,
    clamp: f32,
    places: LayerPlaces,
}

/// Takes tensors by name, below a prefix.
struct Binder<'a, B> {
    backend: &'a B,
    weights: &'a Weights,
    shape: &'a Shape,
    prefix: String,
}

/// Binds all weights; the tensors are checked first.
pub(super) fn bind<B: Backend>(
    backend: &B,
    weights: &Weights,
    shape: &Shape,
    layout: &BankLayout,
) -> Result<ModelWeights<B>, FamilyError> {
    tensors::check(tensors::expected(shape), |name| weights.tensor(name).map(|tensor| (tensor.kind(), tensor.dims())))?;
    let mut binder = Binder { backend, weights, shape, prefix: String::new() };
    let embedding = binder.matrix("token_embd")?;
    let head = binder.site("output_hc", "output_norm")?;
    let output = binder.matrix("output")?;
    let mut layers = Vec::with_capacity(shape.layers());
    for index in 0..shape.layers() {
        binder.prefix = format!("blk.{index}.");
        let (compression, clamp, places) = (shape.compression[index], shape.clamps[index], layout.layers[index]);
        layers.push(binder.layer(&LayerKind { compression, by_token: index < shape.hash_layers, clamp, places })?);
    }
    Ok(ModelWeights { embedding, layers, head, output })
}

/// Binds a draft block; its tensors are checked first.
pub(super) fn bind_draft<B: Backend>(
    backend: &B,
    weights: &Weights,
    shape: &Shape,
    places: DraftPlaces,
) -> Result<DraftWeights<B>, FamilyError> {
    let find = |name: &str| weights.tensor(name).map(|tensor| (tensor.kind(), tensor.dims()));
    tensors::check(tensors::expected_of_draft(shape), find)?;
    let binder = Binder { backend, weights, shape, prefix: tensors::DRAFT_PREFIX.to_owned() };
    let kind = LayerKind {
        compression: Compression::None,
        by_token: false,
        // The published files name one for each layer of the model, all alike.
        clamp: shape.clamps[shape.layers() - 1],
        places: LayerPlaces { window: places.window, compressed: None, index: None },
    };
    Ok(DraftWeights {
        token_norm: binder.vector("enorm.weight")?,
        token: binder.matrix("e_proj")?,
        streams_norm: binder.vector("hnorm.weight")?,
        streams: binder.matrix("h_proj")?,
        layer: binder.layer(&kind)?,
        head: binder.site("hc_head", "norm")?,
        places,
    })
}

impl<B: Backend> Binder<'_, B> {
    fn layer(&self, kind: &LayerKind) -> Result<Layer<B>, FamilyError> {
        Ok(Layer {
            attention_site: self.site("hc_attn", "attn_norm")?,
            attention: self.attention(kind)?,
            feed_forward_site: self.site("hc_ffn", "ffn_norm")?,
            feed_forward: self.feed_forward(kind)?,
        })
    }

    fn attention(&self, kind: &LayerKind) -> Result<Attention<B>, FamilyError> {
        let LayerKind { compression, places, .. } = *kind;
        let rope = match compression {
            Compression::None => Rope::new(self.shape.rope_base, None),
            _ => Rope::new(self.shape.compressed_rope_base, Some(self.shape.stretch)),
        };
        let compressor = |name: &str, kind, channels, places: Option<CompressedPlaces>| {
            places.map(|places| self.compressor(name, compression, kind, channels, &rope, places)).transpose()
        };
        let rows = compressor("attn_compressor", RowKind::Attention, self.shape.head_width, places.compressed)?;
        let keys = compressor("indexer_compressor", RowKind::Index, INDEX_WIDTH, places.index)?;
        let indexer = match keys {
            Some(keys) => Some(IndexerWeights {
                keys,
                queries: self.matrix("indexer.attn_q_b")?,
                head_weights: self.matrix("indexer.proj")?,
            }),
            None => None,
        };
        Ok(Attention {
            query_a: self.matrix("attn_q_a")?,
            query_a_norm: self.vector("attn_q_a_norm.weight")?,
            query_b: self.matrix("attn_q_b")?,
            kv: self.matrix("attn_kv")?,
            kv_norm: self.vector("attn_kv_a_norm.weight")?,
            sinks: self.vector("attn_sinks.weight")?,
            output_a: self.matrix("attn_output_a")?,
            output_b: self.matrix("attn_output_b")?,
            rope,
            window: places.window,
            rows,
            indexer,
        })
    }

    fn compressor(
        &self,
        name: &str,
        compression: Compression,
        kind: RowKind,
        channels: usize,
        rope: &Rope,
        places: CompressedPlaces,
    ) -> Result<CompressorWeights<B>, FamilyError> {
        Ok(CompressorWeights {
            values: self.matrix(&format!("{name}_kv"))?,
            gates: self.matrix(&format!("{name}_gate"))?,
            compressor: Compressor {
                ratio: compression.ratio().expect("layers with a compressor have a ratio"),
                channels,
                overlapped: compression == Compression::Indexed,
                position_bias: self.vector(&format!("{name}_ape.weight"))?,
                norm: self.vector(&format!("{name}_norm.weight"))?,
                norm_epsilon: self.shape.norm_epsilon,
                rope: rope.clone(),
                pool: places.pool,
                rows: places.rows,
                kind,
            },
        })
    }

    fn feed_forward(&self, kind: &LayerKind) -> Result<FeedForward<B>, FamilyError> {
        let routing = if kind.by_token {
            Routing::ByToken(self.expert_table("ffn_gate_tid2eid.weight")?)
        } else {
            let name = "exp_probs_b.bias";
            let bias = self.weights.tensor(&self.full(name)).map(|_| self.vector(name)).transpose()?;
            Routing::Best { bias }
        };
        Ok(FeedForward {
            router: self.matrix("ffn_gate_inp")?,
            routing,
            routed: self.mlp("exps")?,
            shared: self.mlp("shexp")?,
            constants: ExpertConstants { weight_scale: self.shape.expert_scale, clamp: kind.clamp },
        })
    }

    fn mlp(&self, kind: &str) -> Result<Mlp<B>, FamilyError> {
        Ok(Mlp {
            gate: self.matrix(&format!("ffn_gate_{kind}"))?,
            up: self.matrix(&format!("ffn_up_{kind}"))?,
            down: self.matrix(&format!("ffn_down_{kind}"))?,
        })
    }

    fn site(&self, name: &str, norm: &str) -> Result<HyperSite<B>, FamilyError> {
        Ok(HyperSite {
            mix: self.matrix(&format!("{name}_fn"))?,
            base: self.vector(&format!("{name}_base.weight"))?,
            scale: self.vector(&format!("{name}_scale.weight"))?,
            norm: self.vector(&format!("{norm}.weight"))?,
        })
    }

    fn matrix(&self, name: &str) -> Result<B::Matrix, FamilyError> {
        let tensor = self.tensor(&format!("{name}.weight"))?;
        let dim = |index: usize| tensor.dims().get(index).map_or(1, |&dim| dim as usize);
        let (memory, place) = tensor.memory();
        Matrix::new(tensor.kind(), tensor.layout(), [dim(2), dim(1), dim(0)], memory, place)
            .map_err(BackendError::from)
            .and_then(|matrix| self.backend.matrix(matrix))
            .map_err(|error| FamilyError::Tensor { tensor: tensor.name().to_owned(), problem: error.to_string() })
    }

    fn vector(&self, name: &str) -> Result<B::Vector, FamilyError> {
        let tensor = self.tensor(name)?;
        let mut values = vec![0.0; tensor.dims().iter().product::<u64>() as usize];
        blocks::expand(tensor.kind(), &bytes(tensor)?, &mut values);
        self.backend.vector(values).map_err(on_device)
    }

    fn expert_table(&self, name: &str) -> Result<B::ExpertTable, FamilyError> {
        let tensor = self.tensor(name)?;
        let ids: Vec<u32> = bytes(tensor)?.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
        if let Some(id) = ids.iter().find(|&&id| id as usize >= self.shape.experts) {
            let problem = format!("names expert {}; there are {}", id.cast_signed(), self.shape.experts);
            return Err(FamilyError::Tensor { tensor: tensor.name().to_owned(), problem });
        }
        self.backend.expert_table(ids.as_chunks::<EXPERTS_USED>().0.to_vec()).map_err(on_device)
    }

    fn tensor(&self, name: &str) -> Result<&Tensor, FamilyError> {
        let name = self.full(name);
        let missing = || FamilyError::Tensor { tensor: name.clone(), problem: "is missing".into() };
        self.weights.tensor(&name).ok_or_else(missing)
    }

    fn full(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}

/// The bytes of a small tensor, which the host reads.
fn bytes(tensor: &Tensor) -> Result<Cow<'_, [u8]>, FamilyError> {
    tensor.bytes().map_err(|error| FamilyError::Tensor { tensor: tensor.name().to_owned(), problem: error.to_string() })
}

/// What a device refused, as a family says it.
pub(super) fn on_device(error: BackendError) -> FamilyError {
    FamilyError::Device(error.to_string())
}
