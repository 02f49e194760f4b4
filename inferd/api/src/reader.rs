//! Reading a JSON body field by field, always knowing where we are.
//!
//! A [`Node`] is a value with its path, so that every error names the field a client has to change
//! (`messages[3].content[1].type`). `null` counts as absent, unknown fields are skipped, types are strict.

use crate::ApiError;
use crate::body::JsonBody;
use crate::verbatim::Verbatim;
use ds4_model::ToolArguments;
use serde_json::{Map, Value};
use std::fmt::{self, Display, Write};

/// A JSON value and where it lies in the body.
#[derive(Clone, Copy)]
pub(crate) struct Node<'a> {
    value: &'a Value,
    place: Place<'a>,
}

#[derive(Clone, Copy)]
enum Place<'a> {
    Body(Option<&'a Verbatim>),
    Field(&'a Node<'a>, &'a str),
    Item(&'a Node<'a>, usize),
}

/// An object and where it lies.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'a> {
    node: &'a Node<'a>,
    map: &'a Map<String, Value>,
}

impl<'a> Node<'a> {
    /// The whole body.
    pub(crate) fn body(body: &'a JsonBody) -> Node<'a> {
        Node { value: &body.value, place: Place::Body(Some(&body.verbatim)) }
    }

    /// A value that stands for a body.
    #[cfg(test)]
    pub(crate) fn bare(value: &'a Value) -> Node<'a> {
        Node { value, place: Place::Body(None) }
    }

    pub(crate) fn value(&self) -> &'a Value {
        self.value
    }

    /// Item `index` of this array.
    pub(crate) fn item(&'a self, index: usize, value: &'a Value) -> Node<'a> {
        Node { value, place: Place::Item(self, index) }
    }

    /// The value as an object.
    pub(crate) fn fields(&'a self) -> Result<Fields<'a>, ApiError> {
        match self.value {
            Value::Object(map) => Ok(Fields { node: self, map }),
            _ => Err(self.refuse("must be an object")),
        }
    }

    pub(crate) fn str(&self) -> Result<&'a str, ApiError> {
        self.value.as_str().ok_or_else(|| self.refuse("must be a string"))
    }

    pub(crate) fn bool(&self) -> Result<bool, ApiError> {
        self.value.as_bool().ok_or_else(|| self.refuse("must be true or false"))
    }

    pub(crate) fn array(&self) -> Result<&'a [Value], ApiError> {
        self.value.as_array().map(Vec::as_slice).ok_or_else(|| self.refuse("must be an array"))
    }

    /// A whole number of any sign; what does not fit 64 bits is cut to the nearest that does.
    pub(crate) fn integer(&self) -> Result<i64, ApiError> {
        match self.value {
            Value::Number(number) if number.is_i64() => Ok(number.as_i64().unwrap_or_default()),
            Value::Number(number) if number.is_u64() => Ok(i64::MAX),
            _ => Err(self.refuse("must be an integer")),
        }
    }

    /// The arguments of a call that are this object, as the client spelled them.
    pub(crate) fn arguments(&self) -> ToolArguments {
        let verbatim = self.verbatim().and_then(|verbatim| verbatim.at(&self.path()));
        match verbatim {
            Some(json) => ToolArguments::parse(json.as_str()),
            None => ToolArguments::parse(&self.value.to_string()),
        }
    }

    fn verbatim(&self) -> Option<&'a Verbatim> {
        match self.place {
            Place::Body(verbatim) => verbatim,
            Place::Field(parent, _) | Place::Item(parent, _) => parent.verbatim(),
        }
    }

    /// A number that `fits`, whose range is `range` in words.
    pub(crate) fn number(&self, range: &str, fits: impl Fn(f64) -> bool) -> Result<f64, ApiError> {
        let number = self.value.as_f64().ok_or_else(|| self.refuse("must be a number"))?;
        if fits(number) { Ok(number) } else { Err(self.refuse(format!("must be {range}"))) }
    }

    /// An error about this value.
    pub(crate) fn refuse(&self, problem: impl Display) -> ApiError {
        ApiError::field(self.path(), problem)
    }

    pub(crate) fn path(&self) -> String {
        let mut path = String::new();
        // Writing to a string does not fail.
        let _ = self.write_path(&mut path);
        path
    }

    fn write_path(&self, out: &mut String) -> fmt::Result {
        match self.place {
            Place::Body(_) => out.write_str("body"),
            Place::Field(parent, name) => {
                if !matches!(parent.place, Place::Body(_)) {
                    parent.write_path(out)?;
                    out.write_char('.')?;
                }
                out.write_str(name)
            }
            Place::Item(parent, index) => {
                parent.write_path(out)?;
                write!(out, "[{index}]")
            }
        }
    }
}

