//! What the router and the experts agree on.

/// Routed experts that a token uses.
pub const EXPERTS_USED: usize = 6;

/// The chosen experts of every row.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Routes {
    /// Expert ids, best first.
    pub experts: Vec<[u32; EXPERTS_USED]>,
    /// Their weights, in the same order.
    pub weights: Vec<[f32; EXPERTS_USED]>,
}

/// Constants of a feed-forward site.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpertConstants {
    /// What the chosen weights sum to.
    pub weight_scale: f32,
    /// Gates are clamped from above, the linear part from both sides.
    pub clamp: f32,
}
