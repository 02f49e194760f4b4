//! Hyper-connections: the residual state is four streams, mixed anew at every site.

/// Streams of the residual state.
pub const STREAMS: usize = 4;

/// Values a site's mixing matrix gives per row: a weight per stream into the block, a weight per stream out of it, and
/// a 4 x 4 matrix between streams.
pub const MIX_WIDTH: usize = STREAMS + STREAMS + STREAMS * STREAMS;

/// Constants of a site.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HyperConstants {
    /// Under the root of the flattened streams' norm, and of the block input's.
    pub norm_epsilon: f32,
    /// Added to gates and to the sums of the doubly stochastic matrix.
    pub mix_epsilon: f32,
    /// Column passes of the Sinkhorn iteration.
    pub iterations: usize,
}

/// What a site made of the streams: the block's input and what its output is merged with.
#[derive(Clone, Debug)]
pub struct Mixed<R> {
    /// The normalised block input, `[rows, E]`.
    pub input: R,
    /// Per row: four output gates, then the 4 x 4 stream matrix, row-major.
    pub merge: R,
}