impl<'a> Fields<'a> {
    /// The field, unless it is absent or null.
    pub(crate) fn get(&self, name: &'a str) -> Option<Node<'a>> {
        let value = self.map.get(name).filter(|value| !value.is_null())?;
        Some(Node { value, place: Place::Field(self.node, name) })
    }

    /// The field, if it is there, null or not.
    pub(crate) fn present(&self, name: &'a str) -> Option<Node<'a>> {
        self.map.get(name).map(|value| Node { value, place: Place::Field(self.node, name) })
    }

    /// The field, or an error that it is missing.
    pub(crate) fn require(&self, name: &'a str) -> Result<Node<'a>, ApiError> {
        self.get(name).ok_or_else(|| self.missing(name))
    }

    /// An error that a field is missing.
    pub(crate) fn missing(&self, name: &'a str) -> ApiError {
        Node { value: &Value::Null, place: Place::Field(self.node, name) }.refuse("is missing")
    }

    pub(crate) fn str(&self, name: &'a str) -> Result<Option<&'a str>, ApiError> {
        self.get(name).map(|node| node.str()).transpose()
    }

    pub(crate) fn bool(&self, name: &'a str) -> Result<Option<bool>, ApiError> {
        self.get(name).map(|node| node.bool()).transpose()
    }

    /// A count: negative is refused, more than 32 bits hold is cut.
    pub(crate) fn count(&self, name: &'a str) -> Result<Option<u32>, ApiError> {
        let Some(node) = self.get(name) else { return Ok(None) };
        match node.integer()? {
            negative if negative < 0 => Err(ApiError::bare_field(node.path(), "must be >= 0")),
            count => Ok(Some(count.min(i64::from(i32::MAX)) as u32)),
        }
    }

    pub(crate) fn number(
        &self,
        name: &'a str,
        range: &str,
        fits: impl Fn(f64) -> bool,
    ) -> Result<Option<f64>, ApiError> {
        self.get(name).map(|node| node.number(range, fits)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_error_names_the_path_of_its_value() {
        let body = json!({"messages": [{"content": [{"type": 3}]}]});
        let body = Node::bare(&body);
        let fields = body.fields().unwrap();
        let messages = fields.get("messages").unwrap();
        let message = messages.item(0, &messages.array().unwrap()[0]);
        let content = message.fields().unwrap().get("content").unwrap().value().as_array().unwrap();
        let holder = message.fields().unwrap();
        let list = holder.get("content").unwrap();
        let part = list.item(0, &content[0]);
        let kind = part.fields().unwrap().str("type").unwrap_err();
        assert_eq!(kind.message(), "messages[0].content[0].type: must be a string");
        assert_eq!(kind.param(), Some("messages[0].content[0].type"));
    }

    #[test]
    fn null_is_absent_and_types_are_strict() {
        let body = json!({"a": null, "b": "1", "c": 1.5, "d": -1, "e": 9e99, "f": 99999999999u64});
        let body = Node::bare(&body);
        let fields = body.fields().unwrap();
        assert_eq!(fields.bool("a").unwrap(), None);
        assert_eq!(fields.count("b").unwrap_err().message(), "b: must be an integer");
        assert_eq!(fields.count("c").unwrap_err().message(), "c: must be an integer");
        assert_eq!(fields.count("d").unwrap_err().message(), "d must be >= 0");
        assert_eq!(fields.count("e").unwrap_err().message(), "e: must be an integer");
        assert_eq!(fields.count("f").unwrap(), Some(i32::MAX as u32));
        assert_eq!(Node::bare(&json!([])).fields().err().unwrap().message(), "body: must be an object");
    }
}
