//! Metadata of a file: keys, values, and getters that convert between the widths different writers use.

use crate::value::{Array, Value};
use std::collections::BTreeMap;
use thiserror::Error;

/// The key-value pairs of one file, in key order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata {
    values: BTreeMap<String, Value>,
}

/// A key is there but holds something else than asked for.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ValueError {
    /// Another type.
    #[error("metadata key {key:?} is {found}; it must be {wanted}")]
    WrongType {
        /// The key.
        key: String,
        /// The type that is there.
        found: &'static str,
        /// The types that would do.
        wanted: &'static str,
    },
    /// A negative number where only counts make sense.
    #[error("metadata key {key:?} is {value}; it must not be negative")]
    Negative {
        /// The key.
        key: String,
        /// The number that is there.
        value: i64,
    },
}

impl Metadata {
    /// Adds a pair. `false` when the key is already there; the first value stays.
    pub(crate) fn insert(&mut self, key: String, value: Value) -> bool {
        if self.values.contains_key(&key) {
            return false;
        }
        self.values.insert(key, value);
        true
    }

    /// The value of this key as the file has it.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key)
    }

    /// Every key, in order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }

    /// Every pair, in key order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.values.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// A count, whatever integer width it is stored in.
    pub fn u64(&self, key: &str) -> Result<Option<u64>, ValueError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let signed = |value: i64| {
            u64::try_from(value).map_err(|_| ValueError::Negative { key: key.to_owned(), value }).map(Some)
        };
        match *value {
            Value::U8(value) => Ok(Some(value.into())),
            Value::U16(value) => Ok(Some(value.into())),
            Value::U32(value) => Ok(Some(value.into())),
            Value::U64(value) => Ok(Some(value)),
            Value::I8(value) => signed(value.into()),
            Value::I16(value) => signed(value.into()),
            Value::I32(value) => signed(value.into()),
            Value::I64(value) => signed(value),
            _ => Err(wrong(key, value, "an integer")),
        }
    }

    /// A floating-point number, of 32 or 64 bits.
    pub fn f64(&self, key: &str) -> Result<Option<f64>, ValueError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::F32(value)) => Ok(Some((*value).into())),
            Some(Value::F64(value)) => Ok(Some(*value)),
            Some(value) => Err(wrong(key, value, "a floating-point number")),
        }
    }

    /// A truth value.
    pub fn bool(&self, key: &str) -> Result<Option<bool>, ValueError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(*value)),
            Some(value) => Err(wrong(key, value, "a bool")),
        }
    }

    /// A text.
    pub fn str(&self, key: &str) -> Result<Option<&str>, ValueError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(value) => Err(wrong(key, value, "a string")),
        }
    }

    /// A list of texts.
    pub fn strings(&self, key: &str) -> Result<Option<&[String]>, ValueError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Array(Array::String(texts))) => Ok(Some(texts)),
            Some(value) => Err(wrong(key, value, "an array of strings")),
        }
    }

    /// A list of counts, whatever integer width they are stored in.
    pub fn u64s(&self, key: &str) -> Result<Option<Vec<u64>>, ValueError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let Value::Array(array) = value else { return Err(wrong(key, value, "an array of integers")) };
        match array {
            Array::U8(values) => Ok(Some(values.iter().map(|&v| v.into()).collect())),
            Array::U16(values) => Ok(Some(values.iter().map(|&v| v.into()).collect())),
            Array::U32(values) => Ok(Some(values.iter().map(|&v| v.into()).collect())),
            Array::U64(values) => Ok(Some(values.clone())),
            Array::I8(values) => counts(key, values).map(Some),
            Array::I16(values) => counts(key, values).map(Some),
            Array::I32(values) => counts(key, values).map(Some),
            Array::I64(values) => counts(key, values).map(Some),
            _ => Err(wrong(key, value, "an array of integers")),
        }
    }

    /// A list of floating-point numbers, of 32 or 64 bits.
    pub fn f64s(&self, key: &str) -> Result<Option<Vec<f64>>, ValueError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Array(Array::F32(values))) => Ok(Some(values.iter().map(|&v| v.into()).collect())),
            Some(Value::Array(Array::F64(values))) => Ok(Some(values.clone())),
            Some(value) => Err(wrong(key, value, "an array of floating-point numbers")),
        }
    }
}

fn counts<T: Copy + Into<i64>>(key: &str, values: &[T]) -> Result<Vec<u64>, ValueError> {
    let count = |value: &T| {
        let value: i64 = (*value).into();
        u64::try_from(value).map_err(|_| ValueError::Negative { key: key.to_owned(), value })
    };
    values.iter().map(count).collect()
}

fn wrong(key: &str, value: &Value, wanted: &'static str) -> ValueError {
    ValueError::WrongType { key: key.to_owned(), found: value.type_name(), wanted }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(pairs: impl IntoIterator<Item = (&'static str, Value)>) -> Metadata {
        let mut metadata = Metadata::default();
        for (key, value) in pairs {
            assert!(metadata.insert(key.to_owned(), value));
        }
        metadata
    }

    #[test]
    fn a_count_is_read_from_every_integer_width() {
        let all = [
            Value::U8(7),
            Value::I8(7),
            Value::U16(7),
            Value::I16(7),
            Value::U32(7),
            Value::I32(7),
            Value::U64(7),
            Value::I64(7),
        ];
        for value in all {
            assert_eq!(metadata([("k", value.clone())]).u64("k"), Ok(Some(7)), "{value:?}");
        }
        assert_eq!(metadata([]).u64("k"), Ok(None));
    }

    #[test]
    fn a_negative_count_is_refused_with_its_value() {
        let error = metadata([("k", Value::I32(-3))]).u64("k").unwrap_err();
        assert_eq!(error.to_string(), "metadata key \"k\" is -3; it must not be negative");
        let list = metadata([("k", Value::Array(Array::I32(vec![4, -1])))]);
        assert_eq!(list.u64s("k"), Err(ValueError::Negative { key: "k".into(), value: -1 }));
    }

    #[test]
    fn a_wrong_type_names_what_is_there_and_what_is_wanted() {
        let metadata = metadata([("k", Value::Array(Array::U8(vec![1]))), ("f", Value::F32(0.5)), ("s", "x".into())]);
        let error = metadata.str("k").unwrap_err();
        assert_eq!(error.to_string(), "metadata key \"k\" is array of u8; it must be a string");
        assert!(metadata.u64("f").is_err());
        assert!(metadata.f64("s").is_err());
        assert!(metadata.bool("s").is_err());
        assert!(metadata.strings("k").is_err());
        assert!(metadata.f64s("k").is_err());
        assert!(metadata.u64s("s").is_err());
    }

    #[test]
    fn lists_convert_between_widths() {
        let metadata = metadata([
            ("i", Value::Array(Array::I32(vec![0, 4, 128]))),
            ("f", Value::Array(Array::F32(vec![10.0, 0.5]))),
            ("t", Value::Array(Array::String(vec!["a".into()]))),
        ]);
        assert_eq!(metadata.u64s("i"), Ok(Some(vec![0, 4, 128])));
        assert_eq!(metadata.f64s("f"), Ok(Some(vec![10.0, 0.5])));
        assert_eq!(metadata.strings("t"), Ok(Some(&["a".to_owned()][..])));
    }
}
