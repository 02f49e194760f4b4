"""Number formats of the torch model and the switch for compiled regions."""
import os

import torch


class Formats:
    """`gemm` is what matrix products take, `high` everything else.  Tests set both to float64."""

    gemm = torch.bfloat16
    high = torch.float32


def use(gemm: torch.dtype, high: torch.dtype) -> None:
    Formats.gemm, Formats.high = gemm, high


COMPILED = os.environ.get('DS4DEMO_COMPILE', '') == '1'


def region(function):
    """Fuses an elementwise region on the GPU; plain Python elsewhere."""
    return torch.compile(function, dynamic=False) if COMPILED else function
