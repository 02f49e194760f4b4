"""Documents in fixed rows, each starting at a multiple of 128, and the processes that generate them."""
import multiprocessing
import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from . import lexicon, mixture
from .config import WINDOW
from .draw import Draw
from .protocol import PAD_ID
from .split import TRAIN

PADDING, PROMPT, ANSWER = 0, 1, 2


def blocks_of(length: int) -> int:
    return -(-length // WINDOW)


@dataclass
class Document:
    ids: list[int]
    answer: list[bool]
    label: object = None


@dataclass
class Place:
    """Where a document went."""

    row: int
    start: int
    document: Document


@dataclass
class Batch:
    ids: np.ndarray      # int16 [rows, length]
    codes: np.ndarray    # uint8 [rows, length]: PADDING, PROMPT or ANSWER, by the token itself
    docs: np.ndarray     # int32 [rows, length / 128]: document of each block
    places: list[Place] = field(default_factory=list)


def pack(documents: list[Document], rows: int, length: int) -> tuple[Batch, list[Document]]:
    """First fit in the given order; returns what did not fit.  Padding blocks are documents of their own."""
    left = list(documents)
    ids = np.full((rows, length), PAD_ID, np.int16)
    codes = np.full((rows, length), PADDING, np.uint8)
    docs = -1 - np.tile(np.arange(length // WINDOW, dtype=np.int32), (rows, 1))
    places = []
    for row in range(rows):
        at = 0
        while at < length:
            fitting = next((i for i, d in enumerate(left) if blocks_of(len(d.ids)) * WINDOW <= length - at), None)
            if fitting is None:
                break
            document = left.pop(fitting)
            end = at + len(document.ids)
            ids[row, at:end] = document.ids
            codes[row, at:end] = np.where(document.answer, ANSWER, PROMPT)
            blocks = blocks_of(len(document.ids))
            docs[row, at // WINDOW:at // WINDOW + blocks] = len(places)
            places.append(Place(row, at, document))
            at += blocks * WINDOW
    return Batch(ids, codes, docs, places), left


@dataclass(frozen=True)
class Source:
    """Everything a generating process needs."""

    corpus: Path
    tokenizer: Path
    rows: int
    length: int
    stage: str


def batches(source: Source, seed: int):
    """An endless, reproducible stream of packed batches."""
    from tokenizers import Tokenizer

    from .tokenizer import encode, spellings

    tokenizer = Tokenizer.from_file(str(source.tokenizer))
    draw = Draw(seed, TRAIN, lexicon.load(source.corpus, spellings(tokenizer)))
    pending: list[Document] = []
    wanted = source.rows * source.length + max(8192, source.length // 2)
    while True:
        have = sum(blocks_of(len(d.ids)) * WINDOW for d in pending)
        while have < wanted:
            encoded = encode(tokenizer, mixture.conversation_of(draw, source.stage))
            if len(encoded.ids) <= source.length:
                pending.append(Document(encoded.ids, encoded.answer))
                have += blocks_of(len(encoded.ids)) * WINDOW
        draw.rng.shuffle(pending)
        pending.sort(key=lambda d: -len(d.ids) if len(d.ids) > source.length // 8 else 0)
        batch, pending = pack(pending, source.rows, source.length)
        batch.places = []
        yield batch


def _work(source: Source, seed: int, queue) -> None:
    os.environ['TOKENIZERS_PARALLELISM'] = 'false'
    for batch in batches(source, seed):
        queue.put(batch)


class Feed:
    """Batches from several processes, taken in turn so that the order does not depend on their speed.

    The processes are forked: start feeds before the GPU is first used.
    """

    def __init__(self, source: Source, workers: int, seed: int, depth: int = 4):
        context = multiprocessing.get_context('fork')
        self.queues = [context.Queue(depth) for _ in range(workers)]
        self.processes = [context.Process(target=_work, args=(source, seed + i, q), daemon=True) for i, q in enumerate(self.queues)]
        for process in self.processes:
            process.start()
        self.turn = 0

    def take(self) -> Batch:
        queue = self.queues[self.turn % len(self.queues)]
        self.turn += 1
        return queue.get()

    def close(self) -> None:
        for process in self.processes:
            process.terminate()
