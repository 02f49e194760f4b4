"""Trains the demo model within a time budget; resumes from its own state file.

    python -m ds4demo.train --work build --out run --seconds 1080

Two stages by share of the time: rows of 4,096 tokens, then rows of 16,384 with the indexer's selection active.  The last
part goes through the roundings of the exported file, and the end trains around the very values that the file holds.
Several GPUs: torchrun --nproc-per-node N -m ds4demo.train ...
"""
import argparse
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .packing import Batch, Feed, Source


@dataclass(frozen=True)
class Schedule:
    """Shares of the time budget at which things begin."""

    long_rows: float = 0.60
    index_loss: float = 0.40
    roundings: float = 0.55
    detached_draft: float = 0.60
    decay: float = 0.50
    settle: float = 0.95
    warm_up_steps: int = 150
    rate: float = 1.0
    final_rate: float = 0.04

    def factor(self, share: float, step: int) -> float:
        decay = max(self.final_rate, (1 - share) / (1 - self.decay)) if share > self.decay else 1.0
        return min(1.0, (step + 1) / self.warm_up_steps) * decay * self.rate


# further training of finished weights on changed data: a warm restart that keeps every rounding on
REFINE = Schedule(long_rows=0.50, index_loss=0.35, roundings=0.0, detached_draft=0.0, decay=0.25, settle=0.93, warm_up_steps=50, rate=0.6, final_rate=0.03)
PROMPT_WEIGHT = 0.05
DRAFT_WEIGHT, DETACHED_DRAFT_WEIGHT = 0.2, 1.0
BIAS_RATE = 0.002
SAVE_EVERY = 90.0
REPORT_EVERY = 100


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--work', type=Path, required=True, help='folder with prose.json and tokenizer.json')
    parser.add_argument('--out', type=Path, required=True, help='folder for weights, report and the resumable state')
    parser.add_argument('--seconds', type=float, required=True, help='training time, evaluations excluded')
    parser.add_argument('--tokens', type=int, default=32768, help='tokens a step and GPU')
    parser.add_argument('--short', type=int, default=4096, help='row length of the first stage')
    parser.add_argument('--long', type=int, default=16384, help='row length of the second stage')
    parser.add_argument('--workers', type=int, default=4, help='generating processes of each row length')
    parser.add_argument('--eval', type=int, default=60, help='conversations a skill in evaluations on the way; 0 for none')
    parser.add_argument('--eval-at', type=float, nargs='*', default=[0.2, 0.4, 0.6, 0.8], help='shares of the time for evaluations')
    parser.add_argument('--steps', type=int, default=10**9, help='stop early, for tests')
    parser.add_argument('--device', default='cuda')
    parser.add_argument('--tiny', action='store_true', help='the smallest model, for tests on a CPU')
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--init', type=Path, help='folder with weights and report of an interrupted run, when its state file is lost')
    parser.add_argument('--refine', type=Path, help='folder with finished weights or GGUF files to train further, with a schedule and a mixture of their own')
    return parser.parse_args()


