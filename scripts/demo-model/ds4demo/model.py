"""The whole forward pass: hyper-connections, layers, head and MTP block, functional over tensors keyed by GGUF name."""
import torch
import torch.nn.functional as F

from .attention import Attention, Layout, Mode, product, rms
from .config import EXPERTS_USED, HC_EPS, RMS_EPS, STREAMS, SWIGLU_LIMIT, ModelConfig
from .numerics import Formats, region
from .rounding import q4_k
from .sinkhorn import sinkhorn


@region
def mixing(streams, fn, scale, base):
    """streams [T, 4, hidden] -> (pre [T, 4], post [T, 4], logits of the stream mixing [T, 4, 4])"""
    x = streams.flatten(1)
    mix = (x @ fn.t()) * torch.rsqrt(x.square().mean(-1, keepdim=True) + RMS_EPS)
    pre = torch.sigmoid(mix[:, :STREAMS] * scale[0] + base[:STREAMS]) + HC_EPS
    post = 2 * torch.sigmoid(mix[:, STREAMS:2 * STREAMS] * scale[1] + base[STREAMS:2 * STREAMS])
    z = (mix[:, 2 * STREAMS:] * scale[2] + base[2 * STREAMS:]).view(-1, STREAMS, STREAMS)
    return pre, post, z


@region
def block_input(streams, pre, norm):
    return (rms((pre[:, :, None] * streams).sum(1)) * norm).to(Formats.gemm)


@region
def mixed(streams, y, post, mix):
    return post[:, :, None] * y[:, None, :].to(Formats.high) + (mix[:, :, :, None] * streams[:, :, None, :]).sum(1)


@region
def head_input(streams, fn, scale, base, norm):
    x = streams.flatten(1)
    mix = (x @ fn.t()) * torch.rsqrt(x.square().mean(-1, keepdim=True) + RMS_EPS)
    pre = torch.sigmoid(mix * scale[0] + base) + HC_EPS
    return (rms((pre[:, :, None] * streams).sum(1)) * norm).to(Formats.gemm)


@region
def route(n, weight, bias, chosen, scale):
    """-> weights [T, experts], zero where not selected, and the selection.  `chosen` is given in a hash-routed layer."""
    p = torch.sqrt(F.softplus(n.to(Formats.high) @ weight.t()))
    if chosen is None:
        top = torch.topk((p + bias).detach(), EXPERTS_USED, -1).indices
        chosen = torch.zeros_like(p).scatter(-1, top, 1.0)
    p = p * chosen
    return p / p.sum(-1, keepdim=True) * scale, chosen


@region
def experts(n, gate, up, down, weights):
    """Dense over all experts and the shared one (weight 1, last): with 6 of 8 used, three big products beat sparse ones."""
    count, width, hidden = gate.shape
    weights = torch.cat([weights, torch.ones_like(weights[:, :1])], 1)
    a = product(n, gate.reshape(count * width, hidden)).to(Formats.high).clamp(max=SWIGLU_LIMIT)
    b = product(n, up.reshape(count * width, hidden)).to(Formats.high).clamp(-SWIGLU_LIMIT, SWIGLU_LIMIT)
    m = ((F.silu(a) * b).view(-1, count, width) * weights[:, :, None]).to(Formats.gemm).view(-1, count * width)
    return product(m, down.permute(1, 0, 2).reshape(hidden, count * width))


class Model:
    """Pure functions of the tensors: `trunk`, `draft`, `logits`."""

    def __init__(self, config: ModelConfig, tensors: dict[str, torch.Tensor]):
        self.config, self.tensors = config, tensors

    def get(self, name: str) -> torch.Tensor:
        return self.tensors[name + '.weight']

    def site(self, prefix: str, which: str, streams, norm: str, block):
        pre, post, z = mixing(streams, *(self.get(f'{prefix}hc_{which}_{part}') for part in ('fn', 'scale', 'base')))
        y = block(block_input(streams, pre, self.get(prefix + norm)))
        return mixed(streams, y, post, sinkhorn(z))

    def feed_forward(self, prefix: str, hashed: bool, n, ids, mode: Mode):
        get, c = (lambda name: self.get(prefix + name)), self.config
        chosen, bias = None, None
        if hashed:
            table = get('ffn_gate_tid2eid').long()[ids.reshape(-1)]
            chosen = torch.zeros(len(table), c.experts, device=n.device, dtype=Formats.high).scatter(-1, table, 1.0)
        else:
            bias = self.tensors[prefix + 'exp_probs_b.bias']
        weights, chosen = route(n, get('ffn_gate_inp'), bias, chosen, c.expert_scale)
        if not hashed:
            mode.loads[prefix] = chosen.detach().mean(0)
        rounded = q4_k if mode.q4 else (lambda w: w)
        gate, up, down = (torch.cat([rounded(get(f'ffn_{part}_exps')), get(f'ffn_{part}_shexp')[None]], 0) for part in ('gate', 'up', 'down'))
        return experts(n, gate, up, down, weights)

    def layer(self, prefix: str, ratio: int, hashed: bool, streams, ids, layout: Layout, mode: Mode):
        attention = Attention(self.config, ratio, lambda name: self.get(prefix + name))
        streams = self.site(prefix, 'attn', streams, 'attn_norm', lambda n: attention(n.view(layout.batch, layout.length, -1), layout, mode))
        return self.site(prefix, 'ffn', streams, 'ffn_norm', lambda n: self.feed_forward(prefix, hashed, n, ids, mode))

    def head(self, prefix: str, norm: str, streams):
        return head_input(streams, *(self.get(f'{prefix}_{part}') for part in ('fn', 'scale', 'base')), self.get(norm))

    def trunk(self, ids, layout: Layout, mode: Mode):
        """ids [B, L] -> streams after the last layer [B*L, 4, hidden], input of the output product [B*L, hidden]"""
        embedded = self.get('token_embd')[ids.reshape(-1)].to(Formats.high)
        streams = embedded[:, None].expand(-1, STREAMS, -1).contiguous()
        for i, ratio in enumerate(self.config.ratios):
            streams = self.layer(f'blk.{i}.', ratio, i < self.config.hash_layers, streams, ids, layout, mode)
        return streams, self.head('output_hc', 'output_norm', streams)

    def draft(self, streams, following, layout: Layout, mode: Mode):
        """MTP block: streams of position p with the token at p + 1 (`following`), at rope position p; predicts p + 2."""
        e = rms(self.get('token_embd')[following.reshape(-1)].to(Formats.high)) * self.get('mtp.0.enorm')
        e = product(e.to(Formats.gemm), self.get('mtp.0.e_proj')).to(Formats.high)
        h = product((rms(streams) * self.get('mtp.0.hnorm')).to(Formats.gemm), self.get('mtp.0.h_proj')).to(Formats.high)
        streams = self.layer('mtp.0.', 0, False, e[:, None] + h, following, layout, mode)
        return self.head('mtp.0.hc_head', 'mtp.0.norm', streams)

    def logits(self, x):
        return product(x, self.get('output'))
