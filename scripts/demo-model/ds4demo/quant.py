"""Which type each tensor gets in the published mix, and the encoders and decoders of those types, in numpy."""
from enum import Enum

import numpy as np

Q8_BLOCK, Q4_BLOCK, Q4_BYTES = 32, 256, 144
SETTLING_PASSES = 12


class Kind(Enum):
    F32 = 'F32'
    F16 = 'F16'
    I32 = 'I32'
    Q8_0 = 'Q8_0'
    Q4_K = 'Q4_K'


F32_PARTS = ('norm', '_base', '_scale', 'sinks', 'bias')
Q8_PARTS = ('attn_q_a', '.attn_q_b', 'attn_kv.', 'attn_output', 'shexp', 'e_proj', 'h_proj')


def kind_of(name: str, half: bool = False) -> Kind:
    """`half` is the F16 variant: everything quantised stays binary16."""
    if name.endswith('tid2eid.weight'):
        return Kind.I32
    if any(part in name for part in F32_PARTS):
        return Kind.F32
    if not half and '_exps.' in name:
        return Kind.Q4_K
    if not half and 'indexer' not in name and (name == 'output.weight' or any(part in name for part in Q8_PARTS)):
        return Kind.Q8_0
    return Kind.F16


def encode_q8_0(w: np.ndarray) -> np.ndarray:
    """[..., n * 32] -> uint8 [..., n * 34]: binary16 scale, 32 signed bytes."""
    blocks = w.astype(np.float32).reshape(-1, Q8_BLOCK)
    scale = np.abs(blocks).max(1, keepdims=True) / 127
    inverse = np.where(scale == 0, 0, 1 / np.where(scale == 0, 1, scale))
    codes = np.rint(blocks * inverse).astype(np.int8)
    packed = np.concatenate([scale.astype(np.float16).view(np.uint8), codes.view(np.uint8)], 1)
    return packed.reshape(*w.shape[:-1], -1)


def decode_q8_0(raw: np.ndarray) -> np.ndarray:
    blocks = np.ascontiguousarray(raw).reshape(-1, 2 + Q8_BLOCK)
    scale = blocks[:, :2].copy().view(np.float16).astype(np.float32)
    return (blocks[:, 2:].view(np.int8).astype(np.float32) * scale).reshape(*raw.shape[:-1], -1)


def encode_q4_k(w: np.ndarray) -> np.ndarray:
    """[..., n * 256] -> uint8 [..., n * 144].  Scale and minimum of each 32 values are 6-bit multiples of the block's largest."""
    sub = w.astype(np.float32).reshape(-1, 8, 32)
    low = np.maximum(-sub.min(-1), 0)
    step = (sub.max(-1) + low) / np.float32(15)
    d, dmin = ((x.max(-1) / np.float32(63)).astype(np.float16) for x in (step, low))
    scales, mins = (np.clip(np.rint(x / np.maximum(y.astype(np.float32)[:, None], np.float32(1e-12))), 0, 63).astype(np.uint8) for x, y in ((step, d), (low, dmin)))
    scale = (scales * d.astype(np.float32)[:, None])[..., None]
    offset = (mins * dmin.astype(np.float32)[:, None])[..., None]
    q = np.clip(np.rint((sub + offset) / np.maximum(scale, np.float32(1e-12))), 0, 15).astype(np.uint8)
    out = np.zeros((len(sub), Q4_BYTES), np.uint8)
    out[:, 0:2], out[:, 2:4] = d[:, None].view(np.uint8), dmin[:, None].view(np.uint8)
    out[:, 4:8] = scales[:, :4] | (scales[:, 4:] >> 4) << 6
    out[:, 8:12] = mins[:, :4] | (mins[:, 4:] >> 4) << 6
    out[:, 12:16] = (scales[:, 4:] & 15) | (mins[:, 4:] & 15) << 4
    for pair in range(4):
        out[:, 16 + 32 * pair:48 + 32 * pair] = q[:, 2 * pair] | q[:, 2 * pair + 1] << 4
    return out.reshape(*w.shape[:-1], -1)


def decode_q4_k(raw: np.ndarray) -> np.ndarray:
    blocks = np.ascontiguousarray(raw).reshape(-1, Q4_BYTES)
    d, dmin = (blocks[:, at:at + 2].copy().view(np.float16).astype(np.float32) for at in (0, 2))
    low, high, both = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scales = np.concatenate([low & 63, (both & 15) | (low >> 6) << 4], 1)
    mins = np.concatenate([high & 63, (both >> 4) | (high >> 6) << 4], 1)
    nibbles = blocks[:, 16:].reshape(-1, 4, 1, 32)
    q = np.concatenate([nibbles & 15, nibbles >> 4], 2).reshape(-1, 8, 32)
    values = (scales * d)[..., None] * q - (mins * dmin)[..., None]
    return values.astype(np.float32).reshape(*raw.shape[:-1], -1)


def encode(name: str, w: np.ndarray, half: bool = False) -> np.ndarray:
    kind = kind_of(name, half)
    if kind is Kind.Q4_K:
        return encode_q4_k(w)
    if kind is Kind.Q8_0:
        return encode_q8_0(w)
    return w.astype({Kind.F32: np.float32, Kind.F16: np.float16, Kind.I32: np.int32}[kind])


def decode(kind: Kind, raw: np.ndarray) -> np.ndarray:
    """float32, or int32 for tables."""
    if kind is Kind.Q4_K:
        return decode_q4_k(raw)
    if kind is Kind.Q8_0:
        return decode_q8_0(raw)
    return raw.astype(np.int32 if kind is Kind.I32 else np.float32)


def is_quantised(name: str) -> bool:
    return kind_of(name) in (Kind.Q4_K, Kind.Q8_0)


def settled(name: str, w: np.ndarray) -> np.ndarray:
    """Values on the grid of the published type that encode to themselves.

    The encoder fits a block's grid to its extremes; in one block of some thousand those move by the first rounding, so that
    a second one would differ.  A few passes reach values that stay.
    """
    kind = kind_of(name)
    for _ in range(SETTLING_PASSES):
        rounded = decode(kind, encode(name, w))
        if np.array_equal(rounded, w):
            break
        w = rounded
    return w


def through(tensors: dict[str, np.ndarray], half: bool = False) -> dict[str, np.ndarray]:
    """The values that a reader of the exported file gets."""
    return {name: decode(kind_of(name, half), encode(name, w, half)) for name, w in tensors.items()}
