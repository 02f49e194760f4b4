//! The tensors a model of this architecture has, with their dimensions: declared once, used to check a file's table
//! before anything is loaded and to check what was imported.
//!
//! Names and dimensions are those of the published files. Dimensions are in file order, inputs first.

use super::shape::{Compression, INDEX_WIDTH, Shape};
use ds4_import::Weights;
use ds4_kernels::experts::EXPERTS_USED;
use ds4_kernels::hyper_connection::{MIX_WIDTH, STREAMS};
use ds4_kernels::reference::blocks;
use ds4_model::{FamilyError, TokenWork};
use ds4_units::{Bytes, TensorType};

/// What a tensor is used as, which decides the storage types it may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A product's weights: any type that products are computed with.
    Matrix,
    /// Unquantised numbers.
    Vector,
    /// Expert ids.
    Ids,
}

/// A tensor that must be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Expected {
    pub(super) name: String,
    pub(super) dims: Vec<usize>,
    pub(super) role: Role,
    optional: bool,
}

/// Collects a model's tensors.
struct List {
    tensors: Vec<Expected>,
    prefix: String,
}

impl List {
    fn add(&mut self, name: &str, dims: &[usize], role: Role) -> &mut Expected {
        self.tensors.push(Expected {
            name: format!("{}{name}", self.prefix),
            dims: dims.to_vec(),
            role,
            optional: false,
        });
        self.tensors.last_mut().expect("just pushed")
    }

    fn matrix(&mut self, name: &str, inputs: usize, outputs: usize) {
        self.add(name, &[inputs, outputs], Role::Matrix);
    }

    fn stack(&mut self, name: &str, inputs: usize, outputs: usize, count: usize) {
        self.add(name, &[inputs, outputs, count], Role::Matrix);
    }

    fn vector(&mut self, name: &str, len: usize) {
        self.add(name, &[len], Role::Vector);
    }
}

/// Every tensor of a model of this shape.
pub(super) fn expected(shape: &Shape) -> Vec<Expected> {
    let mut list = List { tensors: Vec::new(), prefix: String::new() };
    let streams = STREAMS * shape.hidden;
    list.matrix("token_embd.weight", shape.hidden, shape.vocabulary);
    list.matrix("output.weight", shape.hidden, shape.vocabulary);
    list.vector("output_norm.weight", shape.hidden);
    list.matrix("output_hc_fn.weight", streams, STREAMS);
    list.vector("output_hc_base.weight", STREAMS);
    list.vector("output_hc_scale.weight", 1);
    for (layer, &compression) in shape.compression.iter().enumerate() {
        list.prefix = format!("blk.{layer}.");
        add_sites(&mut list, shape);
        add_attention(&mut list, shape);
        add_compression(&mut list, shape, compression);
        add_experts(&mut list, shape, layer < shape.hash_layers);
    }
    list.tensors
}

/// What the names of a draft block's tensors begin with.
pub(super) const DRAFT_PREFIX: &str = "mtp.0.";

/// Every tensor of a draft block of a model of this shape: one layer without compression, what goes into it and what comes
/// out. Embedding and output are the model's.
pub(super) fn expected_of_draft(shape: &Shape) -> Vec<Expected> {
    let mut list = List { tensors: Vec::new(), prefix: DRAFT_PREFIX.to_owned() };
    add_sites(&mut list, shape);
    add_attention(&mut list, shape);
    add_experts(&mut list, shape, false);
    list.matrix("e_proj.weight", shape.hidden, shape.hidden);
    list.matrix("h_proj.weight", shape.hidden, shape.hidden);
    for name in ["enorm", "hnorm", "norm"] {
        list.vector(&format!("{name}.weight"), shape.hidden);
    }
    list.matrix("hc_head_fn.weight", STREAMS * shape.hidden, STREAMS);
    list.vector("hc_head_base.weight", STREAMS);
    list.vector("hc_head_scale.weight", 1);
    list.tensors
}

fn add_sites(list: &mut List, shape: &Shape) {
    for site in ["attn", "ffn"] {
        list.matrix(&format!("hc_{site}_fn.weight"), STREAMS * shape.hidden, MIX_WIDTH);
        list.vector(&format!("hc_{site}_base.weight"), MIX_WIDTH);
        list.vector(&format!("hc_{site}_scale.weight"), 3);
        list.vector(&format!("{site}_norm.weight"), shape.hidden);
    }
}

fn add_attention(list: &mut List, shape: &Shape) {
    let group_inputs = shape.heads / shape.output_groups * shape.head_width;
    let low = shape.output_groups * shape.output_rank;
    list.matrix("attn_q_a.weight", shape.hidden, shape.query_rank);
    list.vector("attn_q_a_norm.weight", shape.query_rank);
    list.matrix("attn_q_b.weight", shape.query_rank, shape.heads * shape.head_width);
    list.matrix("attn_kv.weight", shape.hidden, shape.head_width);
    list.vector("attn_kv_a_norm.weight", shape.head_width);
    list.vector("attn_sinks.weight", shape.heads);
    list.matrix("attn_output_a.weight", group_inputs, low);
    list.matrix("attn_output_b.weight", low, shape.hidden);
}

