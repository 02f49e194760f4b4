"""Held-out words and templates, chosen by hash so that nothing about their spelling gives them away."""
import hashlib
import itertools
from functools import lru_cache

TRAIN, TEST = 'train', 'test'
WORDS_HELD_OUT = 10      # one word in ten
TEMPLATES_HELD_OUT = 7   # one template in seven


def digest(text: str, salt: str) -> int:
    return int.from_bytes(hashlib.blake2b(f'{salt}:{text}'.encode(), digest_size=4).digest(), 'big')


def word_split(word: str) -> str:
    return TEST if digest(word.lower(), 'word') % WORDS_HELD_OUT == 0 else TRAIN


def combined(*parts: tuple[str, ...]) -> tuple[str, ...]:
    """Every way to take one text of each part, glued together.  Each whole is held out or trained by itself."""
    return tuple(''.join(choice) for choice in itertools.product(*parts))


def filled(frames: tuple[str, ...], phrases: tuple[str, ...]) -> tuple[str, ...]:
    """Every frame with every phrase in the place of {x}."""
    return tuple(frame.replace('{x}', phrase) for frame in frames for phrase in phrases)


@lru_cache(maxsize=None)
def templates(forms: tuple[str, ...], split: str) -> tuple[str, ...]:
    """The forms of one split.  At least one form is always held out, and one always trained, when there are two."""
    held = [form for form in forms if digest(form, 'template') % TEMPLATES_HELD_OUT == 0]
    if len(forms) > 1 and not held:
        held = [min(forms, key=lambda form: digest(form, 'template'))]
    if len(forms) > 1 and len(held) == len(forms):
        held = held[1:]
    if split == TEST:
        return tuple(held or forms)
    return tuple(form for form in forms if form not in held) or forms
