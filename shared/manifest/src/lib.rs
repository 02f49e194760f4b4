//! Two JSON files that describe weights.
//!
//! - [`WeightsManifest`] (`ds4.weights/2`): written by an owner at run time into its run directory. Where each tensor
//!   lies in the resident ranges, what the content is, and whom to ask for the ranges.
//! - [`ArtifactManifest`] (`ds4.artifact/1`): kept in `manifests/`. What an operator deploys: files, sizes, digests,
//!   family, limits and licence.
//!
//! Both are read strictly: an unknown field, an unknown schema or a value that contradicts another is an error.

mod artifact;
mod digest;
mod publish;
mod text;
mod trust;
mod validate;
mod weights;

pub use artifact::{ArtifactError, ArtifactFile, ArtifactManifest, Licence, Limits};
pub use digest::{Digest, InstanceId};
pub use publish::{PublishError, Published, publish};
pub use text::ManifestError;
pub use trust::{Trust, TrustError, check_folder};
pub use validate::InvalidManifest;
pub use weights::{
    Artifact, Broker, Device, Model, ModelFile, Need, Owner, Place, Range, State, Tensor, Totals, WeightsManifest,
};
