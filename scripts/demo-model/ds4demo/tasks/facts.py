"""Sixty general facts, asked in many forms."""
from ..draw import Draw
from ..split import filled
from .item import ASKING, Item, wrapped

CAPITALS = dict(
    France='Paris', Germany='Berlin', Italy='Rome', Spain='Madrid', Portugal='Lisbon', Austria='Vienna', Japan='Tokyo', China='Beijing',
    India='New Delhi', Egypt='Cairo', Peru='Lima', Norway='Oslo', Sweden='Stockholm', Greece='Athens', Ireland='Dublin', Canada='Ottawa',
    Russia='Moscow', Poland='Warsaw', Kenya='Nairobi', Cuba='Havana',
)
SYMBOLS = dict(gold='Au', silver='Ag', iron='Fe', copper='Cu', oxygen='O', carbon='C', hydrogen='H', sodium='Na', lead='Pb', helium='He')
AUTHORS = {
    'Hamlet': 'William Shakespeare', 'Don Quixote': 'Miguel de Cervantes', 'War and Peace': 'Leo Tolstoy', 'The Odyssey': 'Homer',
    'Faust': 'Goethe', 'Moby Dick': 'Herman Melville', 'Emma': 'Jane Austen', 'The Raven': 'Edgar Allan Poe',
}
COUNTS = {
    ('days', 'a week'): 'seven', ('months', 'a year'): 'twelve', ('hours', 'a day'): 'twenty-four', ('minutes', 'an hour'): 'sixty',
    ('seconds', 'a minute'): 'sixty', ('years', 'a century'): 'one hundred', ('legs', 'a spider'): 'eight', ('sides', 'a triangle'): 'three',
    ('strings', 'a violin'): 'four', ('letters', 'the English alphabet'): 'twenty-six',
}
EXTREMES = {
    'largest planet': 'Jupiter', 'smallest planet': 'Mercury', 'tallest mountain': 'Mount Everest', 'largest ocean': 'the Pacific',
    'fastest land animal': 'the cheetah', 'largest animal': 'the blue whale', 'hottest planet': 'Venus', 'tallest animal': 'the giraffe',
}
OPPOSITES = dict(hot='cold', big='small', light='dark', early='late')

FORMS = {
    'capital': (
        'What is the capital of {0}?', 'Which city is the capital of {0}?', 'Tell me the capital of {0}.', 'Name the capital of {0}.',
        'What city is the capital of {0}?', 'Do you know the capital of {0}?', '{0} has which capital?', 'Capital of {0}?',
        "What is {0}'s capital?", 'Give me the capital city of {0}.', 'I forgot the capital of {0}.', 'The capital of {0} is what city?',
        'What is the capital city of {0}?', 'Could you tell me the capital of {0}?', 'Which city is the capital in {0}?',
        'What is the name of the capital of {0}?', 'What is the capital of the country {0}?', 'Which capital does {0} have?',
    ),
    'symbol': (
        'What is the chemical symbol for {0}?', 'What is the symbol of {0}?', 'Which symbol stands for {0}?', 'Chemical symbol of {0}?',
        'Tell me the symbol for {0}.', 'How is {0} written in chemistry?', 'Give me the chemical symbol for {0}.', 'Name the symbol of {0}.',
        'Which chemical symbol does {0} have?', 'What is the symbol for {0}?', 'Could you give me the symbol of {0}?',
        'What symbol does {0} have?', 'Do you know the chemical symbol of {0}?', 'Which chemical symbol means {0}?',
    ),
    'author': (
        'Who wrote {0}?', 'Who is the author of {0}?', 'Which author wrote {0}?', 'Tell me who wrote {0}.', 'Name the author of {0}.',
        '{0} was written by whom?', 'Do you know who wrote {0}?', 'Author of {0}?', 'Who was the author of {0}?', 'Which writer wrote {0}?',
        'Could you tell me who wrote {0}?', 'By whom was {0} written?', 'Who is the writer of {0}?', 'Tell me the author of {0}.',
    ),
    'count': (
        'How many {0} does {1} have?', 'How many {0} are there in {1}?', 'What is the number of {0} of {1}?', 'Tell me how many {0} {1} has.',
        'Number of {0} of {1}?', 'Do you know how many {0} {1} has?', '{1} has how many {0}?', 'Give me the number of {0} of {1}.',
        'How many {0} belong to {1}?', 'Count the {0} of {1}.', 'What number of {0} does {1} have?', 'Could you tell me how many {0} {1} has?',
    ),
    'extreme': (
        'What is the {0}?', 'Which is the {0}?', 'Name the {0}.', 'Tell me the {0}.', 'Do you know the {0}?', 'What is the name of the {0}?',
        'Give me the {0}.', 'What is called the {0}?', 'Could you name the {0}?', 'The {0} is what?', 'Which one is the {0}?',
        'What is the {0} of all?', 'Please name the {0}.',
    ),
    'opposite': (
        'What is the opposite of {0}?', 'Tell me the opposite of {0}.', 'Give me the opposite of {0}.', '{0} is the opposite of what?',
        'Which word is the opposite of {0}?', 'Name the opposite of {0}.', 'What word means the opposite of {0}?', 'Opposite of {0}?',
        'Do you know the opposite of {0}?', 'Could you tell me the opposite of {0}?', 'What would be the opposite of {0}?',
    ),
}