fn add_compression(list: &mut List, shape: &Shape, compression: Compression) {
    let Some(ratio) = compression.ratio() else { return };
    let halves = if compression == Compression::Indexed { 2 } else { 1 };
    add_compressor(list, "attn_compressor", shape, shape.head_width, halves, ratio);
    if compression == Compression::Indexed {
        add_compressor(list, "indexer_compressor", shape, INDEX_WIDTH, halves, ratio);
        list.matrix("indexer.attn_q_b.weight", shape.query_rank, shape.index_heads * INDEX_WIDTH);
        list.matrix("indexer.proj.weight", shape.hidden, shape.index_heads);
    }
}

fn add_compressor(list: &mut List, name: &str, shape: &Shape, channels: usize, halves: usize, ratio: usize) {
    list.matrix(&format!("{name}_kv.weight"), shape.hidden, channels * halves);
    list.matrix(&format!("{name}_gate.weight"), shape.hidden, channels * halves);
    list.add(&format!("{name}_ape.weight"), &[channels * halves, ratio], Role::Vector);
    list.vector(&format!("{name}_norm.weight"), channels);
}

fn add_experts(list: &mut List, shape: &Shape, by_token: bool) {
    let (hidden, width) = (shape.hidden, shape.expert_width);
    list.matrix("ffn_gate_inp.weight", hidden, shape.experts);
    if by_token {
        list.add("ffn_gate_tid2eid.weight", &[EXPERTS_USED, shape.vocabulary], Role::Ids);
    } else {
        list.add("exp_probs_b.bias", &[shape.experts], Role::Vector).optional = true;
    }
    for name in ["gate", "up"] {
        list.stack(&format!("ffn_{name}_exps.weight"), hidden, width, shape.experts);
        list.matrix(&format!("ffn_{name}_shexp.weight"), hidden, width);
    }
    list.stack("ffn_down_exps.weight", width, hidden, shape.experts);
    list.matrix("ffn_down_shexp.weight", width, hidden);
}

/// What a token takes of these weights: of a stack of experts the chosen ones, of embeddings nothing to speak of.
pub(super) fn token_work(shape: &Shape, weights: &Weights) -> TokenWork {
    let experts = (EXPERTS_USED as u32, shape.experts as u32);
    let mut work = TokenWork { weights: Bytes::ZERO, operations: 0, chosen: Bytes::ZERO, experts };
    for expected in expected(shape).iter().filter(|expected| expected.role == Role::Matrix) {
        let (true, Some(tensor)) = (expected.name != "token_embd.weight", weights.tensor(&expected.name)) else {
            continue;
        };
        let elements: usize = expected.dims[..2].iter().product();
        let is_chosen = expected.dims.len() > 2;
        let elements = (elements * if is_chosen { EXPERTS_USED } else { 1 }) as u64;
        let bytes = elements / tensor.kind().block_len() * tensor.kind().block_bytes();
        work.weights.0 += bytes;
        work.chosen.0 += if is_chosen { bytes } else { 0 };
        if expected.name != "output.weight" {
            work.operations += 2 * elements;
        }
    }
    work
}

/// Checks that a tensor table, given as a look-up from name to type and dimensions, has these tensors.
pub(super) fn check<'a>(
    expected: Vec<Expected>,
    find: impl Fn(&str) -> Option<(TensorType, &'a [u64])>,
) -> Result<(), FamilyError> {
    for expected in expected {
        match find(&expected.name) {
            Some((kind, dims)) => expected.check(kind, dims)?,
            None if expected.optional => {}
            None => return Err(expected.wrong("is missing".into())),
        }
    }
    Ok(())
}

impl Expected {
    fn check(&self, kind: TensorType, dims: &[u64]) -> Result<(), FamilyError> {
        if !self.dims.iter().map(|&dim| dim as u64).eq(dims.iter().copied()) {
            return Err(self.wrong(format!("has the dimensions {dims:?}; {:?} are expected", self.dims)));
        }
        let allowed: &[TensorType] = match self.role {
            Role::Matrix => &blocks::SUPPORTED,
            Role::Vector => &[TensorType::F32, TensorType::F16, TensorType::BF16],
            Role::Ids => &[TensorType::I32],
        };
        if allowed.contains(&kind) {
            Ok(())
        } else {
            let names: Vec<&str> = allowed.iter().map(|kind| kind.name()).collect();
            Err(self.wrong(format!("is stored as {kind}; supported are {}", names.join(" "))))
        }
    }

    fn wrong(&self, problem: String) -> FamilyError {
        FamilyError::Tensor { tensor: self.name.clone(), problem }
    }
}
