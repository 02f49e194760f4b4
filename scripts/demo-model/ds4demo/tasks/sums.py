"""Sums, differences and products of small numbers; the reasoning goes by tens and ones."""
from ..draw import Draw
from ..split import TEST, digest
from .item import Item

FORMS = (
    'What is {a} {o} {b}?', '{a} {o} {b} = ?', 'Calculate {a} {o} {b}.', 'How much is {a} {w} {b}?', 'What is {a} {w} {b}?', 'Compute {a} {o} {b}',
    '{a} {o} {b}', 'Tell me {a} {w} {b}.', 'What does {a} {o} {b} give?', 'Please calculate {a} {w} {b}.', 'How much is {a} {o} {b}?',
)
WORDS = {'+': 'plus', '-': 'minus', '*': 'times'}


def operands(draw: Draw) -> tuple[str, int, int]:
    """Two-digit sums are held out by hash; products and small sums have too few cases to hold any out."""
    while True:
        op = draw.pick('++--*')
        if op == '*':
            return op, draw.between(2, 10), draw.between(2, 10)
        a, b = draw.between(1, 60), draw.between(1, 60)
        if op == '-' and b > a:
            a, b = b, a
        held = a >= 10 and b >= 10 and digest(f'{a}{op}{b}', 'sum') % 10 == 0
        if held == (draw.split == TEST):
            return op, a, b


def sum_item(draw: Draw) -> Item:
    op, a, b = operands(draw)
    value = {'+': a + b, '-': a - b, '*': a * b}[op]
    question = draw.form(FORMS).format(a=a, b=b, o=op, w=WORDS[op])
    if op == '+':
        tens, ones = a // 10 * 10 + b // 10 * 10, a % 10 + b % 10
        why = f'{a} + {b}: tens {a // 10 * 10} + {b // 10 * 10} = {tens}, ones {a % 10} + {b % 10} = {ones}, total {value}.'
    elif op == '-':
        why = f'{a} - {b}: {a} - {b // 10 * 10} = {a - b // 10 * 10}, then minus {b % 10} = {value}.'
    else:
        why = f'{a} times {b} is {value}.'
    return Item(question, why, f'{a} {op} {b} = {value}.')