def start_feeds(args, rank: int) -> dict[bool, Feed]:
    """Rows of both lengths are generated from the start; full queues cost nothing."""
    def feed(long: bool, seed: int) -> Feed:
        length = args.long if long else args.short
        stage = ('refined ' if args.refine else '') + ('long' if long else 'short')
        return Feed(Source(args.work / 'prose.json', args.work / 'tokenizer.json', args.tokens // length, length, stage), args.workers, seed)
    base = args.seed * 100_000 + rank * 1_000
    return {False: feed(False, base), True: feed(True, base + 500)}


class Trainer:
    def __init__(self, args, feeds: dict[bool, Feed], rank: int, world: int):
        import torch
        from tokenizers import Tokenizer

        from . import config, numerics, parameters
        from .model import Model
        from .optimiser import Optimiser

        self.torch, self.args, self.feeds, self.rank, self.world = torch, args, feeds, rank, world
        self.schedule = REFINE if args.refine else Schedule()
        self.device = f'cuda:{rank}' if args.device == 'cuda' else args.device
        if args.device == 'cpu':
            numerics.use(torch.float32, torch.float32)
        torch.set_float32_matmul_precision('high')
        self.tokenizer = Tokenizer.from_file(str(args.work / 'tokenizer.json'))
        vocab = self.tokenizer.get_vocab_size()
        self.config = config.tiny(vocab) if args.tiny else config.ModelConfig(vocab=vocab)
        self.tensors = parameters.initial(self.config, args.seed, self.device)
        self.model = Model(self.config, self.tensors)
        self.optimiser = Optimiser(self.tensors, self.config)
        self.step, self.tokens, self.elapsed, self.history, self.evaluations = 0, 0, 0.0, [], {}
        self.sums, self.waited = torch.zeros(5, device=self.device), 0.0
        self.settled: dict = {}
        self.resume()

    # -- state
    def resume(self) -> None:
        path = self.args.out / 'state.pt'
        if not path.exists():
            if self.args.init or self.args.refine:
                self.continue_from(self.args.init or self.args.refine)
            return
        state = self.torch.load(path, map_location=self.device, weights_only=False)
        with self.torch.no_grad():
            for name, tensor in state['tensors'].items():
                self.tensors[name].copy_(tensor)
        self.optimiser.load(state['optimiser'])
        self.step, self.tokens, self.elapsed = state['step'], state['tokens'], state['elapsed']
        self.history, self.evaluations = state['history'], state['evaluations']
        self.say(f'resumed at step {self.step}, {self.elapsed:.0f} s')

    def continue_from(self, folder: Path) -> None:
        """Weights and position without the optimiser's moments, which refill in some hundred steps."""
        from .checkpoint import load_weights
        with self.torch.no_grad():
            for name, tensor in load_weights(folder).items():
                self.tensors[name].copy_(tensor)
        if self.args.init:
            report = json.loads((folder / 'report.json').read_text())
            self.tokens, self.elapsed, self.history, self.evaluations = report['tokens'], report['seconds'], report['history'], report['evaluations']
        self.say(f'continues from {folder} at {self.elapsed:.0f} s with fresh moments')

    def save(self) -> None:
        from .checkpoint import save_state, save_weights
        if self.rank:
            return
        save_state(self.args.out / 'state.pt', {
            'tensors': {n: t.detach() for n, t in self.tensors.items()}, 'optimiser': self.optimiser.state(), 'step': self.step, 'tokens': self.tokens,
            'elapsed': self.elapsed, 'history': self.history, 'evaluations': self.evaluations})
        save_weights(self.tensors, self.args.out)
        report = {'steps': self.step, 'tokens': self.tokens, 'seconds': round(self.elapsed, 1), 'gpus': self.world, 'history': self.history,
                  'evaluations': self.evaluations, 'arguments': {k: str(v) for k, v in vars(self.args).items()}}
        (self.args.out / 'report.json').write_text(json.dumps(report, indent=1))

    def say(self, text: str) -> None:
        if self.rank == 0:
            print(text, flush=True)

    # -- one step
    def mode(self, share: float):
        from .attention import Mode
        late = share >= self.schedule.roundings
        return Mode(roundings=late, q4=late and not self.settled, index_loss=share >= self.schedule.index_loss, select=share >= self.schedule.long_rows)

    def losses(self, batch: Batch, share: float, mode):
        """(total, [weighted loss, answer loss, draft loss, indexer loss])"""
        torch = self.torch
        from .objective import answer_mean, cross_entropy, shifted, weighted_mean
        from .score import on_device
        ids, layout = on_device(batch, self.device)
        codes = torch.from_numpy(batch.codes).to(self.device)
        streams, x = self.model.trunk(ids, layout, mode)
        following, following_codes = shifted(ids), shifted(codes, last=0)
        each = cross_entropy(self.model.logits(x), following.reshape(-1))
        loss = weighted_mean(each, following_codes, PROMPT_WEIGHT)
        detached = share >= self.schedule.detached_draft
        drafted = self.model.draft(streams.detach() if detached else streams, following, layout, mode)
        each_draft = cross_entropy(self.model.logits(drafted), shifted(following).reshape(-1))
        draft = weighted_mean(each_draft, shifted(following_codes, last=0), PROMPT_WEIGHT)
        index = sum(mode.losses) / len(mode.losses) if mode.losses else torch.zeros((), device=self.device)
        total = loss + (DETACHED_DRAFT_WEIGHT if detached else DRAFT_WEIGHT) * draft + index
        return total, torch.stack([loss.detach(), answer_mean(each.detach(), following_codes), draft.detach(), index.detach()])

    def average_over_gpus(self) -> None:
        if self.world == 1:
            return
        grads = self.optimiser.gradients()
        flat = self.torch._utils._flatten_dense_tensors(grads)
        self.torch.distributed.all_reduce(flat, self.torch.distributed.ReduceOp.AVG)
        for grad, part in zip(grads, self.torch._utils._unflatten_dense_tensors(flat, grads)):
            grad.copy_(part)

    def balance(self, loads: dict, factor: float) -> None:
        """Router biases move by the sign of the load error."""
        torch = self.torch
        with torch.no_grad():
            for prefix, load in loads.items():
                if self.world > 1:
                    torch.distributed.all_reduce(load, torch.distributed.ReduceOp.AVG)
                self.tensors[prefix + 'exp_probs_b.bias'].add_(torch.sign(load.mean() - load), alpha=BIAS_RATE * factor)

    def settle(self) -> None:
        """From here on the quantised tensors keep the values that the file will hold; the rest is trained around them."""
        torch, began = self.torch, time.monotonic()
        from . import quant
        with torch.no_grad():
            for name, tensor in self.tensors.items():
                if quant.is_quantised(name):
                    tensor.copy_(torch.from_numpy(quant.settled(name, tensor.detach().cpu().numpy())))
                    self.settled[name] = tensor.clone()
        self.say(f'step {self.step}: quantised tensors settled in {time.monotonic() - began:.1f} s')

    def keep_settled(self) -> None:
        with self.torch.no_grad():
            for name, value in self.settled.items():
                self.tensors[name].copy_(value)

    def advance(self, share: float) -> None:
        if share >= self.schedule.settle and not self.settled:
            self.settle()
        factor = self.schedule.factor(share, self.step)
        mode = self.mode(share)
        began = time.monotonic()
        batch = self.feeds[share >= self.schedule.long_rows].take()
        self.waited += time.monotonic() - began
        total, parts = self.losses(batch, share, mode)
        total.backward()
        self.average_over_gpus()
        norm = self.optimiser.step(factor)
        self.keep_settled()
        self.balance(mode.loads, factor)
        self.sums += self.torch.cat([parts, norm.detach().view(1)])
        self.step += 1
        self.tokens += batch.ids.size * self.world

    # -- the run
    def report(self, share: float, steps: int, seconds: float) -> None:
        loss, answer, draft, index, norm = (self.sums / steps).tolist()
        self.sums.zero_()
        speed = steps * self.args.tokens * self.world / max(seconds, 1e-9)
        self.history.append([self.step, round(share, 4), *(round(v, 5) for v in (loss, answer, draft, index))])
        memory = self.torch.cuda.max_memory_allocated() / 2**30 if self.args.device == 'cuda' else 0
        self.say(f'step {self.step} share {share:.3f} loss {loss:.4f} answers {answer:.4f} draft {draft:.4f} indexer {index:.4f} norm {norm:.2f} '
                 f'{speed / 1000:.0f}k tokens/s, waited {self.waited:.1f} s, {memory:.1f} GiB')
        self.waited = 0.0

    def agreed_share(self, started: float, before: float) -> float:
        """All GPUs must take the same branch, so the first one's clock counts."""
        now = self.torch.tensor([before + time.monotonic() - started], dtype=self.torch.float64, device=self.device if self.world > 1 else 'cpu')
        if self.world > 1:
            self.torch.distributed.broadcast(now, 0)
        self.elapsed = now.item()
        return self.elapsed / self.args.seconds

    def evaluate(self, share: float, batches) -> float:
        """-> seconds it took"""
        from .score import score, table
        began = time.monotonic()
        if self.rank == 0:
            mode = self.mode(share)
            make = lambda: type(mode)(roundings=mode.roundings, q4=mode.q4, select=mode.select)
            result = table(score(self.model, batches, self.device, make))
            self.evaluations[f'{share:.2f}'] = result
            self.say('evaluation ' + ' '.join(f'{k}={v["share"]:.2f}' for k, v in result['skills'].items()) + f' draft={result["first_draft_accepted"]:.3f}')
        if self.world > 1:
            self.torch.distributed.barrier()
        return time.monotonic() - began

    def run(self) -> None:
        batches = evaluation_batches(self.args, self.tokenizer) if self.args.eval else []
        due = [s for s in self.args.eval_at if s > self.elapsed / self.args.seconds]
        started, before = time.monotonic(), self.elapsed
        reported_at, reported_step, saved_at = time.monotonic(), self.step, time.monotonic()
        while self.step < self.args.steps:
            share = self.agreed_share(started, before)
            if share >= 1:
                break
            self.advance(share)
            if self.step % REPORT_EVERY == 0 or self.step in (1, 2, 10):
                self.report(share, self.step - reported_step, time.monotonic() - reported_at)
                reported_at, reported_step = time.monotonic(), self.step
            if batches and due and share >= due[0]:
                due.pop(0)
                started += self.evaluate(share, batches)
                reported_at = time.monotonic()
            if time.monotonic() - saved_at > SAVE_EVERY:
                self.save()
                saved_at = time.monotonic()
        self.save()
        self.say(f'trained {self.step} steps, {self.tokens / 1e6:.1f} M tokens, {self.elapsed:.0f} s')


def evaluation_batches(args, tokenizer):
    from . import evalsets, lexicon
    from .score import packed
    sets = evalsets.build(evalsets.SKILLS, args.eval, lexicon.load(args.work / 'prose.json'), tokenizer)
    return packed(sets, tokenizer, args.tokens // args.short, args.short)[0]


def main() -> None:
    args = arguments()
    args.out.mkdir(parents=True, exist_ok=True)
    rank, world = int(os.environ.get('RANK', 0)), int(os.environ.get('WORLD_SIZE', 1))
    np.random.seed(args.seed)
    feeds = start_feeds(args, rank)
    import torch
    if world > 1:
        torch.cuda.set_device(rank)
        torch.distributed.init_process_group('nccl')
    try:
        Trainer(args, feeds, rank, world).run()
    finally:
        for feed in feeds.values():
            feed.close()
        if world > 1:
            torch.distributed.destroy_process_group()


if __name__ == '__main__':
    main()
