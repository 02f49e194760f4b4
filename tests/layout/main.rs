//! The invariants of the README's code map, held against the sources. Each rule reports every place that breaks it,
//! with file, line and the reason for the rule.

mod arrows;
mod rules;
mod source;
