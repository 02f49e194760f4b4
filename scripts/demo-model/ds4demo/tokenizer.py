"""The byte-level BPE: the real pre-tokenizer, every protocol token, digits never merged.

    python -m ds4demo.tokenizer CORPUS.json OUT.json [--vocab 3072]
"""
import argparse
import json
import re
from dataclasses import dataclass
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from . import lexicon, mixture
from .draw import Draw
from .protocol import BAR, BLOCK, BOS, EOS, PAD, TOOLS_TEXT, Conversation, render
from .split import TRAIN

SPLITS = (
    r'\p{N}{1,3}',
    '[一-龥\u3040-ゟ゠-ヿ]+',
    '[!"#$%&\'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+',
)
FIRST_TOKENS = (BOS, EOS, PAD)


def marker(words: str) -> str:
    return f'<{BAR}{words.replace(" ", BLOCK)}{BAR}>'


PROTOCOL_TOKENS = (
    marker('fim hole'), marker('fim begin'), marker('fim end'), marker('User'), marker('Assistant'), '<|EOT|>', marker('tool calls begin'),
    marker('tool calls end'), marker('tool call begin'), marker('tool call end'), marker('tool outputs begin'), marker('tool outputs end'),
    marker('tool output begin'), marker('tool output end'), marker('tool sep'), marker('begin of repo name'), marker('end of repo name'),
    marker('begin of file name'), marker('end of file name'), marker('begin of file'), marker('end of file'), '<think>', '</think>', f'{BAR}DSML{BAR}',
    marker('begin sys'), marker('end sys'), marker('latest_reminder'), marker('action'), marker('query'), marker('authority'), marker('domain'),
    marker('task'), marker('political'), marker('entity'), marker('title'), marker('safety'), marker('answer'), marker('search'), '<dsml:', '</dsml:',
    marker('search begin'), marker('search end'), marker('extracted_url'), marker('read_url'), marker('end_of_query'),
)


def blank() -> Tokenizer:
    """The pre-tokenizer and decoder, no vocabulary."""
    tokenizer = Tokenizer(models.BPE())
    splits = [pre_tokenizers.Split(Regex(pattern), 'isolated') for pattern in SPLITS]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(splits + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def with_protocol(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.add_tokens([AddedToken(text, normalized=False, special=False) for text in PROTOCOL_TOKENS])
    return tokenizer


def training_texts(words: lexicon.Lexicon, documents: int):
    """Mixture documents with the fixed texts thinned out, real paragraphs, and everyday words in each form that copying meets."""
    draw = Draw(7, TRAIN, words)
    markers = re.compile('|'.join(map(re.escape, FIRST_TOKENS + PROTOCOL_TOKENS)))

    def cleaned(text: str) -> str:
        return re.sub('[0-9]', '', markers.sub('\n', text))

    for i in range(documents):
        conv = mixture.conversation_of(draw, 'short')
        if conv.tools and i % 10:
            schemas, conv.tools = conv.tools, []
            yield cleaned('\n'.join(json.dumps(tool) for tool in schemas))
        if i % 10:
            conv.effort = ''
        yield cleaned(''.join(segment.text for segment in render(conv)))
    yield from (cleaned(paragraph) for paragraph in words.paragraphs[TRAIN])
    everyday = lexicon.NOUNS + lexicon.ADJECTIVES + lexicon.NAMES + lexicon.CITIES + lexicon.VERBS + lexicon.FOODS + lexicon.JOBS
    yield from (f' {w}\n{w}\n_{w}\n{w.capitalize()}\n' * 12 for w in everyday)
    yield from (f' {s}\n{s}\n{s.capitalize()}\n' * 60 for s in lexicon.SYLLABLES)


def train(words: lexicon.Lexicon, vocab: int, documents: int = 12000) -> Tokenizer:
    tokenizer = blank()
    trainer = trainers.BpeTrainer(vocab_size=vocab - len(PROTOCOL_TOKENS), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
                                  special_tokens=list(FIRST_TOKENS))
    tokenizer.train_from_iterator(training_texts(words, documents), trainer)
    with_protocol(tokenizer)
    if tokenizer.get_vocab_size() != vocab:
        raise ValueError(f'the texts gave {tokenizer.get_vocab_size()} entries, not {vocab}: use more documents')
    return tokenizer


def spellings(tokenizer: Tokenizer) -> list[str]:
    """Letters-only texts of the vocabulary, for words pasted together from it."""
    found = {}
    for i in range(len(FIRST_TOKENS), tokenizer.get_vocab_size() - len(PROTOCOL_TOKENS)):
        text = tokenizer.decode([i], skip_special_tokens=False).strip(' ')
        if re.fullmatch('_?[A-Za-z]{2,14}', text):
            found[text] = None
    return list(found)


@dataclass
class Encoded:
    ids: list[int]
    answer: list[bool]         # per token
    last: tuple[int, int]      # start and end of the last answer, end token included


def encode(tokenizer: Tokenizer, conv: Conversation) -> Encoded:
    segments = render(conv)
    ids, answer, last = [], [], (0, 0)
    for encoding, segment in zip(tokenizer.encode_batch_fast([s.text for s in segments], add_special_tokens=False), segments):
        if segment.is_answer:
            last = (len(ids), len(ids) + len(encoding.ids))
        ids += encoding.ids
        answer += [segment.is_answer] * len(encoding.ids)
    return Encoded(ids, answer, last)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('corpus', type=Path)
    parser.add_argument('out', type=Path)
    parser.add_argument('--vocab', type=int, default=3072)
    args = parser.parse_args()
    tokenizer = train(lexicon.load(args.corpus), args.vocab)
    tokenizer.save(str(args.out))
    fixed = len(tokenizer.encode(TOOLS_TEXT, add_special_tokens=False).ids)
    print(f'{args.vocab} entries, {len(spellings(tokenizer))} of letters only; the fixed tools text takes {fixed} tokens')


if __name__ == '__main__':
    main()
