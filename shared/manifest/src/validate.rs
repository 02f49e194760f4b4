//! Whether the tables of a weights manifest agree with each other.

use crate::{Place, State, WeightsManifest};
use ds4_units::Bytes;
use std::collections::BTreeSet;
use thiserror::Error;

/// Places start at multiples of this, so that bytes may be viewed as wider words.
const PLACE_ALIGN: u64 = 256;
/// A Unix socket's longest path.
const SOCKET_PATH_MAX: usize = 107;

/// Tables that contradict each other.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum InvalidManifest {
    /// The schema's name is another one.
    #[error("schema {found:?}")]
    Schema {
        /// The name.
        found: String,
    },
    /// A published manifest that says its owner is leaving.
    #[error("state draining in a published manifest")]
    Draining,
    /// The socket's path cannot be one.
    #[error("broker path {path:?} is not an absolute path of at most {SOCKET_PATH_MAX} bytes")]
    BrokerPath {
        /// The path.
        path: String,
    },
    /// Protocol versions are in the wrong order.
    #[error("broker protocols {min} to {max}")]
    Protocols {
        /// The lowest.
        min: u32,
        /// The highest.
        max: u32,
    },
    /// A list has the same name twice or is not in order.
    #[error("{list}: {name:?} is there twice or out of order")]
    Order {
        /// Which list.
        list: &'static str,
        /// The second of the two names.
        name: String,
    },
    /// A range's number is not its position, or it is longer than its allocation.
    #[error("range {id} at position {position}: {len} bytes in {allocated}")]
    Range {
        /// Its number.
        id: u32,
        /// Its position.
        position: usize,
        /// Bytes in use.
        len: u64,
        /// Bytes allocated.
        allocated: u64,
    },
    /// A place is outside its range or not aligned.
    #[error(
        "{name:?} at offset {offset}, {len} bytes, does not fit range {range} of {range_len:?} bytes, aligned to {PLACE_ALIGN}"
    )]
    Outside {
        /// The tensor.
        name: String,
        /// The range it names.
        range: u32,
        /// Its offset.
        offset: u64,
        /// Its length.
        len: u64,
        /// The range's length, if there is such a range.
        range_len: Option<u64>,
    },
    /// Two places overlap without being the same.
    #[error("{first:?} and {second:?} overlap in range {range}")]
    Overlap {
        /// The one that starts first.
        first: String,
        /// The other.
        second: String,
        /// Their range.
        range: u32,
    },
    /// A tensor's length does not follow from its type and dimensions.
    #[error("{name:?} has {len} bytes, its type and dimensions give {expected:?}")]
    Length {
        /// The tensor.
        name: String,
        /// The length of its place.
        len: u64,
        /// What type and dimensions give; `None` if they give no length at all.
        expected: Option<u64>,
    },
    /// A tensor has neither a place nor a replacing artifact, or both.
    #[error("{name:?} must have either a place or an artifact that replaces it")]
    Homeless {
        /// The tensor.
        name: String,
    },
    /// An artifact names a tensor that is not there.
    #[error("an artifact {layout:?} of {tensor:?}, which is in no table")]
    Source {
        /// The artifact's layout.
        layout: String,
        /// The source tensor it names.
        tensor: String,
    },
    /// An artifact's layout is not among the needs.
    #[error("an artifact {layout:?} whose layout is not among the needs")]
    Unneeded {
        /// The artifact's layout.
        layout: String,
    },
    /// The sums are not the sums of the tables.
    #[error("the totals are not those of the tables")]
    Totals,
}

impl WeightsManifest {
    /// Checks every table; the first contradiction is the error.
    pub fn validate(&self) -> Result<(), InvalidManifest> {
        self.validate_head()?;
        self.validate_ranges()?;
        self.validate_tensors()?;
        self.validate_artifacts()?;
        self.validate_places()?;
        if self.totals == self.count() { Ok(()) } else { Err(InvalidManifest::Totals) }
    }

    fn validate_head(&self) -> Result<(), InvalidManifest> {
        if self.schema != WeightsManifest::SCHEMA {
            return Err(InvalidManifest::Schema { found: self.schema.clone() });
        }
        if self.state != State::Ready {
            return Err(InvalidManifest::Draining);
        }
        let broker = &self.broker;
        if !broker.path.starts_with('/') || broker.path.len() > SOCKET_PATH_MAX || broker.path.contains('\0') {
            return Err(InvalidManifest::BrokerPath { path: broker.path.clone() });
        }
        if broker.proto_min > broker.proto_max {
            return Err(InvalidManifest::Protocols { min: broker.proto_min, max: broker.proto_max });
        }
        let needs: Vec<&str> = self.needs.iter().map(|need| need.capability.as_str()).collect();
        in_order("needs", &needs)
    }

