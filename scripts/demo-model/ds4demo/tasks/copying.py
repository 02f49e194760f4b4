"""Repeating text and looking values up in a list: the bare form of what tool calls are made of."""
import json

from ..draw import Draw
from ..split import combined, filled
from .item import ASKING, Item, capitalised

REPEAT_FORMS = combined(
    ('', '', 'Please ', 'Now ', 'Just ', 'Can you '),
    ('repeat', 'say', 'copy', 'echo', 'write', 'print', 'reply with', 'answer with', 'answer only with', 'respond with', 'respond only with', 'type', 'output', 'return',
     'say back', 'reply only with', 'send back', 'write down'),
    ('', ' exactly', ' this', ' exactly this', ' this text', ' the following', ' the text', ' these words', ' the following text', ' just this', ' the words', ' only this'),
    (': {s}', ': {s}', ':\n{s}'),
) + ('Repeat after me: {s}', 'Repeat "{s}".', 'Say "{s}".', 'Reply with "{s}".', 'Your answer must be: {s}', 'Answer this and nothing else: {s}', 'The text to repeat is: {s}')
LOOK_UP_FORMS = filled(ASKING, ('the value of {k}', 'the entry for {k}', 'the entry {k}', 'the value for {k}', 'the value that {k} has', 'the value next to {k}', '{k}')) + (
    'What does the list say about {k}?', 'Which value does {k} have?', 'What stands next to {k}?', 'Read the entry {k}.', 'Which value belongs to {k}?', 'What value has {k}?',
    'Which value is given for {k}?', 'What comes with {k}?', 'What is listed for {k}?', 'Which entry goes with {k}?', 'What do you find at {k}?', 'What is stored under {k}?',
)


def repeat(draw: Draw) -> Item:
    kind = draw.rng.random()
    if kind < .35:
        text = ' '.join(draw.word() for _ in range(draw.between(1, 8)))
    elif kind < .5:
        text = draw.sentence()
    elif kind < .6:
        text = draw.digits(3, 12)
    elif kind < .8:
        text = ' '.join(draw.text() for _ in range(draw.between(1, 3)))
    elif kind < .9:
        text = ' '.join(draw.pasted() for _ in range(draw.between(1, 6)))
    else:
        text = draw.word().upper() if draw.chance(.5) else draw.word().capitalize()
    return Item(capitalised(draw.form(REPEAT_FORMS).format(s=text)), 'I have to repeat the text.', text)


def look_up(draw: Draw) -> Item:
    count = draw.between(2, 12)
    keys = list({draw.identifier(): None for _ in range(count)})
    values = [draw.digits(2, 6) if draw.chance(.4) else draw.text() for _ in keys]
    which = draw.between(0, len(keys) - 1)
    if draw.chance(.3):
        body = json.dumps(dict(zip(keys, values)))
    else:
        between, is_ = draw.pick(('\n', ', ', '; ')), draw.pick((': ', ' = ', ' is ', ' -> '))
        body = between.join(key + is_ + value for key, value in zip(keys, values))
    question = draw.form(LOOK_UP_FORMS).format(k=keys[which])
    text = f'{body}\n{question}' if draw.chance(.6) else f'{question}\n{body}'
    return Item(text, f'I look up {keys[which]} in the list. It is {values[which]}.', f'{keys[which]} is {values[which]}.')
