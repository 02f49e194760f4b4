//! In which order a tensor's bytes lie in memory.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The order of a tensor's bytes in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Layout {
    /// Block after block, as the GGUF has them.
    #[serde(rename = "gguf")]
    Gguf,
    /// The fields of all blocks apart, so that a GPU reads each with wide, aligned loads. `ds4_gpu::layout` has the
    /// byte orders. A change of any of them is a new name.
    #[serde(rename = "split-1")]
    Split,
}

impl Layout {
    /// The name in manifests. A reader of the split layout needs the capability of this name.
    pub const fn name(self) -> &'static str {
        match self {
            Layout::Gguf => "gguf",
            Layout::Split => "split-1",
        }
    }

    /// The layout with this name.
    pub fn from_name(name: &str) -> Option<Layout> {
        [Layout::Gguf, Layout::Split].into_iter().find(|layout| layout.name() == name)
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layout_is_found_again_by_its_name() {
        for layout in [Layout::Gguf, Layout::Split] {
            assert_eq!(Layout::from_name(layout.name()), Some(layout));
        }
        assert_eq!(Layout::from_name("split-0"), None);
    }
}
