"""Parameters by GGUF tensor name, [out, in] layout, and how they start."""
import math

import torch

from .config import EXPERTS_USED, HEAD_WIDTH, INDEX_WIDTH, STREAMS, ModelConfig


class Initialiser:
    def __init__(self, config: ModelConfig, seed: int):
        self.config = config
        self.generator = torch.Generator().manual_seed(seed)
        self.tensors: dict[str, torch.Tensor] = {}

    def normal(self, *shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=self.generator)

    def linear(self, name: str, *shape: int, gain: float = 1.0) -> None:
        self.tensors[name] = self.normal(*shape) * (gain / math.sqrt(shape[-1]))

    def constant(self, name: str, value) -> None:
        self.tensors[name] = torch.as_tensor(value, dtype=torch.float32).clone()

    def site(self, prefix: str, which: str, favoured: int) -> None:
        """A hyper-connection site that starts by reading mostly one stream and mixing streams little."""
        self.linear(f'{prefix}hc_{which}_fn.weight', 2 * STREAMS + STREAMS**2, STREAMS * self.config.hidden)
        self.constant(f'{prefix}hc_{which}_scale.weight', [0.1, 0.1, 0.1])
        base = torch.zeros(2 * STREAMS + STREAMS**2)
        base[:STREAMS] = -1.5
        base[favoured % STREAMS] = 1.5
        base[2 * STREAMS:] = (torch.eye(STREAMS) * 4).reshape(-1)
        self.constant(f'{prefix}hc_{which}_base.weight', base)

    def head(self, prefix: str, norm: str) -> None:
        self.linear(f'{prefix}_fn.weight', STREAMS, STREAMS * self.config.hidden)
        self.constant(f'{prefix}_scale.weight', [0.1])
        self.constant(f'{prefix}_base.weight', torch.zeros(STREAMS))
        self.constant(norm, torch.ones(self.config.hidden))

    def compressor(self, prefix: str, ratio: int, width: int) -> None:
        rows = 2 * width if ratio == 4 else width
        self.linear(f'{prefix}_kv.weight', rows, self.config.hidden)
        self.linear(f'{prefix}_gate.weight', rows, self.config.hidden, gain=0.5)
        self.constant(f'{prefix}_ape.weight', self.normal(ratio, rows))  # random: breaks the symmetry between positions
        self.constant(f'{prefix}_norm.weight', torch.ones(width))

    def attention(self, prefix: str, ratio: int) -> None:
        c = self.config
        width = c.heads * HEAD_WIDTH
        self.linear(prefix + 'attn_q_a.weight', c.query_rank, c.hidden)
        self.linear(prefix + 'attn_q_b.weight', width, c.query_rank)
        self.linear(prefix + 'attn_kv.weight', HEAD_WIDTH, c.hidden)
        self.linear(prefix + 'attn_output_a.weight', c.groups * c.group_rank, width // c.groups)
        self.linear(prefix + 'attn_output_b.weight', c.hidden, c.groups * c.group_rank, gain=0.5)
        self.constant(prefix + 'attn_sinks.weight', torch.zeros(c.heads))
        for name, size in (('attn_norm', c.hidden), ('ffn_norm', c.hidden), ('attn_q_a_norm', c.query_rank), ('attn_kv_a_norm', HEAD_WIDTH)):
            self.constant(f'{prefix}{name}.weight', torch.ones(size))
        if ratio:
            self.compressor(prefix + 'attn_compressor', ratio, HEAD_WIDTH)
        if ratio == 4:
            self.compressor(prefix + 'indexer_compressor', ratio, INDEX_WIDTH)
            self.linear(prefix + 'indexer.attn_q_b.weight', c.index_heads * INDEX_WIDTH, c.query_rank)
            self.linear(prefix + 'indexer.proj.weight', c.index_heads, c.hidden)

    def experts(self, prefix: str, hashed: bool) -> None:
        c = self.config
        self.linear(prefix + 'ffn_gate_inp.weight', c.experts, c.hidden)
        if hashed:
            chosen = [torch.randperm(c.experts, generator=self.generator)[:EXPERTS_USED] for _ in range(c.vocab)]
            self.tensors[prefix + 'ffn_gate_tid2eid.weight'] = torch.stack(chosen).int()
        else:
            self.constant(prefix + 'exp_probs_b.bias', torch.zeros(c.experts))
        for name in ('gate', 'up'):
            self.linear(f'{prefix}ffn_{name}_exps.weight', c.experts, c.expert_width, c.hidden)
            self.linear(f'{prefix}ffn_{name}_shexp.weight', c.expert_width, c.hidden)
        self.linear(prefix + 'ffn_down_exps.weight', c.experts, c.hidden, c.expert_width, gain=0.5)
        self.linear(prefix + 'ffn_down_shexp.weight', c.hidden, c.expert_width, gain=0.5)

    def layer(self, prefix: str, index: int, ratio: int, hashed: bool) -> None:
        self.site(prefix, 'attn', 2 * index)
        self.site(prefix, 'ffn', 2 * index + 1)
        self.attention(prefix, ratio)
        self.experts(prefix, hashed)


def initial(config: ModelConfig, seed: int = 0, device: str = 'cpu') -> dict[str, torch.Tensor]:
    """All tensors of the model and its MTP block, from one seed."""
    init = Initialiser(config, seed)
    init.tensors['token_embd.weight'] = init.normal(config.vocab, config.hidden) * 0.5
    init.tensors['output.weight'] = init.normal(config.vocab, config.hidden) * 0.02
    for i, ratio in enumerate(config.ratios):
        init.layer(f'blk.{i}.', i, ratio, i < config.hash_layers)
    init.head('output_hc', 'output_norm.weight')
    init.layer('mtp.0.', 0, 0, hashed=False)
    init.head('mtp.0.hc_head', 'mtp.0.norm.weight')
    init.linear('mtp.0.e_proj.weight', config.hidden, config.hidden)
    init.linear('mtp.0.h_proj.weight', config.hidden, config.hidden)
    init.constant('mtp.0.enorm.weight', torch.ones(config.hidden))
    init.constant('mtp.0.hnorm.weight', torch.ones(config.hidden))
    return {name: tensor.to(device) for name, tensor in init.tensors.items()}
