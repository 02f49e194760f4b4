"""Six-digit keys hidden in long texts."""
from ..draw import Draw
from ..protocol import Answer, Conversation, User
from ..split import combined, filled
from .item import ASKING, capitalised

STATEMENTS = combined(
    ('', '', 'Remember: ', 'Note that ', 'Important: ', 'Please note: ', 'By the way, ', 'Keep in mind that ', 'Do not forget: ', 'For later: '),
    ('the {l} key is {k}.', 'the key of the {l} is {k}.', 'the secret key of the {l} is {k}.', 'the key for the {l} is {k}.', 'the key for {l} is {k}.',
     'the {l} has the key {k}.', 'the key {k} belongs to the {l}.', 'for the {l} the key is {k}.', '{k} is the key of the {l}.'),
)
QUESTIONS = filled(ASKING, ('the {l} key', 'the key of the {l}', 'the secret key of the {l}', 'the key for the {l}', 'the secret {l} key', 'the key that belongs to the {l}',
                            'the secret key for {l}', 'the key of {l}')) + (
    'Which key belongs to the {l}?', 'Which key does the {l} have?', 'Which key is for the {l}?', 'Which key was given for the {l}?', 'What key does the {l} use?',
    'Which key goes with the {l}?', 'Which key should I use for the {l}?', 'Which is the {l} key?', 'What key has the {l}?', 'Which key opens the {l}?',
    'Which number is the {l} key?', 'Search for the {l} key.', 'Where is the {l} key? Tell me.', 'Which secret key does the {l} need?',
)
LAYOUTS = ('Read this text.\n{t}\n\n{q}', '{t}\n\n{q}', '{q}\n\n{t}\n\n{q}', 'Text: {t}\nQuestion: {q}', 'Here is a text:\n\n{t}\n\nNow the question: {q}')


def filler(draw: Draw, length: int, prose: float, measure=len) -> list[str]:
    """Sentences and paragraphs up to a length as `measure` counts it; `prose` is the share of real paragraphs."""
    out, size = [], 0
    while True:
        piece = draw.paragraph() if draw.chance(prose) else draw.sentence()
        size += measure(' ' + piece)
        if size > length:
            return out
        out.append(piece)


def needle(draw: Draw, length: int, keys: int, thinking: bool, depth: float | None = None, measure=len) -> Conversation:
    """`keys` keys at random places (or all at `depth` in 0..1) of a text of about `length`, asked for one after another."""
    labels = [draw.noun() if draw.chance(.5) else draw.word() for _ in range(keys)]
    labels = list(dict.fromkeys(labels))
    values = [draw.digits(6, 6) for _ in labels]
    body = filler(draw, length, draw.pick((0, 0, .02, .1, .4)), measure)
    places = [int(depth * len(body)) if depth is not None else draw.between(0, len(body)) for _ in labels]
    for place, label, value in sorted(zip(places, labels, values), reverse=True):
        body.insert(place, capitalised(draw.form(STATEMENTS).format(l=label, k=value)))
    order = list(range(len(labels)))
    draw.rng.shuffle(order)
    turns, text = [], ' '.join(body)
    for n, i in enumerate(order):
        question = draw.form(QUESTIONS).format(l=labels[i])
        if n == 0:
            question = draw.form(LAYOUTS).format(t=text, q=question)
        answer = f'The {labels[i]} key is {values[i]}.'
        turns += [User(question), Answer(answer, f'I search the text for the {labels[i]} key. It is {values[i]}.')]
    return Conversation(turns, thinking=thinking)
