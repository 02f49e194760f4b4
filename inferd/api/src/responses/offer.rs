//! Tools of a responses request, and the way back from the prompt's names to the client's.

use crate::ApiError;
use crate::reader::{Fields, Node};
use crate::tools::{self, Offer};
use serde_json::json;

/// Between a namespace and a name in the prompt.
const JOINT: &str = "__";

/// The tool through which a client looks for more tools.
pub(super) const TOOL_SEARCH: &str = "tool_search";

/// The one argument of a tool that takes free text.
pub(super) const FREE_TEXT: &str = "input";

/// What a call of a tool is to the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Function {
        name: String,
        namespace: Option<String>,
    },
    /// Takes free text.
    Custom {
        name: String,
    },
    ToolSearch,
}

/// The client's side of each tool, by the name that the prompt gives it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names(Vec<(String, Target)>);

impl Names {
    /// A tool that is not listed is a function of that name: the client says that it has none.
    pub(super) fn target(&self, name: &str) -> Target {
        let known = self.0.iter().find(|(known, _)| known == name);
        known.map_or_else(|| Target::Function { name: name.to_owned(), namespace: None }, |(_, target)| target.clone())
    }
}

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
            names.0.push((prompt_name, target));
        }
        "custom" => {
            let name = tools::name_of(tool)?;
            let schema = json!({"type": "object", "properties": {FREE_TEXT: {"type": "string"}},
                "required": [FREE_TEXT]});
            let prompt_name = prompt_name(namespace, name);
            offer.add(&prompt_name, tool.str("description")?, Some(&schema));
            names.0.push((prompt_name, Target::Custom { name: name.to_owned() }));
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
            names.0.push((TOOL_SEARCH.to_owned(), Target::ToolSearch));
        }
        hosted => tools::left_out(hosted),
    }
    Ok(())
}
