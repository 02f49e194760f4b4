"""Attention over rows of packed documents: a window of 128 raw rows plus compressed rows, one softmax with a sink.

A row of the batch holds documents that each start at a multiple of 128, so no compressed row mixes two of them; positions
enter only through differences, so a document sees exactly what it would see alone.
"""
from dataclasses import dataclass, field

import torch

from .config import (COMPRESS_ROPE_BASE, HEAD_WIDTH, INDEX_WIDTH, RMS_EPS, ROPE_BASE, ROPE_FACTOR, ROTARY, WINDOW, ModelConfig)
from .numerics import Formats, region
from .rounding import fp4_index, fp8_row

MASKED = -1e30


@dataclass
class Mode:
    """What the forward pass does besides the plain graph, and what it reports."""

    roundings: bool = False        # FP8 / FP4 / binary16 of the caches
    q4: bool = False               # routed experts through Q4_K
    index_loss: bool = False       # train the indexer on the attention it should select
    select: bool = True            # top-k selection where there are more rows than k
    losses: list = field(default_factory=list)
    loads: dict = field(default_factory=dict)
    kept: list | None = None       # share of compressed attention mass that selection keeps, when a list


class Layout:
    """Masks and rotations for one packing.  `docs` [B, L/128] names the document of each block of 128."""

    def __init__(self, docs: torch.Tensor):
        self.docs = docs
        self.batch, self.blocks = docs.shape
        self.length = self.blocks * WINDOW
        self.first = torch.cat([torch.ones_like(docs[:, :1], dtype=torch.bool), docs[:, 1:] != docs[:, :-1]], 1)
        self._cache: dict = {}

    def _once(self, key, make):
        if key not in self._cache:
            self._cache[key] = make()
        return self._cache[key]

    def local_mask(self) -> torch.Tensor:
        """[B, blocks, 128, 256]: which of the previous and own block's rows a query sees."""
        def make():
            t = torch.arange(WINDOW, device=self.docs.device)[:, None]
            j = torch.arange(2 * WINDOW, device=self.docs.device)[None]
            inside = (j > t) & (j <= t + WINDOW)
            return inside & (~self.first[:, :, None, None] | (j >= WINDOW))
        return self._once('local', make)

    def compressed_mask(self, ratio: int) -> torch.Tensor:
        """[B, blocks, 128, L/ratio]: completed rows of the query's own document."""
        def make():
            rows = torch.arange(self.length // ratio, device=self.docs.device)
            position = torch.arange(self.length, device=self.docs.device)
            complete = (rows[None] < ((position + 1) // ratio)[:, None]).view(1, self.blocks, WINDOW, -1)
            same = self.docs[:, :, None] == self.docs[:, (rows * ratio) // WINDOW][:, None, :]
            return complete & same[:, :, None, :]
        return self._once(('compressed', ratio), make)

    def first_windows(self) -> torch.Tensor:
        """[B, L/4]: windows of four that have no previous window in their document."""
        def make():
            start = torch.zeros(self.batch, self.blocks, WINDOW // 4, dtype=torch.bool, device=self.docs.device)
            start[:, :, 0] = self.first
            return start.view(self.batch, -1)
        return self._once('first', make)


_rotations: dict = {}


def rotation(count: int, step: int, ratio: int, device) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin [count, 32] at positions 0, step, 2*step, ..."""
    key = (count, step, ratio > 0, device, Formats.high)
    if key not in _rotations:
        i = torch.arange(0, ROTARY, 2, dtype=torch.float64)
        if ratio == 0:
            frequency = ROPE_BASE ** (-i / ROTARY)
        else:
            ramp = ((i / 2 - 15) / 10).clamp(0, 1)
            frequency = COMPRESS_ROPE_BASE ** (-i / ROTARY) * ((1 - ramp) + ramp / ROPE_FACTOR)
        angle = torch.arange(count, dtype=torch.float64)[:, None] * step * frequency
        _rotations[key] = tuple(f(angle).to(Formats.high).to(device) for f in (torch.cos, torch.sin))
    return _rotations[key]


def rms(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + RMS_EPS)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Interleaved pairs of the last 64 channels."""
    plain, rotary = x[..., :-ROTARY], x[..., -ROTARY:].unflatten(-1, (ROTARY // 2, 2))
    even, odd = rotary[..., 0], rotary[..., 1]
    return torch.cat([plain, torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)], -1)


def product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x @ weight.to(Formats.gemm).t()


@region
def project(n, qa, qa_norm, qb, kv_weight, kv_norm, cos, sin):
    """-> low-rank query, rotated queries [B, L, heads, 512], rotated rows [B, L, 512]"""
    batch, length, _ = n.shape
    low = (rms(product(n, qa).to(Formats.high)) * qa_norm).to(Formats.gemm)
    queries = rms(product(low, qb).to(Formats.high).view(batch, length, -1, HEAD_WIDTH))
    queries = rotate(queries, cos[:, None], sin[:, None]).to(Formats.gemm)
    rows = rotate(rms(product(n, kv_weight).to(Formats.high)) * kv_norm, cos, sin)
    return low, queries, rows


@region
def compress_by_4(n, kv, gate, ape, norm, first, cos, sin):
    """Each window of 4 pools its own second halves and the previous window's first halves."""
    batch, length, _ = n.shape
    width = norm.shape[0]
    v = product(n, kv).to(Formats.high).view(batch, length // 4, 4, 2, width)
    g = product(n, gate).to(Formats.high).view(batch, length // 4, 4, 2, width) + ape.view(4, 2, width)
    v_before = torch.cat([torch.zeros_like(v[:, :1, :, 0]), v[:, :-1, :, 0]], 1)
    g_before = torch.cat([torch.zeros_like(g[:, :1, :, 0]), g[:, :-1, :, 0]], 1).masked_fill(first[:, :, None, None], MASKED)
    p = torch.softmax(torch.cat([g_before, g[:, :, :, 1]], 2), 2)
    return rotate(rms((p * torch.cat([v_before, v[:, :, :, 1]], 2)).sum(2)) * norm, cos, sin)


@region
def compress_by_128(n, kv, gate, ape, norm, cos, sin):
    batch, length, _ = n.shape
    v = product(n, kv).to(Formats.high).view(batch, length // 128, 128, -1)
    g = product(n, gate).to(Formats.high).view(batch, length // 128, 128, -1) + ape
    return rotate(rms((torch.softmax(g, 2) * v).sum(2)) * norm, cos, sin)


def local_scores(queries, rows):
    """-> scores against the previous and the own block, and those rows [B*blocks, 256, 512]"""
    batch, length, heads, width = queries.shape
    blocks = length // WINDOW
    own = rows.view(batch, blocks, WINDOW, width)
    pairs = torch.cat([torch.cat([torch.zeros_like(own[:, :1]), own[:, :-1]], 1), own], 2).view(batch * blocks, 2 * WINDOW, width)
    scores = torch.bmm(queries.reshape(batch * blocks, WINDOW * heads, width), pairs.transpose(1, 2))
    return scores.view(batch, blocks, WINDOW, heads, 2 * WINDOW), pairs


@region
def local_weights(local, local_mask, sinks):
    s = torch.where(local_mask[:, :, :, None, :], local.to(Formats.high) * HEAD_WIDTH**-0.5, MASKED)
    z = torch.cat([s, sinks.view(-1, 1).expand(*s.shape[:-1], 1)], -1)
    return torch.softmax(z, -1)[..., :2 * WINDOW].to(Formats.gemm)


@region
def joint_weights(local, local_mask, compressed, compressed_mask, sinks):
    s = torch.where(local_mask[:, :, :, None, :], local.to(Formats.high) * HEAD_WIDTH**-0.5, MASKED)
    k = torch.where(compressed_mask[:, :, :, None, :], compressed.to(Formats.high) * HEAD_WIDTH**-0.5, MASKED)
    p = torch.softmax(torch.cat([s, k, sinks.view(-1, 1).expand(*s.shape[:-1], 1)], -1), -1)
    return p[..., :2 * WINDOW].to(Formats.gemm), p[..., 2 * WINDOW:-1].to(Formats.gemm)


@region
def output(o, cos, sin, group_weights, weight):
    """Inverse rotation, then the grouped low-rank output."""
    batch, length, heads, width = o.shape
    o = rotate(o.to(Formats.high), cos[:, None], -sin[:, None]).to(Formats.gemm)
    groups = group_weights.shape[0]
    low = torch.einsum('tgi,gri->tgr', o.reshape(batch * length, groups, heads * width // groups), group_weights.to(Formats.gemm))
    return product(low.reshape(batch * length, -1), weight)


@region
def index_scores(queries, rows, weights):
    batch, length, heads, width = queries.shape
    s = torch.relu(torch.bmm(queries.reshape(batch, length * heads, width), rows.transpose(1, 2)).view(batch, length, heads, -1))
    return (s.to(Formats.high) * weights[..., None]).sum(2)


@region
def index_divergence(scores, weights, mask):
    """KL from the layer's attention over compressed rows (all heads) to the indexer's softmax, by mass."""
    batch, length, rows = scores.shape
    target = weights.to(Formats.high).sum(3).view(batch, length, rows)
    mass = target.sum(-1)
    log_q = torch.log_softmax(torch.where(mask.view(batch, length, rows), scores, MASKED), -1)
    log_p = torch.log((target / (mass[..., None] + 1e-9)).clamp_min(1e-9))
    divergence = (target * torch.where(target > 0, log_p - log_q, 0.0)).sum(-1)
    return divergence.sum() / (mass.sum() + 1e-6)


@region
def best_rows(scores, mask, count: int):
    """The `count` best visible rows of each query; among equal scores the earlier rows, as the engines choose."""
    visible = torch.where(mask, scores, MASKED)
    threshold = torch.topk(visible, count, -1).values.amin(-1, keepdim=True)
    above, equal = visible > threshold, visible == threshold
    left = count - above.sum(-1, keepdim=True, dtype=torch.int32)
    return mask & (above | (equal & (equal.cumsum(-1, dtype=torch.int32) <= left)))


class Attention:
    """One attention site.  `tensor(name)` gives a parameter of the layer without the `.weight` suffix."""

    def __init__(self, config: ModelConfig, ratio: int, tensor):
        self.config, self.ratio, self.tensor = config, ratio, tensor

    def compressor(self, prefix: str) -> list[torch.Tensor]:
        return [self.tensor(f'{prefix}_{part}') for part in ('kv', 'gate', 'ape', 'norm')]

    def compressed_rows(self, n, prefix: str, layout: Layout):
        cos, sin = rotation(layout.length // self.ratio, self.ratio, self.ratio, n.device)
        if self.ratio == 4:
            return compress_by_4(n, *self.compressor(prefix), layout.first_windows(), cos, sin)
        return compress_by_128(n, *self.compressor(prefix), cos, sin)

    def indexer(self, n, low, layout: Layout, mode: Mode):
        """Scores [B, L, rows].  Its inputs are detached: it learns from its own loss only."""
        n, low = n.detach(), low.detach()
        c = self.config
        cos, sin = rotation(layout.length, 1, self.ratio, n.device)
        rows = self.compressed_rows(n, 'indexer_compressor', layout)
        queries = product(low, self.tensor('indexer.attn_q_b')).to(Formats.high).view(*n.shape[:2], c.index_heads, INDEX_WIDTH)
        queries = rotate(queries, cos[:, None], sin[:, None])
        if mode.roundings:
            rows, queries = fp4_index(rows), fp4_index(queries)
        weights = product(n, self.tensor('indexer.proj')).to(Formats.high) * (INDEX_WIDTH * c.index_heads) ** -0.5
        return index_scores(queries.to(Formats.gemm), rows.to(Formats.gemm), weights)

    def selected(self, n, low, local, compressed, layout: Layout, mode: Mode):
        """The mask of visible compressed rows after the indexer's choice; adds the indexer's loss."""
        mask = layout.compressed_mask(4)
        count = mask.shape[-1]
        selecting = mode.select and count > self.config.index_top_k
        if not (selecting or mode.index_loss):
            return mask
        scores = self.indexer(n, low, layout, mode)
        if mode.index_loss or (selecting and mode.kept is not None):
            with torch.no_grad():
                _, dense = joint_weights(local, layout.local_mask(), compressed, mask, self.tensor('attn_sinks'))
        if mode.index_loss:
            mode.losses.append(index_divergence(scores, dense.detach(), mask))
        if not selecting:
            return mask
        with torch.no_grad():
            chosen = best_rows(scores, mask.view(scores.shape), self.config.index_top_k).view(mask.shape)
            if mode.kept is not None:
                mass = dense.to(Formats.high).sum(3)
                mode.kept.append(((mass * chosen).sum() / (mass.sum() + 1e-9)).item())
        return chosen

    def __call__(self, n, layout: Layout, mode: Mode):
        """n [B, L, hidden] -> [B*L, hidden]"""
        c, get = self.config, self.tensor
        batch, length, _ = n.shape
        cos, sin = rotation(length, 1, self.ratio, n.device)
        low, queries, rows = project(n, get('attn_q_a'), get('attn_q_a_norm'), get('attn_q_b'), get('attn_kv'), get('attn_kv_a_norm'), cos, sin)
        if mode.roundings:
            rows = fp8_row(rows)
        local, pairs = local_scores(queries, rows.to(Formats.gemm))
        if self.ratio == 0:
            p = local_weights(local, layout.local_mask(), get('attn_sinks'))
            o = torch.bmm(p.view(batch * layout.blocks, -1, 2 * WINDOW), pairs).view(batch, length, c.heads, HEAD_WIDTH)
        else:
            far = self.compressed_rows(n, 'attn_compressor', layout)
            far = (fp8_row(far) if mode.roundings else far).to(Formats.gemm)
            compressed = torch.bmm(queries.view(batch, length * c.heads, HEAD_WIDTH), far.transpose(1, 2))
            compressed = compressed.view(batch, layout.blocks, WINDOW, c.heads, -1)
            mask = self.selected(n, low, local, compressed, layout, mode) if self.ratio == 4 else layout.compressed_mask(self.ratio)
            p, p_far = joint_weights(local, layout.local_mask(), compressed, mask, get('attn_sinks'))
            o = torch.bmm(p.view(batch * layout.blocks, -1, 2 * WINDOW), pairs).view(batch, length, c.heads, HEAD_WIDTH)
            o = o + torch.bmm(p_far.view(batch, length * c.heads, -1), far).view(o.shape)
        return output(o, cos, sin, get('attn_output_a').view(c.groups, c.group_rank, -1), get('attn_output_b'))
