//! What the tools' schemas say about the types of parameters.

use ds4_model::{ToolSchema, ToolUse};
use serde_json::{Map, Value};
use std::collections::HashMap;

/// Schemas that point at each other are followed so far.
const DEPTH_MAX: usize = 16;

/// So many schemas are looked at for the parameters of one tool: choices that point back at themselves are without end.
const SCHEMAS_MAX: usize = 10_000;

/// The JSON types a parameter may have. All of them, where the schema leaves it open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Types(u8);

impl Types {
    pub(super) const NONE: Types = Types(0);
    pub(super) const STRING: Types = Types(1);
    pub(super) const INTEGER: Types = Types(2);
    pub(super) const NUMBER: Types = Types(4);
    pub(super) const BOOLEAN: Types = Types(8);
    pub(super) const OBJECT: Types = Types(16);
    pub(super) const ARRAY: Types = Types(32);
    pub(super) const NULL: Types = Types(64);
    pub(super) const ANY: Types = Types(127);

    pub(super) fn allows(self, other: Types) -> bool {
        self.0 & other.0 != 0
    }

    fn or(self, other: Types) -> Types {
        Types(self.0 | other.0)
    }

    fn and(self, other: Types) -> Types {
        Types(self.0 & other.0)
    }

    fn named(name: &str) -> Types {
        match name {
            "string" => Types::STRING,
            "integer" => Types::INTEGER,
            "number" => Types::NUMBER,
            "boolean" => Types::BOOLEAN,
            "object" => Types::OBJECT,
            "array" => Types::ARRAY,
            "null" => Types::NULL,
            _ => Types::ANY,
        }
    }

    fn of_value(value: &Value) -> Types {
        match value {
            Value::Null => Types::NULL,
            Value::Bool(_) => Types::BOOLEAN,
            Value::Number(number) if number.is_f64() => Types::NUMBER,
            Value::Number(_) => Types::INTEGER,
            Value::String(_) => Types::STRING,
            Value::Array(_) => Types::ARRAY,
            Value::Object(_) => Types::OBJECT,
        }
    }
}

/// The parameters of one tool.
#[derive(Clone, Debug, Default)]
struct Parameters {
    types: HashMap<String, Types>,
}

/// The tools of a request, by name.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct ToolTable {
    tools: HashMap<String, Parameters>,
}

impl ToolTable {
    pub(in super::super) fn of(tools: &ToolUse) -> ToolTable {
        let named = |schema: &ToolSchema| Some((schema.name()?, parameters(schema)));
        ToolTable { tools: tools.schemas.iter().filter_map(named).collect() }
    }

    pub(in super::super) fn has(&self, tool: &str) -> bool {
        self.tools.contains_key(tool)
    }

    /// Whether the tool's schema names this parameter.
    pub(super) fn has_parameter(&self, tool: &str, parameter: &str) -> bool {
        self.tools.get(tool).is_some_and(|known| known.types.contains_key(parameter))
    }

    /// The types of a parameter; any, where the schema does not say.
    pub(super) fn types(&self, tool: &str, parameter: &str) -> Types {
        self.tools.get(tool).and_then(|known| known.types.get(parameter)).copied().unwrap_or(Types::ANY)
    }
}

fn parameters(schema: &ToolSchema) -> Parameters {
    let Some(root) = schema.parameters().and_then(|json| serde_json::from_str::<Value>(json.as_str()).ok()) else {
        return Parameters::default();
    };
    let properties = root.get("properties").and_then(Value::as_object);
    let mut walk = Walk { root: &root, left: SCHEMAS_MAX };
    let types = properties.into_iter().flatten().map(|(name, schema)| (name.clone(), walk.types_of(schema, 0)));
    Parameters { types: types.collect() }
}

/// A way through the schemas of one tool.
struct Walk<'a> {
    root: &'a Value,
    /// Schemas that may still be looked at; what comes after them is of any type.
    left: usize,
}