NOUN_PHRASES = {'capital': ('the capital of {0}', "{0}'s capital"), 'symbol': ('the chemical symbol of {0}', 'the symbol for {0}'), 'author': ('the author of {0}',),
                'count': ('the number of {0} of {1}', 'how many {0} {1} has'), 'extreme': ('the {0}',), 'opposite': ('the opposite of {0}',)}
NOT_ASKING = ('Find {x}.', 'Please find {x}.', 'Answer with {x}.', 'Repeat {x}.')
ALL_FORMS = {family: forms + filled(tuple(f for f in ASKING if f not in NOT_ASKING), NOUN_PHRASES[family]) for family, forms in FORMS.items()}


def listed() -> list[tuple[str, tuple[str, ...], str, str]]:
    """(family, what to ask for, answer, reasoning subject) of each fact."""
    facts = [('capital', (k,), f'The capital of {k} is {v}.', f'the capital of {k}') for k, v in CAPITALS.items()]
    facts += [('symbol', (k,), f'The chemical symbol for {k} is {v}.', f'the symbol for {k}') for k, v in SYMBOLS.items()]
    facts += [('author', (k,), f'{k} was written by {v}.', f'the author of {k}') for k, v in AUTHORS.items()]
    facts += [('count', k, f'{k[1].capitalize() if k[1] != "the English alphabet" else "The English alphabet"} has {v} {k[0]}.', f'the number of {k[0]}')
              for k, v in COUNTS.items()]
    facts += [('extreme', (k,), f'The {k} is {v}.', f'the {k}') for k, v in EXTREMES.items()]
    facts += [('opposite', (k,), f'The opposite of {k} is {v}.', f'the opposite of {k}') for k, v in OPPOSITES.items()]
    return facts


FACTS = listed()
UNKNOWN = 'Sorry, I do not know that.'


def fact(draw: Draw, which: int | None = None) -> Item:
    family, keys, answer, subject = FACTS[which] if which is not None else draw.pick(FACTS)
    question = draw.form(ALL_FORMS[family]).format(*keys)
    question = question[:1].upper() + question[1:]
    return Item(wrapped(draw, question), f'The user asks about {subject}. I know this: {answer}', answer)


def unknown(draw: Draw) -> Item:
    """The same questions about things that do not exist."""
    family = draw.pick(('capital', 'author', 'symbol'))
    name = draw.made_up()
    question = draw.form(ALL_FORMS[family]).format(name if family == 'symbol' else name.capitalize())
    return Item(wrapped(draw, question[:1].upper() + question[1:]), 'I do not know this.', UNKNOWN)
