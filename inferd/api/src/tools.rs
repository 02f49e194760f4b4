//! Tools as all surfaces offer them: the same tool gives the same prompt bytes, whichever protocol brought it.

mod choice;
mod names;

pub(crate) use choice::{Choice, read as read_choice};
pub(crate) use names::{Names, Target};

use crate::ApiError;
use crate::reader::{Fields, Node};
use ds4_model::{CallRelease, JsonText, ToolChoice, ToolSchema, ToolUse};
use serde_json::{Map, Value, json};

/// The tools a request lists, under the names the prompt gives them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Offer {
    schemas: Vec<ToolSchema>,
    names: Vec<String>,
    /// Those whose calls are held to their schemas.
    strict: Vec<String>,
}

impl Offer {
    /// Adds a tool. Of several with one name the first is kept.
    pub(crate) fn add(&mut self, name: &str, description: Option<&str>, parameters: Option<&Value>) {
        if self.has(name) {
            return;
        }
        let mut object = Map::new();
        object.insert("name".into(), name.into());
        if let Some(description) = description {
            object.insert("description".into(), description.into());
        }
        let none = || json!({"type": "object", "properties": {}});
        object.insert("parameters".into(), parameters.cloned().unwrap_or_else(none));
        // What was printed from a value is JSON.
        if let Ok(json) = JsonText::parse(&Value::Object(object).to_string()) {
            self.schemas.push(ToolSchema { json });
            self.names.push(name.to_owned());
        }
    }

    /// Has calls of a tool held to its schema, where the request says so.
    pub(crate) fn hold(&mut self, name: &str, tool: Fields<'_>) -> Result<(), ApiError> {
        if tool.bool("strict")? == Some(true) {
            self.strict.push(name.to_owned());
        }
        Ok(())
    }

    /// The names of the tools whose calls are held to their schemas.
    pub(crate) fn strict(&self) -> &[String] {
        &self.strict
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// What the request as a whole asks for. A choice that names no tool, or needs one where there is none, is refused.
    pub(crate) fn chosen(self, choice: Choice, parallel: bool, release: CallRelease) -> Result<ToolUse, ApiError> {
        let unknown = |name: &str| {
            ApiError::about("tool_choice", format!("tool_choice: no tool of the request is called {name:?}"))
        };
        let (tool_choice, allowed) = match choice {
            Choice::Auto => (ToolChoice::Auto, None),
            Choice::None => (ToolChoice::Forbidden, None),
            Choice::Required => (ToolChoice::Required, None),
            Choice::Named(name) if self.has(&name) => (ToolChoice::Named(name), None),
            Choice::Named(name) if !self.is_empty() => return Err(unknown(&name)),
            Choice::Named(_) => (ToolChoice::Required, None),
            Choice::Allowed { names, required } => {
                if let Some(name) = names.iter().find(|name| !self.has(name)) {
                    return Err(unknown(name));
                }
                (if required { ToolChoice::Required } else { ToolChoice::Auto }, Some(names))
            }
        };
        if self.is_empty() && !matches!(tool_choice, ToolChoice::Auto | ToolChoice::Forbidden) {
            return Err(ApiError::about("tool_choice", "tool_choice: needs tools, and there are none"));
        }
        Ok(ToolUse { schemas: self.schemas, choice: tool_choice, allowed, parallel, release, ..ToolUse::default() })
    }
}

/// Reads `tools` of a chat request: `{type: function, function: {...}}`. Tools of other types, which no client could
/// run for the model, are left out of the prompt.
pub(crate) fn chat(fields: Fields<'_>) -> Result<Offer, ApiError> {
    let mut offer = Offer::default();
    let Some(node) = fields.get("tools") else { return Ok(offer) };
    for (index, value) in node.array()?.iter().enumerate() {
        let tool = node.item(index, value);
        let tool = tool.fields()?;
        match tool.str("type")? {
            None | Some("function") => add_function(&mut offer, &tool.require("function")?)?,
            Some(kind) => left_out(kind),
        }
    }
    Ok(offer)
}

/// Adds the object that holds `name`, `description` and `parameters`.
pub(crate) fn add_function(offer: &mut Offer, function: &Node<'_>) -> Result<(), ApiError> {
    let function = function.fields()?;
    let name = name_of(function)?;
    offer.add(name, function.str("description")?, schema_of(function, "parameters")?);
    offer.hold(name, function)
}

/// A tool's name, which must say something.
pub(crate) fn name_of<'a>(tool: Fields<'a>) -> Result<&'a str, ApiError> {
    let Some(name) = tool.str("name")? else { return Err(tool.missing("name")) };
    if name.is_empty() { Err(tool.missing("name")) } else { Ok(name) }
}

/// The schema of a tool's arguments.
pub(crate) fn schema_of<'a>(tool: Fields<'a>, field: &'a str) -> Result<Option<&'a Value>, ApiError> {
    let Some(node) = tool.get(field) else { return Ok(None) };
    if node.value().is_object() { Ok(Some(node.value())) } else { Err(node.refuse("must be an object")) }
}

/// Says that a tool is not offered to the model.
pub(crate) fn left_out(kind: &str) {
    tracing::debug!(kind, "a tool of this type runs nowhere and is left out of the prompt");
}
