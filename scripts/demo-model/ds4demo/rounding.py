"""Roundings that are trained through: what quantisation and the packed caches do to numbers, with straight-through gradients."""
import torch

from .config import INDEX_WIDTH, ROTARY
from .numerics import region

E4M3_MAX, E2M1_MAX = 448.0, 6.0


def straight_through(x: torch.Tensor, rounded: torch.Tensor) -> torch.Tensor:
    return x + (rounded - x).detach()


def power_of_two_scale(groups: torch.Tensor, floor: float, top: float) -> torch.Tensor:
    largest = groups.abs().amax(-1, keepdim=True).clamp_min(floor)
    return torch.exp2(torch.ceil(torch.log2(largest / top)))


@region
def fp8_row(x: torch.Tensor) -> torch.Tensor:
    """Attention rows: E4M3 in groups of 64 for all but the rotary channels, which become binary16."""
    groups = x[..., :-ROTARY].detach().unflatten(-1, (-1, 64))
    scale = power_of_two_scale(groups, 1e-4, E4M3_MAX)
    codes = (groups / scale).clamp(-E4M3_MAX, E4M3_MAX).to(torch.float32).to(torch.float8_e4m3fn).to(x.dtype)
    rounded = torch.cat([(codes * scale).flatten(-2), x[..., -ROTARY:].detach()], -1)
    return straight_through(x, rounded.to(torch.float16).to(x.dtype))


_hadamard: dict = {}


def hadamard(device, dtype) -> torch.Tensor:
    """The 128-point Walsh-Hadamard matrix, natural order, orthonormal."""
    if (device, dtype) not in _hadamard:
        h = torch.ones(1, 1)
        while h.shape[0] < INDEX_WIDTH:
            h = torch.cat([torch.cat([h, h], 1), torch.cat([h, -h], 1)], 0)
        _hadamard[device, dtype] = (h * INDEX_WIDTH**-0.5).to(device, dtype)
    return _hadamard[device, dtype]


@region
def fp4_groups(y: torch.Tensor) -> torch.Tensor:
    """E2M1 in groups of 32, ties to the even code."""
    groups = y.detach().unflatten(-1, (-1, 32))
    scale = power_of_two_scale(groups, E2M1_MAX * 2.0**-126, E2M1_MAX)
    v = (groups / scale).abs().clamp(max=E2M1_MAX)
    q = torch.where(v < 2, torch.round(v * 2) / 2, torch.where(v < 4, torch.round(v), torch.round(v / 2) * 2))
    return straight_through(y, (torch.sign(groups) * q * scale).flatten(-2))


def fp4_index(x: torch.Tensor) -> torch.Tensor:
    """Indexer queries and rows: Hadamard, then E2M1."""
    return fp4_groups(x @ hadamard(x.device, x.dtype))


@region
def q4_k(w: torch.Tensor) -> torch.Tensor:
    """Exactly the Q4_K encoder of the exporter: 256 values a block, eight 6-bit scales and minima."""
    sub = w.detach().unflatten(-1, (-1, 8, 32))
    low = (-sub.amin(-1)).clamp_min(0)
    step = (sub.amax(-1) + low) / 15
    d = (step.amax(-1, keepdim=True) / 63).half().float()
    dmin = (low.amax(-1, keepdim=True) / 63).half().float()
    scale = (torch.round(step / d.clamp_min(1e-12)).clamp(0, 63) * d)[..., None]
    offset = (torch.round(low / dmin.clamp_min(1e-12)).clamp(0, 63) * dmin)[..., None]
    q = torch.round((sub + offset) / scale.clamp_min(1e-12)).clamp(0, 15)
    return straight_through(w, (q * scale - offset).flatten(-3).to(w.dtype))
