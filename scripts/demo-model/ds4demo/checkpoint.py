"""Weights in binary16 pieces of bounded size, and the full training state for resuming."""
from pathlib import Path

import torch

PIECE_BYTES = 15 * 2**20


def save_weights(tensors: dict[str, torch.Tensor], folder: Path) -> None:
    """Writes weights-0.pt, weights-1.pt, ... each of at most 15 MiB."""
    pieces, size = [{}], 0
    for name, tensor in tensors.items():
        value = tensor.detach().cpu()
        value = value.half() if value.is_floating_point() else value.to(torch.uint8)
        if size + value.nbytes > PIECE_BYTES:
            pieces.append({})
            size = 0
        pieces[-1][name] = value.clone()
        size += value.nbytes
    for i, piece in enumerate(pieces):
        torch.save(piece, folder / f'weights-{i}.pt')


def load_weights(folder: Path) -> dict[str, torch.Tensor]:
    """float32 tensors, int32 tables, of weights-*.pt or else of the GGUF files in the folder."""
    tensors = {}
    if not any(folder.glob('weights-*.pt')):
        from .gguf_file import read_tensors
        tensors = {name: torch.from_numpy(w) for name, w in read_tensors(*sorted(folder.glob('*.gguf'))).items()}
    for path in sorted(folder.glob('weights-*.pt')):
        for name, value in torch.load(path, map_location='cpu').items():
            tensors[name] = value.float() if value.is_floating_point() else value.int()
    if not tensors:
        raise FileNotFoundError(f'neither weights-*.pt nor GGUF files in {folder}: train first (python -m ds4demo.train)')
    return tensors


def save_state(path: Path, state: dict) -> None:
    """Atomic: a killed run leaves the previous state."""
    part = path.with_suffix('.part')
    torch.save(state, part)
    part.replace(path)
