//! Makes a plan: a pure function of tensor tables and options.
//!
//! Rules:
//! - a tensor is never cut, and a range never holds tensors of two models;
//! - a tensor of 2 MiB or more lies at a multiple of 2 MiB; smaller ones are packed at multiples of 256 bytes in
//!   ranges of their own, so that they leave no holes between the large ones;
//! - a range is closed before it grows beyond the span; a tensor larger than the span has a range to itself;
//! - artifacts lie in ranges of their own; two that would have the same bytes are one;
//! - tensors keep the order in which they lie in the files, because the disk is the slow side.

use crate::placement::{LARGE, Packer};
use crate::plan::{Plan, PlannedArtifact, PlannedModel, PlannedTensor, Residency, Totals};
use crate::role::Role;
use ds4_gguf::TensorInfo;
use ds4_manifest::Place;
use ds4_units::Bytes;
use std::collections::BTreeMap;
use thiserror::Error;

/// The tensors of one model of the set.
#[derive(Clone, Copy, Debug)]
pub struct TensorTable<'a> {
    /// What the model is for.
    pub role: Role,
    /// Its tensors, as [`ds4_gguf::Model::tensors`] gives them.
    pub tensors: &'a [TensorInfo],
}

/// What shapes a plan beside the tensors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanOptions {
    /// Ranges grow to about this size. A multiple of 2 MiB.
    pub span: Bytes,
    /// Ranges take whole multiples of this from the backend. A power of two.
    pub granularity: Bytes,
    /// Tensors to be kept in another layout as well or instead.
    pub artifacts: Vec<ArtifactRequest>,
    /// Tensors to be left on disk.
    pub skip: Vec<SkipRequest>,
}

/// A tensor that is to be resident in another layout than the file's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArtifactRequest {
    /// The model.
    pub role: Role,
    /// The source tensor.
    pub tensor: String,
    /// Name of the layout.
    pub layout: String,
    /// Bytes of the artifact.
    pub len: Bytes,
    /// Whether the file's bytes are then not resident.
    pub replaces_raw: bool,
}

/// A tensor that nothing will read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkipRequest {
    /// The model.
    pub role: Role,
    /// The tensor.
    pub tensor: String,
    /// Why it is not needed.
    pub reason: String,
}

/// Why there is no plan.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum PlanError {
    /// Sizes that no layout can have.
    #[error(
        "span {span} and granularity {granularity}: the span must be a multiple of 2 MiB, the other a power of two"
    )]
    Sizes {
        /// The span asked for.
        span: Bytes,
        /// The granularity asked for.
        granularity: Bytes,
    },
    /// Two models for one purpose.
    #[error("there are two models for {role}")]
    RoleTwice {
        /// The purpose.
        role: Role,
    },
    /// An artifact or a skip for a tensor that is not there.
    #[error("{wanted} asks for tensor {tensor:?} of the {role} model, which has none of that name")]
    UnknownTensor {
        /// The model.
        role: Role,
        /// The tensor.
        tensor: String,
        /// What asks for it.
        wanted: String,
    },
    /// Two requests for one tensor.
    #[error("tensor {tensor:?} of the {role} model is asked for twice: {first} and {second}")]
    AskedTwice {
        /// The model.
        role: Role,
        /// The tensor.
        tensor: String,
        /// One request.
        first: String,
        /// The other.
        second: String,
    },
    /// Sizes that do not fit 64 bits.
    #[error("the tensors of the {role} model take more than 2^64 bytes")]
    TooLarge {
        /// The model.
        role: Role,
    },
}

/// What a tensor was asked for beside being resident.
#[derive(Clone, Copy)]
enum Request<'a> {
    Artifact(&'a ArtifactRequest),
    Skip(&'a SkipRequest),
}

impl Request<'_> {
    fn shown(&self) -> String {
        match self {
            Request::Artifact(artifact) => format!("artifact {:?}", artifact.layout),
            Request::Skip(skip) => format!("skip ({})", skip.reason),
        }
    }
}

type Requests<'a> = BTreeMap<(Role, &'a str), Request<'a>>;

impl Default for PlanOptions {
    /// Ranges of about 1 GiB of host memory, everything as it is in the file.
    fn default() -> PlanOptions {
        PlanOptions {
            span: Bytes::gib(1),
            granularity: ds4_gpu::HostRange::GRANULARITY,
            artifacts: Vec::new(),
            skip: Vec::new(),
        }
    }
}

