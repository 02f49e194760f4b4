//! Metadata keys of this architecture, with errors that name the key and what was wrong.

use ds4_gguf::Metadata;
use ds4_model::FamilyError;
use std::ops::RangeInclusive;

/// Reads keys below the architecture's prefix.
pub(super) struct Keys<'a> {
    metadata: &'a Metadata,
}

impl<'a> Keys<'a> {
    pub(super) fn new(metadata: &'a Metadata) -> Keys<'a> {
        Keys { metadata }
    }

    pub(super) fn metadata(&self) -> &'a Metadata {
        self.metadata
    }

    /// The error that `key` is wrong.
    pub(super) fn wrong(&self, key: &str, problem: String) -> FamilyError {
        FamilyError::Metadata { key: full(key), problem }
    }

    /// A whole number within `allowed`.
    pub(super) fn size(&self, key: &str, allowed: RangeInclusive<usize>) -> Result<usize, FamilyError> {
        let value = self.metadata.u64(&full(key)).map_err(|error| self.wrong(key, error.to_string()))?;
        self.in_range(key, value.ok_or_else(|| self.missing(key))?, allowed)
    }

    /// The same, or `default` when the file does not say.
    pub(super) fn size_or(
        &self,
        key: &str,
        default: usize,
        allowed: RangeInclusive<usize>,
    ) -> Result<usize, FamilyError> {
        if self.metadata.get(&full(key)).is_none() { Ok(default) } else { self.size(key, allowed) }
    }

    /// A positive finite number.
    pub(super) fn float(&self, key: &str) -> Result<f64, FamilyError> {
        let value = self.metadata.f64(&full(key)).map_err(|error| self.wrong(key, error.to_string()))?;
        let value = value.ok_or_else(|| self.missing(key))?;
        if value.is_finite() && value > 0.0 {
            Ok(value)
        } else {
            Err(self.wrong(key, format!("{value} is not a positive number")))
        }
    }

    /// The same, or `default` when the file does not say.
    pub(super) fn float_or(&self, key: &str, default: f64) -> Result<f64, FamilyError> {
        if self.metadata.get(&full(key)).is_none() { Ok(default) } else { self.float(key) }
    }

    /// A required truth value.
    pub(super) fn flag(&self, key: &str) -> Result<bool, FamilyError> {
        let value = self.metadata.bool(&full(key)).map_err(|error| self.wrong(key, error.to_string()))?;
        value.ok_or_else(|| self.missing(key))
    }

    /// An array of at least `len` whole numbers.
    pub(super) fn sizes(&self, key: &str, len: usize) -> Result<Vec<u64>, FamilyError> {
        let values = self.metadata.u64s(&full(key)).map_err(|error| self.wrong(key, error.to_string()))?;
        self.long_enough(key, values, len)
    }

    /// An array of at least `len` numbers.
    pub(super) fn floats(&self, key: &str, len: usize) -> Result<Vec<f64>, FamilyError> {
        let values = self.metadata.f64s(&full(key)).map_err(|error| self.wrong(key, error.to_string()))?;
        self.long_enough(key, values, len)
    }

    fn long_enough<T>(&self, key: &str, values: Option<Vec<T>>, len: usize) -> Result<Vec<T>, FamilyError> {
        let values = values.ok_or_else(|| self.missing(key))?;
        if values.len() < len {
            return Err(self.wrong(key, format!("has {} entries; {len} layers need one each", values.len())));
        }
        Ok(values)
    }

    fn in_range(&self, key: &str, value: u64, allowed: RangeInclusive<usize>) -> Result<usize, FamilyError> {
        let (low, high) = allowed.into_inner();
        if value >= low as u64 && value <= high as u64 {
            return Ok(value as usize);
        }
        let expected = if low == high { format!("must be {low}") } else { format!("must be {low} to {high}") };
        Err(self.wrong(key, format!("is {value}; it {expected}")))
    }

    fn missing(&self, key: &str) -> FamilyError {
        self.wrong(key, "is missing".into())
    }
}

fn full(key: &str) -> String {
    format!("{}.{key}", super::ARCHITECTURE)
}
