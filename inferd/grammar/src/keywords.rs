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
    walk(schema, &mut Vec::new(), is_enforced)
}

/// Refuses references to other places than definitions.
pub(crate) fn check_references(schema: &Value) -> Result<(), SchemaError> {
    walk(schema, &mut Vec::new(), is_to_definition)
}

/// Judges the last keyword of a path, which is one of these.
type Rule = fn(&Map<String, Value>, &[&str]) -> Result<(), SchemaError>;

/// `path` holds the names that lead to `schema`. Values nest at most as deep as the JSON reader allows.
fn walk<'a>(schema: &'a Value, path: &mut Vec<&'a str>, rule: Rule) -> Result<(), SchemaError> {
    let keywords = match schema {
        Value::Object(keywords) => keywords,
        Value::Bool(_) => return Ok(()),
        _ => return Err(SchemaError::NotASchema { path: path.join(".") }),
    };
    for (keyword, value) in keywords {
        path.push(keyword);
        rule(keywords, path)?;
        walk_below(keyword, value, path, rule)?;
        path.pop();
    }
    Ok(())
}

fn is_enforced(keywords: &Map<String, Value>, path: &[&str]) -> Result<(), SchemaError> {
    match path.last() {
        Some(keyword) if UNSUPPORTED.contains(keyword) => Err(SchemaError::UnsupportedKeyword { path: path.join(".") }),
        Some(&"format") if may_be_string(keywords) => check_format(&keywords["format"], path),
        _ => Ok(()),
    }
}

fn is_to_definition(keywords: &Map<String, Value>, path: &[&str]) -> Result<(), SchemaError> {
    let found = match path.last() {
        Some(&"$ref") => keywords["$ref"].as_str().unwrap_or_default(),
        _ => return Ok(()),
    };
    if ["#/$defs/", "#/definitions/"].iter().any(|place| found.starts_with(place)) {
        return Ok(());
    }
    Err(SchemaError::UnsupportedReference { path: path.join("."), found: found.to_owned() })
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

fn walk_below<'a>(keyword: &str, value: &'a Value, path: &mut Vec<&'a str>, rule: Rule) -> Result<(), SchemaError> {
    match value {
        Value::Array(list) if SCHEMAS.contains(&keyword) || keyword == "items" => {
            list.iter().try_for_each(|schema| walk(schema, path, rule))
        }
        Value::Object(map) if NAMED_SCHEMAS.contains(&keyword) => walk_named(map, path, rule),
        _ if ONE_SCHEMA.contains(&keyword) => walk(value, path, rule),
        _ => Ok(()),
    }
}

fn walk_named<'a>(map: &'a Map<String, Value>, path: &mut Vec<&'a str>, rule: Rule) -> Result<(), SchemaError> {
    map.iter().try_for_each(|(name, schema)| {
        path.push(name);
        walk(schema, path, rule)?;
        path.pop();
        Ok(())
    })
}
