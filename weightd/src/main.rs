//! TODO head
fn main() {}
