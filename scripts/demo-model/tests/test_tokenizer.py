"""The vocabulary and its pre-tokenizer."""
import json

from tokenizers import Tokenizer

from ds4demo import tokenizer as tk


def test_digits_are_never_merged(small_tokenizer):
    assert len(small_tokenizer.encode('1234567890', add_special_tokens=False).ids) == 10


def test_every_protocol_token_is_one_token(small_tokenizer):
    for text in tk.FIRST_TOKENS + tk.PROTOCOL_TOKENS:
        assert len(small_tokenizer.encode(text, add_special_tokens=False).ids) == 1


def test_text_comes_back_unchanged(small_tokenizer):
    text = 'Grüße, "x" = 3.50;\n\n  {\'a\': [1, 2]} ☃ 漢字\t'
    assert small_tokenizer.decode(small_tokenizer.encode(text, add_special_tokens=False).ids, skip_special_tokens=False) == text


def test_the_splits_are_those_of_the_published_tokenizer(oracle):
    published = json.loads((oracle / 'tokenizer' / 'tokenizer.json').read_text())
    patterns = [p['pattern']['Regex'] for p in published['pre_tokenizer']['pretokenizers'] if p['type'] == 'Split']
    assert patterns == list(tk.SPLITS)
    mine = tk.blank().pre_tokenizer
    theirs = Tokenizer.from_file(str(oracle / 'tokenizer' / 'tokenizer.json')).pre_tokenizer
    for text in ('a  b\n\n c', "it's 12345x_y", 'café ☃ 漢字。\n', '</tag> ="v">\n'):
        assert mine.pre_tokenize_str(text) == theirs.pre_tokenize_str(text)