/// Decides where every tensor of these models lies.
pub fn plan(models: &[TensorTable<'_>], options: &PlanOptions) -> Result<Plan, PlanError> {
    let PlanOptions { span, granularity, .. } = *options;
    if span.0 == 0 || !span.0.is_multiple_of(LARGE.0) || !granularity.0.is_power_of_two() {
        return Err(PlanError::Sizes { span, granularity });
    }
    let mut models = models.to_vec();
    models.sort_by_key(|model| model.role);
    if let Some(pair) = models.windows(2).find(|pair| pair[0].role == pair[1].role) {
        return Err(PlanError::RoleTwice { role: pair[0].role });
    }
    let requests = requests(&models, options)?;
    let mut plan = Plan {
        schema: Plan::SCHEMA.to_owned(),
        span,
        granularity,
        models: Vec::new(),
        artifacts: Vec::new(),
        ranges: Vec::new(),
        totals: Totals::default(),
    };
    let mut packer = Packer::new(span, granularity);
    for model in &models {
        add_model(&mut plan, &mut packer, model, &requests).ok_or(PlanError::TooLarge { role: model.role })?;
    }
    plan.ranges = packer.finish();
    plan.totals = plan.count();
    Ok(plan)
}

fn requests<'a>(models: &[TensorTable<'_>], options: &'a PlanOptions) -> Result<Requests<'a>, PlanError> {
    let artifacts = options.artifacts.iter().map(|a| ((a.role, a.tensor.as_str()), Request::Artifact(a)));
    let skips = options.skip.iter().map(|s| ((s.role, s.tensor.as_str()), Request::Skip(s)));
    let mut requests = Requests::new();
    for ((role, tensor), request) in artifacts.chain(skips) {
        let table = models.iter().find(|model| model.role == role);
        if !table.is_some_and(|table| table.tensors.iter().any(|info| info.name == tensor)) {
            return Err(PlanError::UnknownTensor { role, tensor: tensor.to_owned(), wanted: request.shown() });
        }
        if let Some(first) = requests.insert((role, tensor), request) {
            let (first, second) = (first.shown(), request.shown());
            return Err(PlanError::AskedTwice { role, tensor: tensor.to_owned(), first, second });
        }
    }
    Ok(requests)
}

/// Adds a model's tensors and artifacts to the plan. `None` when a size does not fit 64 bits.
fn add_model(plan: &mut Plan, packer: &mut Packer, model: &TensorTable<'_>, requests: &Requests<'_>) -> Option<()> {
    let role = model.role;
    let mut tensors: Vec<&TensorInfo> = model.tensors.iter().collect();
    tensors.sort_by(|a, b| (a.shard, a.offset, &a.name).cmp(&(b.shard, b.offset, &b.name)));
    let wants_raw = |info: &TensorInfo| match requests.get(&(role, info.name.as_str())) {
        None => true,
        Some(Request::Artifact(artifact)) => !artifact.replaces_raw,
        Some(Request::Skip(_)) => false,
    };
    // Tensors that start at the same byte are the same bytes: a partial overlap does not get through the parser.
    let mut first_there = BTreeMap::new();
    for info in tensors.iter().filter(|info| wants_raw(info)) {
        first_there.entry((info.shard, info.offset)).or_insert(*info);
    }
    let raw: Vec<Bytes> = first_there.values().map(|info| info.len).collect();
    let places: BTreeMap<_, Place> = first_there.keys().copied().zip(packer.place(role, &raw)?).collect();

    let mut artifacts = add_artifacts(plan, packer, role, &tensors, requests)?;
    let planned = tensors.into_iter().map(|info| {
        let key = (info.shard, info.offset);
        let residency = match requests.get(&(role, info.name.as_str())) {
            Some(Request::Skip(skip)) => Residency::Skipped { reason: skip.reason.clone() },
            Some(Request::Artifact(request)) => {
                let artifact = artifacts.remove(info.name.as_str())?;
                match request.replaces_raw {
                    true => Residency::Replaced { artifact },
                    false => Residency::RawAndArtifact { place: places[&key], artifact },
                }
            }
            None if first_there[&key].name == info.name => Residency::Raw { place: places[&key] },
            None => Residency::Shared { place: places[&key], with: first_there[&key].name.clone() },
        };
        Some(planned_tensor(info, residency))
    });
    let tensors = planned.collect::<Option<Vec<_>>>()?;
    plan.models.push(PlannedModel { role, tensors });
    Some(())
}

/// Places the artifacts of a model in the order of their sources in the files, and returns their indices by source
/// tensor. Artifacts that replace the same bytes of the file, of the same type and dimensions, in the same layout, are one.
fn add_artifacts<'a>(
    plan: &mut Plan,
    packer: &mut Packer,
    role: Role,
    tensors: &[&'a TensorInfo],
    requests: &Requests<'_>,
) -> Option<BTreeMap<&'a str, usize>> {
    let request_for = |info: &&'a TensorInfo| match requests.get(&(role, info.name.as_str())) {
        Some(Request::Artifact(artifact)) => Some((*info, *artifact)),
        _ => None,
    };
    let wanted: Vec<_> = tensors.iter().filter_map(request_for).collect();
    let key = |info: &TensorInfo, request: &ArtifactRequest| {
        let own = (!request.replaces_raw).then(|| info.name.clone());
        (info.shard, info.offset, info.kind, info.dims.clone(), request.layout.clone(), request.len, own)
    };
    let mut firsts: BTreeMap<_, (&str, usize)> = BTreeMap::new();
    let mut lens = Vec::new();
    for (info, request) in &wanted {
        firsts.entry(key(info, request)).or_insert_with(|| {
            lens.push(request.len);
            (&info.name, lens.len() - 1)
        });
    }
    let places = packer.place(role, &lens)?;
    let mut indices = BTreeMap::new();
    for (info, request) in wanted {
        let (first, place) = firsts[&key(info, request)];
        indices.insert(info.name.as_str(), plan.artifacts.len());
        plan.artifacts.push(PlannedArtifact {
            role,
            tensor: info.name.clone(),
            layout: request.layout.clone(),
            replaces_raw: request.replaces_raw,
            shared_with: (first != info.name).then(|| first.to_owned()),
            place: places[place],
        });
    }
    Some(indices)
}

fn planned_tensor(info: &TensorInfo, residency: Residency) -> PlannedTensor {
    PlannedTensor {
        name: info.name.clone(),
        kind: info.kind,
        dims: info.dims.clone(),
        shard: info.shard,
        offset: info.offset,
        len: info.len,
        residency,
    }
}
