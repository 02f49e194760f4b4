"""Compares the trainer's own forward pass with the numpy reference on an exported file.

    python -m ds4demo.verify --model build/export/ds4-demo-16m.gguf --mtp build/export/ds4-demo-16m-mtp.gguf --work build

Fails when a logit differs by more than 1e-3 of the largest.
"""
import argparse
from pathlib import Path

import numpy as np
import torch

from . import gguf_file, lexicon, mixture, numerics
from .attention import Layout, Mode
from .config import WINDOW, ModelConfig
from .draw import Draw
from .model import Model
from .packing import blocks_of
from .protocol import PAD_ID
from .reference import Reference
from .split import TEST
from .tasks import chat, needles, tools
from .tokenizer import encode

TOLERANCE = 1e-3


def torch_logits(config: ModelConfig, tensors: dict, ids: list[int], dtype=torch.float32):
    """Logits of every position and of the first draft there, by the training code."""
    numerics.use(dtype, dtype)
    model = Model(config, {n: torch.from_numpy(t) if t.dtype == np.int32 else torch.from_numpy(t).to(dtype) for n, t in tensors.items()})
    blocks = blocks_of(len(ids))
    row = torch.full((1, blocks * WINDOW), PAD_ID)
    row[0, :len(ids)] = torch.tensor(ids)
    layout = Layout(torch.zeros(1, blocks, dtype=torch.int32))
    with torch.no_grad():
        streams, x = model.trunk(row, layout, Mode())
        drafted = model.draft(streams, torch.cat([row[:, 1:], row[:, :1]], 1), layout, Mode())
        return model.logits(x)[:len(ids)].double().numpy(), model.logits(drafted)[:len(ids) - 1].double().numpy()


def reference_logits(config: ModelConfig, tensors: dict, ids: list[int]):
    reference = Reference(tensors, config.ratios, config.index_top_k, config.expert_scale)
    logits, drafts = [], []
    for i, token in enumerate(ids):
        row, streams = reference.step(token)
        logits.append(row)
        if i + 1 < len(ids):
            drafts.append(reference.draft(streams, ids[i + 1], i))
    return np.stack(logits), np.stack(drafts)


def largest_difference(found: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


def conversations(words: lexicon.Lexicon) -> dict:
    draw = Draw(11, TEST, words)
    return {
        'recall': chat.recall(draw, 3, mixture.small_talk, True),
        'one tool call': tools.tool_conversation(draw, 'one', False, mixture.small_talk),
        'key in a text': needles.needle(draw, 9000, 1, False),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--model', type=Path, required=True)
    parser.add_argument('--mtp', type=Path, required=True)
    parser.add_argument('--work', type=Path, required=True, help='folder with prose.json')
    args = parser.parse_args()
    tensors, config = gguf_file.read_tensors(args.model, args.mtp), gguf_file.read_config(args.model)
    tokenizer, worst = gguf_file.read_tokenizer(args.model), 0.0
    for name, conv in conversations(lexicon.load(args.work / 'prose.json')).items():
        ids = encode(tokenizer, conv).ids
        wanted, found = reference_logits(config, tensors, ids), torch_logits(config, tensors, ids)
        differences = [largest_difference(f, w) for f, w in zip(found, wanted)]
        worst = max(worst, *differences)
        print(f'{name}: {len(ids)} tokens, logits {differences[0]:.1e}, drafts {differences[1]:.1e}', flush=True)
    if not worst <= TOLERANCE:
        raise SystemExit(f'the two forward passes differ by {worst:.1e} of the largest logit; {TOLERANCE:.0e} is allowed')


if __name__ == '__main__':
    main()
