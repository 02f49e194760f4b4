//! TODO head
