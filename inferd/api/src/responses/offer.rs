//! Tools of a responses request.

use crate::ApiError;
use crate::reader::{Fields, Node};
use crate::tools::{self, Names, Offer, Target};
use serde_json::json;

/// Between a namespace and a name in the prompt.
const JOINT: &str = "__";

/// The tool through which a client looks for more tools.
pub(super) const TOOL_SEARCH: &str = "tool_search";

/// The one argument of a tool that takes free text.
pub(super) const FREE_TEXT: &str = "input";

/// The prompt's name of a tool in a namespace.
pub(super) fn prompt_name(namespace: Option<&str>, name: &str) -> String {
    match namespace {
        None | Some("") => name.to_owned(),
        Some(namespace) if namespace.ends_with(JOINT) => format!("{namespace}{name}"),
        Some(namespace) => format!("{namespace}{JOINT}{name}"),
    }
}

/// The prompt's name of the tool that an object names.
pub(super) fn named_in(object: Fields<'_>) -> Result<String, ApiError> {
    Ok(prompt_name(object.str("namespace")?, tools::name_of(object)?))
}

/// Adds the tools of a list.
pub(super) fn read(list: &Node<'_>, offer: &mut Offer, names: &mut Names) -> Result<(), ApiError> {
    for (index, value) in list.array()?.iter().enumerate() {
        add(&list.item(index, value), None, offer, names)?;
    }
    Ok(())
}

fn add(node: &Node<'_>, namespace: Option<&str>, offer: &mut Offer, names: &mut Names) -> Result<(), ApiError> {
    let tool = node.fields()?;
    match tool.require("type")?.str()? {
        "function" => {
            let name = tools::name_of(tool)?;
            let target = Target::Function { name: name.to_owned(), namespace: namespace.map(str::to_owned) };
            let prompt_name = prompt_name(namespace, name);
            offer.add(&prompt_name, tool.str("description")?, tools::schema_of(tool, "parameters")?);
            offer.hold(&prompt_name, tool)?;
            names.add(prompt_name, target);
        }
        "custom" => {
            let name = tools::name_of(tool)?;
            let schema = json!({"type": "object", "properties": {FREE_TEXT: {"type": "string"}},
                "required": [FREE_TEXT]});
            let prompt_name = prompt_name(namespace, name);
            offer.add(&prompt_name, tool.str("description")?, Some(&schema));
            names.add(prompt_name, Target::Custom { name: name.to_owned() });
        }
        "namespace" => {
            let inner = tool.require("tools")?;
            let name = tools::name_of(tool)?;
            for (index, value) in inner.array()?.iter().enumerate() {
                add(&inner.item(index, value), Some(name), offer, names)?;
            }
        }
        TOOL_SEARCH => {
            offer.add(TOOL_SEARCH, tool.str("description")?, tools::schema_of(tool, "parameters")?);
            names.add(TOOL_SEARCH.to_owned(), Target::ToolSearch);
        }
        hosted => tools::left_out(hosted),
    }
    Ok(())
}
