//! The way back from the prompt's names of tools to the client's.

/// What a call of a tool is to the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
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
    /// Adds a tool.
    pub(crate) fn add(&mut self, prompt_name: String, target: Target) {
        self.0.push((prompt_name, target));
    }

    /// A tool that is not listed is a function of that name: the client says that it has none.
    pub(crate) fn target(&self, name: &str) -> Target {
        let known = self.0.iter().find(|(known, _)| known == name);
        known.map_or_else(|| Target::Function { name: name.to_owned(), namespace: None }, |(_, target)| target.clone())
    }
}
