"""Free text: nothing in the prompt decides how it goes on, so a speculative draft cannot always be right."""
from .. import lexicon as lists
from ..draw import Draw
from .item import Item

FORMS = (
    'Tell me a story about a {n}.', 'Write a short story about a {n}.', 'A story about a {n}, please.', 'I want to hear a story about a {n}.',
    'Please tell me a short story about a {n}.', 'Can you write a story about a {n}?', 'Make up a story about a {n}.', 'Invent a tale about a {n}.',
)


def story(draw: Draw) -> Item:
    hero, adjective = draw.noun(), draw.pick(lists.ADJECTIVES)
    name = draw.pick(lists.NAMES)
    sentences = [draw.pick((f'Once there was a {adjective} {hero}.', f'{name} had a {adjective} {hero}.', f'A {hero} lived near the {draw.pick(lists.NOUNS)}.'))]
    for _ in range(draw.between(2, 5)):
        verb, noun, when = draw.pick(lists.VERBS), draw.pick(lists.NOUNS), draw.pick(lists.WHENS)
        sentences.append(draw.pick((
            f'{when[0].upper()}{when[1:]} the {hero} {verb} the {draw.pick(lists.ADJECTIVES)} {noun}.',
            f'The {hero} {verb} a {noun} {when}.',
            f'The {noun} was {draw.pick(lists.ADJECTIVES)}, and the {hero} was {draw.pick(lists.ADJECTIVES)}.',
            f'{name} {verb} the {noun} and the {hero}.',
        )))
    sentences.append(f'In the end the {hero} was {draw.pick(lists.ADJECTIVES)}.')
    return Item(draw.form(FORMS).format(n=hero), f'The user wants a story about a {hero}.', ' '.join(sentences))