    fn validate_ranges(&self) -> Result<(), InvalidManifest> {
        for (position, range) in self.ranges.iter().enumerate() {
            if range.id as usize != position || range.len > range.allocated || range.len == Bytes::ZERO {
                return Err(InvalidManifest::Range {
                    id: range.id,
                    position,
                    len: range.len.0,
                    allocated: range.allocated.0,
                });
            }
        }
        Ok(())
    }

    fn validate_tensors(&self) -> Result<(), InvalidManifest> {
        let mut ids: Vec<&str> = self.models.iter().map(|model| model.id.as_str()).collect();
        ids.sort_unstable();
        in_order("models", &ids)?;
        let replaced: BTreeSet<(&str, &str)> = self
            .artifacts
            .iter()
            .filter(|artifact| artifact.replaces_raw)
            .map(|artifact| (artifact.model.as_str(), artifact.tensor.as_str()))
            .collect();
        for model in &self.models {
            let names: Vec<&str> = model.tensors.iter().map(|tensor| tensor.name.as_str()).collect();
            in_order("tensors", &names)?;
            for tensor in &model.tensors {
                let elements = tensor.dims.iter().try_fold(1u64, |product, &dim| product.checked_mul(dim));
                let expected = elements.and_then(|elements| tensor.kind.byte_len(elements));
                let len = tensor.place.map(|place| place.len).or(expected);
                if len.is_none() || len != expected {
                    return Err(InvalidManifest::Length {
                        name: tensor.name.clone(),
                        len: len.unwrap_or_default().0,
                        expected: expected.map(|bytes| bytes.0),
                    });
                }
                if tensor.place.is_some() == replaced.contains(&(model.id.as_str(), tensor.name.as_str())) {
                    return Err(InvalidManifest::Homeless { name: tensor.name.clone() });
                }
            }
        }
        Ok(())
    }

    fn validate_artifacts(&self) -> Result<(), InvalidManifest> {
        for artifact in &self.artifacts {
            let source = self.model(&artifact.model).map(|model| &model.tensors);
            let known = source.is_some_and(|tensors| {
                tensors.binary_search_by(|tensor| tensor.name.as_str().cmp(&artifact.tensor)).is_ok()
            });
            if !known {
                return Err(InvalidManifest::Source {
                    layout: artifact.layout.clone(),
                    tensor: artifact.tensor.clone(),
                });
            }
            if !self.needs.iter().any(|need| need.capability == artifact.layout) {
                return Err(InvalidManifest::Unneeded { layout: artifact.layout.clone() });
            }
        }
        Ok(())
    }

    /// Every place lies in its range; two places are the same bytes or have none in common.
    fn validate_places(&self) -> Result<(), InvalidManifest> {
        let tensors = self.models.iter().flat_map(|model| &model.tensors);
        let raw = tensors.filter_map(|tensor| Some((tensor.place?, tensor.name.as_str())));
        let artifacts = self.artifacts.iter().map(|artifact| (artifact.place, artifact.tensor.as_str()));
        let mut places: Vec<(Place, &str)> = raw.chain(artifacts).collect();
        places.sort_unstable();
        for (place, name) in &places {
            let range_len = self.ranges.get(place.range as usize).map(|range| range.len.0);
            let end = place.offset.checked_add(place.len).map(|end| end.0);
            let fits = end.zip(range_len).is_some_and(|(end, len)| end <= len);
            if !fits || !place.offset.0.is_multiple_of(PLACE_ALIGN) {
                return Err(InvalidManifest::Outside {
                    name: (*name).to_owned(),
                    range: place.range,
                    offset: place.offset.0,
                    len: place.len.0,
                    range_len,
                });
            }
        }
        for pair in places.windows(2) {
            let [(first, first_name), (second, second_name)] = pair else { continue };
            let apart = first.range != second.range || first.offset.0 + first.len.0 <= second.offset.0;
            if !apart && first != second {
                return Err(InvalidManifest::Overlap {
                    first: (*first_name).to_owned(),
                    second: (*second_name).to_owned(),
                    range: first.range,
                });
            }
        }
        Ok(())
    }
}

fn in_order(list: &'static str, names: &[&str]) -> Result<(), InvalidManifest> {
    match names.windows(2).find(|pair| pair[0] >= pair[1]) {
        Some(pair) => Err(InvalidManifest::Order { list, name: pair[1].to_owned() }),
        None => Ok(()),
    }
}
