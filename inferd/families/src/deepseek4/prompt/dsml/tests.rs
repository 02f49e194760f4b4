//! Properties of the markup in both directions.
