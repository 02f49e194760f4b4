//! Whether JSON texts say the same.

use crate::{JsonText, PromptText};
use serde_json::{Map, Number, Value};
use std::collections::HashMap;

/// Whether two lists of an object's members say the same: any order, and of equal keys the last counts.
pub(crate) fn same_members(a: &[(PromptText, JsonText)], b: &[(PromptText, JsonText)]) -> bool {
    let last = |members: &[(PromptText, JsonText)]| -> HashMap<String, JsonText> {
        members.iter().map(|(key, value)| (key.as_str().to_owned(), value.clone())).collect()
    };
    let (a, b) = (last(a), last(b));
    a.len() == b.len() && a.iter().all(|(key, mine)| b.get(key).is_some_and(|theirs| same(mine, theirs)))
}

/// Values nested deeper than the parser goes are compared as text.
fn same(a: &JsonText, b: &JsonText) -> bool {
    if a == b {
        return true;
    }
    let parse = |text: &JsonText| serde_json::from_str::<Value>(text.as_str()).ok();
    parse(a).zip(parse(b)).is_some_and(|(a, b)| same_values(&a, &b))
}

fn same_values(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => same_numbers(a, b),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_values(a, b)),
        (Value::Object(a), Value::Object(b)) => same_objects(a, b),
        _ => a == b,
    }
}

fn same_objects(a: &Map<String, Value>, b: &Map<String, Value>) -> bool {
    a.len() == b.len() && a.iter().all(|(key, mine)| b.get(key).is_some_and(|theirs| same_values(mine, theirs)))
}

/// `1.0` and `1` are the same number; two whole numbers are compared exactly.
fn same_numbers(a: &Number, b: &Number) -> bool {
    a == b || ((a.is_f64() || b.is_f64()) && a.as_f64() == b.as_f64())
}
