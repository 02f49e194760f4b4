//! Why an answer cannot be held to a schema.

/// A schema that cannot be used. What is wrong lies in the request: the same schema fails again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum SchemaError {
    /// `path` leads from the schema's root to the keyword, with dots.
    #[error("{path}: is not supported in structured output; leave it out")]
    UnsupportedKeyword { path: String },
    #[error("{path}: {found:?} is not a supported string format; leave it out, or describe it by a pattern")]
    UnsupportedFormat { path: String, found: String },
    #[error("{path}: must be an object, true or false")]
    NotASchema { path: String },
    #[error("oneOf: its alternatives may overlap, and then it cannot be enforced; use anyOf")]
    OverlappingOneOf,
    #[error("{path}: is not supported at the root of a strict tool's parameters; leave it out, or strict")]
    UnsupportedAtRoot { path: String },
    #[error("{path}: {name:?} is none of the properties, where a strict tool needs it")]
    NoSuchProperty { path: String, name: String },
    #[error("{path}: {found:?} is not supported in a strict tool; refer to #/$defs/ or #/definitions/")]
    UnsupportedReference { path: String, found: String },
    #[error("the schema has more than {most} {what}")]
    TooLarge { what: &'static str, most: usize },
    #[error("no answer can follow this schema: {reason}")]
    Unusable { reason: String },
}

impl SchemaError {
    /// The part of the schema it is about; empty for the whole.
    pub fn path(&self) -> &str {
        match self {
            SchemaError::UnsupportedKeyword { path }
            | SchemaError::UnsupportedFormat { path, .. }
            | SchemaError::NotASchema { path }
            | SchemaError::UnsupportedAtRoot { path }
            | SchemaError::NoSuchProperty { path, .. }
            | SchemaError::UnsupportedReference { path, .. } => path,
            SchemaError::OverlappingOneOf => "oneOf",
            SchemaError::TooLarge { .. } | SchemaError::Unusable { .. } => "",
        }
    }
}

/// Why there is no next mask.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum MaskError {
    #[error("token {token} does not follow the schema here")]
    TokenNotAllowed { token: u32 },
    #[error("the schema is too complex to follow at this point: {reason}")]
    TooComplex { reason: String },
}
