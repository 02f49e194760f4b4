//! What memory is used for, and where it lies. The names are labels of published metrics.

macro_rules! labels {
    ($(#[$outer:meta])* $type:ident { $($(#[$doc:meta])* $name:ident = $label:literal,)* }) => {
        $(#[$outer])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $type { $($(#[$doc])* $name,)* }

        impl $type {
            /// All of them, in the order of their declaration.
            pub const ALL: &'static [$type] = &[$($type::$name,)*];

            /// The published spelling.
            pub const fn name(self) -> &'static str {
                match self { $($type::$name => $label,)* }
            }
        }
    };
}
pub(crate) use labels;

labels! {
    /// What memory is used for.
    Class {
        /// Nothing that has a class of its own; settles to zero.
        EngineOther = "engine_other",
        /// Weights an owner holds; counted here, but owned elsewhere.
        WeightImport = "weight_import",
        /// Weights this process loaded for itself.
        WeightArena = "weight_arena",
        /// Pinned host memory that step metadata and results pass through.
        StagePin = "stage_pin",
        /// Conversations.
        BatchBank = "batch_bank",
        /// Activations of a step; kept between steps.
        ScratchSticky = "scratch_sticky",
        /// Captured launch graphs.
        GraphExec = "graph_exec",
    }
}

labels! {
    /// Where memory lies.
    Domain {
        /// What the model computes in: GPU memory; host memory for the CPU backend.
        Device = "unified_device",
        /// Host memory that the GPU reads and writes directly.
        PinnedHost = "pinned_host",
    }
}
