import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ds4demo import lexicon, tokenizer  # noqa: E402
from ds4demo.draw import Draw  # noqa: E402

CORPUS = [f'Return the {a} of a {b} when the {c} is given, or None if it has no {a}. The {b} must not change.'
          for a in ('size', 'name', 'value', 'path', 'index') for b in ('file', 'string', 'module', 'socket') for c in ('option', 'buffer', 'key')]


@pytest.fixture(scope='session')
def words():
    return lexicon.build(CORPUS)


@pytest.fixture(scope='session')
def small_tokenizer(words):
    return tokenizer.train(words, vocab=600, documents=60)


@pytest.fixture
def draw(words):
    return lambda split='train', seed=1: Draw(seed, split, words)


@pytest.fixture
def oracle():
    """Folder of the independent reference files; tests that want more than the repository holds skip without it."""
    folder = os.environ.get('DS4_ORACLE_DIR')
    if not folder:
        pytest.skip('DS4_ORACLE_DIR is not set')
    return Path(folder)
