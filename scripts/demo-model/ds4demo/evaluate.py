"""Scores trained weights as a reader of the exported file sees them; fast on a GPU, a sample on a CPU.

    python -m ds4demo.evaluate --work build --weights run --out run/evaluation.json [--captured build/captures.json]

`--weights` is a folder of weights-*.pt, or a pair of GGUF files given with --gguf.
"""
import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer

from . import captured, checkpoint, evalsets, lexicon, numerics, quant, score
from .attention import Mode
from .config import ModelConfig
from .draw import Draw
from .model import Model
from .split import TEST


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--work', type=Path, required=True, help='folder with prose.json and tokenizer.json')
    parser.add_argument('--weights', type=Path, required=True, help='folder of weights-*.pt')
    parser.add_argument('--out', type=Path, required=True, help='JSON file for the figures')
    parser.add_argument('--count', type=int, default=300, help='conversations a skill')
    parser.add_argument('--long-count', type=int, default=100, help='conversations a long skill; 0 for none')
    parser.add_argument('--captured', type=Path, help='captured agent requests, as tests/fixtures/clients holds them packed')
    parser.add_argument('--captured-count', type=int, default=50)
    parser.add_argument('--tokens', type=int, default=32768)
    parser.add_argument('--short', type=int, default=4096)
    parser.add_argument('--long', type=int, default=16384)
    parser.add_argument('--modes', nargs='*', default=['plain', 'rounding'], choices=['plain', 'rounding'])
    parser.add_argument('--kl-batches', type=int, default=20, help='batches for the comparison with the F16 variant')
    parser.add_argument('--device', default='cuda')
    return parser.parse_args()


def model_of(config: ModelConfig, arrays: dict[str, np.ndarray], device: str) -> Model:
    tensors = {name: torch.from_numpy(np.ascontiguousarray(a)).to(device) for name, a in arrays.items()}
    for tensor in tensors.values():
        if tensor.is_cuda and tensor.is_floating_point():
            tensor.requires_grad_(True)  # the same compiled regions as in training
    return Model(config, tensors)


def divergence(first: Model, second: Model, batches, device: str) -> dict[str, float]:
    """Mean KL in nats from `first` to `second`, on answers and on all tokens."""
    sums = torch.zeros(4, dtype=torch.float64)
    for batch in batches:
        ids, layout = score.on_device(batch, device)
        p, q = (torch.log_softmax(m.logits(m.trunk(ids, layout, Mode())[1]).detach().float(), -1) for m in (first, second))
        kl = (p.exp() * (p - q)).sum(-1).view(ids.shape).cpu().double()
        codes = torch.from_numpy(batch.codes)
        for at, mask in ((0, codes == 2), (2, codes > 0)):
            sums[at] += kl[mask].sum()
            sums[at + 1] += mask.sum()
    return {'answers': (sums[0] / sums[1]).item(), 'all': (sums[2] / sums[3]).item()}



def scored(label: str, model: Model, groups, device: str, make_mode) -> dict:
    tallies = {}
    for batches in groups:
        tallies |= score.score(model, batches, device, make_mode)
    result = score.table(tallies)
    print(f'== {label}: first draft accepted {result["first_draft_accepted"]:.3f}')
    for name, row in result['skills'].items():
        print(f'{name:32} {100 * row["share"]:6.1f} %  of {row["count"]:4}  draft {100 * row["draft"]:5.1f} %', flush=True)
    return result


def sets_of(args, tokenizer):
    """-> batches by group, and what did not fit"""
    words = lexicon.load(args.work / 'prose.json')
    short = evalsets.build(evalsets.SKILLS, args.count, words, tokenizer)
    long = evalsets.build(evalsets.LONG_SKILLS, args.long_count, words, tokenizer) if args.long_count else {}
    if args.captured:
        long |= captured.evaluation_sets(args.captured, Draw(4242, TEST, words), args.captured_count)
    stories, dropped = score.packed(evalsets.free_text(args.count, words), tokenizer, args.tokens // args.short, args.short)
    groups = {'short': score.packed(short, tokenizer, args.tokens // args.short, args.short)[0], 'free': stories}
    if long:
        groups['long'], dropped = score.packed(long, tokenizer, max(1, args.tokens // args.long), args.long)
    return groups, dropped


def main() -> None:
    args = arguments()
    began = time.monotonic()
    if args.device == 'cpu':
        numerics.use(torch.float32, torch.float32)
    tokenizer = Tokenizer.from_file(str(args.work / 'tokenizer.json'))
    groups, dropped = sets_of(args, tokenizer)
    arrays = {name: t.numpy() for name, t in checkpoint.load_weights(args.weights).items()}
    config = ModelConfig(vocab=tokenizer.get_vocab_size())
    exact = model_of(config, quant.through(arrays, half=True), args.device)
    file = model_of(config, quant.through(arrays), args.device)
    kept: list[float] = []
    report = {'dropped': dropped, 'kl': divergence(exact, file, groups['short'][:args.kl_batches], args.device)}
    print('KL of the quantised file against its F16 variant', report['kl'])
    skills = [groups[name] for name in ('short', 'long') if name in groups]
    makers = {'plain': lambda: Mode(kept=kept), 'rounding': lambda: Mode(roundings=True)}
    for mode in args.modes:
        report[mode] = scored(mode, file, skills, args.device, makers[mode])
    report['free text'] = scored('free text', file, [groups['free']], args.device, Mode)
    report['attention mass kept by selection'] = [round(float(np.mean(kept[i::2])), 4) for i in (0, 1)] if kept else None
    report['seconds'] = round(time.monotonic() - began, 1)
    args.out.write_text(json.dumps(report, indent=1))


if __name__ == '__main__':
    main()
