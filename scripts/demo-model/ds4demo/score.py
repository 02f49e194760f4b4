"""Teacher-forced scoring: the whole last answer, end token included, must be the argmax at every position.

That is the same as free greedy decoding being right, at the price of one forward pass.
"""
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer

from .attention import Layout, Mode
from .model import Model
from .packing import Batch, Document, pack
from .protocol import Conversation
from .tokenizer import encode


@dataclass
class Tally:
    right: int = 0
    count: int = 0
    drafts_right: int = 0
    drafts: int = 0

    def share(self) -> float:
        return self.right / max(1, self.count)


def packed(sets: dict[str, list[Conversation]], tokenizer: Tokenizer, rows: int, length: int) -> tuple[list[Batch], dict[str, int]]:
    """Batches whose documents carry (skill, last answer), and how many of each skill were too long to fit."""
    documents, dropped = [], {}
    for skill, conversations in sets.items():
        for conv in conversations:
            encoded = encode(tokenizer, conv)
            if len(encoded.ids) <= length:
                documents.append(Document(encoded.ids, encoded.answer, (skill, encoded.last)))
            else:
                dropped[skill] = dropped.get(skill, 0) + 1
    documents.sort(key=lambda d: -len(d.ids))
    batches = []
    while documents:
        batch, documents = pack(documents, rows, length)
        batches.append(batch)
    return batches, dropped


def on_device(batch: Batch, device: str):
    """ids and document numbers as tensors."""
    return torch.from_numpy(batch.ids).to(device).long(), Layout(torch.from_numpy(batch.docs).to(device))


def predictions(model: Model, ids, layout: Layout, mode: Mode):
    """Argmax of the model and of its first draft, both [B, L]."""
    streams, x = model.trunk(ids, layout, mode)
    following = torch.cat([ids[:, 1:], ids[:, :1]], 1)
    drafted = model.draft(streams, following, layout, mode)
    return model.logits(x).argmax(-1).view(ids.shape), model.logits(drafted).argmax(-1).view(ids.shape)


def score(model: Model, batches: list[Batch], device: str, mode=Mode) -> dict[str, Tally]:
    """`mode()` makes a fresh forward mode for each batch."""
    tallies: dict[str, Tally] = {}
    for batch in batches:
        ids, layout = on_device(batch, device)
        predicted, drafted = (t.detach().cpu().numpy() for t in predictions(model, ids, layout, mode()))
        for place in batch.places:
            skill, (start, end) = place.document.label
            wanted = place.document.ids[start:end]
            row = predicted[place.row, place.start:]
            tally = tallies.setdefault(skill, Tally())
            tally.right += bool((row[start - 1:end - 1] == wanted).all())
            tally.count += 1
            # the draft at t is for t + 2; it is accepted when it equals the model's own choice at t + 1
            drafts = drafted[place.row, place.start + start - 1:place.start + end - 2]
            tally.drafts_right += int((drafts == row[start:end - 1]).sum())
            tally.drafts += len(drafts)
    return tallies


def table(tallies: dict[str, Tally]) -> dict:
    """Plain numbers for a report."""
    drafts = sum(t.drafts for t in tallies.values())
    return {
        'skills': {name: {'share': round(t.share(), 4), 'count': t.count, 'draft': round(t.drafts_right / max(1, t.drafts), 4)} for name, t in tallies.items()},
        'first_draft_accepted': round(sum(t.drafts_right for t in tallies.values()) / max(1, drafts), 4),
    }
