//! What a reply repeats of its request. Strict clients refuse a response object without these fields.

use crate::reader::{Fields, Node};
use serde_json::{Map, Value, json};

pub(super) struct Echo(Vec<(&'static str, Value)>);

/// Repeated as sent, or with this value where the request is silent.
fn defaults() -> [(&'static str, Value); 12] {
    [
        ("instructions", Value::Null),
        ("max_output_tokens", Value::Null),
        ("metadata", json!({})),
        ("parallel_tool_calls", true.into()),
        ("previous_response_id", Value::Null),
        ("reasoning", json!({"effort": null, "summary": null})),
        ("store", false.into()),
        ("temperature", 1.0.into()),
        ("text", json!({"format": {"type": "text"}})),
        ("tool_choice", "auto".into()),
        ("tools", json!([])),
        ("top_p", 1.0.into()),
    ]
}

impl Echo {
    pub(super) fn of(fields: Fields<'_>) -> Echo {
        let repeated = defaults().map(|(name, default)| {
            let sent = fields.get(name).as_ref().map(Node::value).cloned();
            (name, sent.map_or(default.clone(), |sent| completed(sent, &default)))
        });
        Echo(repeated.into())
    }

    pub(super) fn add_to(&self, object: &mut Map<String, Value>) {
        for (name, value) in &self.0 {
            object.insert((*name).into(), value.clone());
        }
        object.insert("truncation".into(), "disabled".into());
    }
}

/// An object with what the request left out of it.
fn completed(mut sent: Value, default: &Value) -> Value {
    if let (Value::Object(sent), Value::Object(default)) = (&mut sent, default) {
        for (name, value) in default {
            sent.entry(name.clone()).or_insert_with(|| value.clone());
        }
    }
    sent
}