impl Walk<'_> {
    fn types_of(&mut self, schema: &Value, depth: usize) -> Types {
        let Value::Object(schema) = schema else { return Types::ANY };
        if depth > DEPTH_MAX || self.left == 0 {
            return Types::ANY;
        }
        self.left -= 1;
        let mut types = declared(schema);
        if let Some(to) = schema.get("$ref").and_then(Value::as_str) {
            let target = to.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer));
            types = types.and(target.map_or(Types::ANY, |target| self.types_of(target, depth + 1)));
        }
        for key in ["anyOf", "oneOf"] {
            if let Some(Value::Array(choices)) = schema.get(key) {
                let any = choices.iter().map(|choice| self.types_of(choice, depth + 1));
                types = types.and(any.fold(Types::NONE, Types::or));
            }
        }
        if let Some(Value::Array(parts)) = schema.get("allOf") {
            types = parts.iter().map(|part| self.types_of(part, depth + 1)).fold(types, Types::and);
        }
        // A schema that nothing satisfies says nothing.
        if types == Types::NONE { Types::ANY } else { types }
    }
}

fn declared(schema: &Map<String, Value>) -> Types {
    let mut types = match schema.get("type") {
        Some(Value::String(name)) => Types::named(name),
        Some(Value::Array(names)) => {
            names.iter().map(|name| name.as_str().map_or(Types::ANY, Types::named)).fold(Types::NONE, Types::or)
        }
        _ => Types::ANY,
    };
    if let Some(Value::Array(values)) = schema.get("enum") {
        types = types.and(values.iter().map(Types::of_value).fold(Types::NONE, Types::or));
    }
    if let Some(value) = schema.get("const") {
        types = types.and(Types::of_value(value));
    }
    types
}

#[cfg(test)]
mod tests {
    use super::*;
    use ds4_model::JsonText;

    fn types(schema: &str) -> Types {
        let json = format!(
            r##"{{"name": "f", "parameters": {{"properties": {{"p": {schema}}}, "$defs": {{"n": {{"type": "integer"}}, "l": {{"$ref": "#/$defs/l"}}}}}}}}"##
        );
        let schemas = vec![ToolSchema { json: JsonText::parse(&json).expect("JSON") }];
        ToolTable::of(&ToolUse { schemas, ..ToolUse::default() }).types("f", "p")
    }

    #[test]
    fn types_follow_the_schema_and_are_any_where_it_is_silent() {
        assert_eq!(types(r#"{"type": "integer"}"#), Types::INTEGER);
        assert_eq!(types(r#"{"type": ["string", "null"]}"#), Types::STRING.or(Types::NULL));
        assert_eq!(types(r#"{"anyOf": [{"type": "array"}, {"const": true}]}"#), Types::ARRAY.or(Types::BOOLEAN));
        assert_eq!(types(r#"{"enum": ["a", 1]}"#), Types::STRING.or(Types::INTEGER));
        assert_eq!(types(r##"{"$ref": "#/$defs/n"}"##), Types::INTEGER);
        assert_eq!(types(r#"{"allOf": [{"type": ["string", "object"]}, {"type": "object"}]}"#), Types::OBJECT);
        for open in ["{}", "true", r#"{"type": "widget"}"#, r##"{"$ref": "#/nowhere"}"##, r##"{"$ref": "#/$defs/l"}"##]
        {
            assert_eq!(types(open), Types::ANY, "{open}");
        }
    }

    #[test]
    fn choices_that_point_at_themselves_end() {
        let choices = vec![r##"{"$ref": "#/properties/p"}"##; 40].join(", ");
        assert_eq!(types(&format!(r#"{{"anyOf": [{choices}]}}"#)), Types::ANY);
        assert_eq!(types(&format!(r#"{{"type": "string", "anyOf": [{choices}]}}"#)), Types::STRING);
    }

    #[test]
    fn tools_without_schemas_have_parameters_of_any_type() {
        let schemas = vec![ToolSchema { json: JsonText::parse(r#"{"name": "f"}"#).expect("JSON") }];
        let table = ToolTable::of(&ToolUse { schemas, ..ToolUse::default() });
        assert!(table.has("f") && !table.has("g") && !table.has_parameter("f", "p"));
        assert_eq!(table.types("f", "p"), Types::ANY);
    }
}
