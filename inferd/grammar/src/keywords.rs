//! What of JSON Schema can be enforced. A keyword that would be ignored is refused, with the path to it.

use crate::{SchemaError, size};
use serde_json::{Map, Value};

/// Keywords that restrict answers and are not enforced.
const UNSUPPORTED: [&str; 18] = [
    "$dynamicRef",
    "$recursiveRef",
    "contains",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "else",
    "extends",
    "disallow",
    "if",
    "maxContains",
    "minContains",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
    "uniqueItems",
];

/// Keywords whose value is a schema.
const ONE_SCHEMA: [&str; 3] = ["additionalItems", "additionalProperties", "items"];

/// Keywords whose value is an array of schemas.
const SCHEMAS: [&str; 4] = ["allOf", "anyOf", "oneOf", "prefixItems"];

/// Keywords whose value is an object of schemas.
const NAMED_SCHEMAS: [&str; 4] = ["$defs", "definitions", "patternProperties", "properties"];

/// String formats that are enforced.
const FORMATS: [&str; 10] =
    ["date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid"];

/// Refuses a schema that says what would not be enforced, or that is too large.
pub(crate) fn check(schema: &Value) -> Result<(), SchemaError> {
    size::check(schema)?;
    walk(schema, &mut Vec::new())
}

/// `path` holds the names that lead to `schema`. Values nest at most as deep as the JSON reader allows.
fn walk<'a>(schema: &'a Value, path: &mut Vec<&'a str>) -> Result<(), SchemaError> {
    let keywords = match schema {
        Value::Object(keywords) => keywords,
        Value::Bool(_) => return Ok(()),
        _ => return Err(SchemaError::NotASchema { path: path.join(".") }),
    };
    for (keyword, value) in keywords {
        path.push(keyword);
        check_keyword(keyword, path)?;
        if keyword == "format" && may_be_string(keywords) {
            check_format(value, path)?;
        }
        walk_below(keyword, value, path)?;
        path.pop();
    }
    Ok(())
}

fn check_keyword(keyword: &str, path: &[&str]) -> Result<(), SchemaError> {
    if UNSUPPORTED.contains(&keyword) {
        return Err(SchemaError::UnsupportedKeyword { path: path.join(".") });
    }
    Ok(())
}

/// Whether a format says something here: those of numbers (`int64`) only describe.
fn may_be_string(keywords: &Map<String, Value>) -> bool {
    match keywords.get("type") {
        Some(Value::String(kind)) => kind == "string",
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "string"),
        _ => true,
    }
}

fn check_format(value: &Value, path: &[&str]) -> Result<(), SchemaError> {
    match value.as_str() {
        Some(found) if !FORMATS.contains(&found) => {
            Err(SchemaError::UnsupportedFormat { path: path.join("."), found: found.to_owned() })
        }
        _ => Ok(()),
    }
}

fn walk_below<'a>(keyword: &str, value: &'a Value, path: &mut Vec<&'a str>) -> Result<(), SchemaError> {
    match value {
        Value::Array(list) if SCHEMAS.contains(&keyword) || keyword == "items" => {
            list.iter().try_for_each(|schema| walk(schema, path))
        }
        Value::Object(map) if NAMED_SCHEMAS.contains(&keyword) => walk_named(map, path),
        _ if ONE_SCHEMA.contains(&keyword) => walk(value, path),
        _ => Ok(()),
    }
}

fn walk_named<'a>(map: &'a Map<String, Value>, path: &mut Vec<&'a str>) -> Result<(), SchemaError> {
    map.iter().try_for_each(|(name, schema)| {
        path.push(name);
        walk(schema, path)?;
        path.pop();
        Ok(())
    })
}
