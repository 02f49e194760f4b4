"""The shape of the model.  Widths that engine kernels depend on are fixed; the rest is free."""
from dataclasses import dataclass

HEAD_WIDTH = 512
ROTARY = 64
WINDOW = 128
INDEX_WIDTH = 128
STREAMS = 4
EXPERTS_USED = 6
SINKHORN_PASSES = 20
SWIGLU_LIMIT = 10.0
RMS_EPS = 1e-6
HC_EPS = 1e-6
ROPE_BASE = 10000.0
COMPRESS_ROPE_BASE = 160000.0
ROPE_FACTOR = 16.0
ROPE_ORIGINAL_CONTEXT = 65536
YARN_BETA_FAST = 32.0
YARN_BETA_SLOW = 1.0
CONTEXT_LENGTH = 1048576


@dataclass(frozen=True)
class ModelConfig:
    """Free dimensions.  `ratios` holds one compress ratio (0, 4 or 128) for each layer."""

    vocab: int = 3072
    hidden: int = 256
    ratios: tuple[int, ...] = (0, 4, 128, 4, 0)
    heads: int = 4
    query_rank: int = 128
    groups: int = 2
    group_rank: int = 128
    expert_width: int = 256
    experts: int = 8
    hash_layers: int = 1
    expert_scale: float = 1.5
    index_heads: int = 4
    index_top_k: int = 512

    @property
    def layers(self) -> int:
        return len(self.ratios)


DEMO = ModelConfig()


def tiny(vocab: int) -> ModelConfig:
    """The smallest model with every kind of layer, for tests on a CPU."""
    return ModelConfig(vocab=vocab, ratios=(0, 4, 128), heads=2, query_rank=32, group_rank=32, experts=7, index_heads=2, index_top_k=16)
