"""Sinkhorn normalisation of the 4x4 stream mixing matrices: softmax over rows, then alternating column and row passes."""
import torch

from .config import HC_EPS, SINKHORN_PASSES

STEPS = 2 * SINKHORN_PASSES - 1  # column passes and the row passes between them
BLOCK = 128

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None


def plain(z: torch.Tensor) -> torch.Tensor:
    """z [tokens, 4, 4] -> mixing matrices; differentiable by autograd."""
    k = torch.softmax(z, -1) + HC_EPS
    k = k / (k.sum(-2, keepdim=True) + HC_EPS)
    for _ in range(SINKHORN_PASSES - 1):
        k = k / (k.sum(-1, keepdim=True) + HC_EPS)
        k = k / (k.sum(-2, keepdim=True) + HC_EPS)
    return k


if triton is not None:

    @triton.jit
    def _forward(z_ptr, out_ptr, sums_ptr, softmax_ptr, tokens, eps, STEPS: tl.constexpr, BLOCK: tl.constexpr):
        token = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        four = tl.arange(0, 4)
        rows = token[:, None] < tokens
        cells = rows[:, :, None]
        at = token[:, None, None] * 16 + four[None, :, None] * 4 + four[None, None, :]
        z = tl.load(z_ptr + at, mask=cells, other=0.0)
        e = tl.exp(z - tl.max(z, axis=2)[:, :, None])
        k = e / tl.sum(e, axis=2)[:, :, None]
        tl.store(softmax_ptr + at, k, mask=cells)
        k = k + eps
        for i in range(STEPS):
            if i % 2 == 0:
                s = tl.sum(k, axis=1) + eps
                k = k / s[:, None, :]
            else:
                s = tl.sum(k, axis=2) + eps
                k = k / s[:, :, None]
            tl.store(sums_ptr + i * tokens * 4 + token[:, None] * 4 + four[None, :], s, mask=rows)
        tl.store(out_ptr + at, k, mask=cells)

    @triton.jit
    def _backward(out_ptr, sums_ptr, softmax_ptr, grad_ptr, dz_ptr, tokens, STEPS: tl.constexpr, BLOCK: tl.constexpr):
        token = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        four = tl.arange(0, 4)
        rows = token[:, None] < tokens
        cells = rows[:, :, None]
        at = token[:, None, None] * 16 + four[None, :, None] * 4 + four[None, None, :]
        y = tl.load(out_ptr + at, mask=cells, other=0.0)
        g = tl.load(grad_ptr + at, mask=cells, other=0.0)
        for j in range(STEPS):
            i = STEPS - 1 - j
            s = tl.load(sums_ptr + i * tokens * 4 + token[:, None] * 4 + four[None, :], mask=rows, other=1.0)
            if i % 2 == 0:
                g = (g - tl.sum(g * y, axis=1)[:, None, :]) / s[:, None, :]
                y = y * s[:, None, :]
            else:
                g = (g - tl.sum(g * y, axis=2)[:, :, None]) / s[:, :, None]
                y = y * s[:, :, None]
        k = tl.load(softmax_ptr + at, mask=cells, other=0.0)
        tl.store(dz_ptr + at, k * (g - tl.sum(g * k, axis=2)[:, :, None]), mask=cells)


class Fused(torch.autograd.Function):
    """One kernel each way.  The backward pass multiplies the stored sums back in instead of keeping 39 matrices."""

    @staticmethod
    def forward(ctx, z):
        z = z.contiguous()
        tokens = z.shape[0]
        out, softmax = torch.empty_like(z), torch.empty_like(z)
        sums = torch.empty((STEPS, tokens, 4), device=z.device, dtype=z.dtype)
        _forward[(triton.cdiv(tokens, BLOCK),)](z, out, sums, softmax, tokens, HC_EPS, STEPS=STEPS, BLOCK=BLOCK)
        ctx.save_for_backward(out, sums, softmax)
        return out

    @staticmethod
    def backward(ctx, grad):
        out, sums, softmax = ctx.saved_tensors
        dz = torch.empty_like(out)
        tokens = out.shape[0]
        _backward[(triton.cdiv(tokens, BLOCK),)](out, sums, softmax, grad.contiguous(), dz, tokens, STEPS=STEPS, BLOCK=BLOCK)
        return dz


def sinkhorn(z: torch.Tensor) -> torch.Tensor:
    return Fused.apply(z) if z.is_cuda and z.dtype == torch.float32 else plain(z)
