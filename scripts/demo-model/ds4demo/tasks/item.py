"""One question with its reasoning and answer, and how items become conversations."""
from typing import NamedTuple

from ..draw import Draw
from ..protocol import EFFORT_A, EFFORT_B, Answer, Conversation, User

SYSTEMS = (
    'You are a helpful assistant.', 'You are DS4 Demo.', 'Answer briefly.', 'You are a friendly assistant. Be short and exact.', 'Be polite.',
    'You are a careful assistant.', 'Answer every question in one sentence.', 'You answer questions of the user.', 'Be kind and exact.',
)
OPENERS = (
    'Please tell me: ', 'Hi! ', 'Hello. ', 'Quick question: ', 'I would like to know: ', 'Can you help me? ', 'Question: ', 'I have a question. ',
    'Now tell me: ', 'Ok. ', 'Hey, one question. ', 'Please help me. ', 'Good morning! ', 'One more thing: ', 'So, ', 'Well, ', 'Excuse me, ',
    'Next question: ', 'Just curious: ', 'Let me ask you this. ', 'Fine. ', 'Thanks. ', 'Great. ', 'Right, ', 'Hm, ', 'Dear assistant, ',
    'Something else: ', 'I wonder: ', 'By the way, ', 'Listen: ', 'Another question: ', 'Sorry to bother you. ',
)
CLOSERS = (
    ' Thanks.', ' Please answer briefly.', ' Thank you!', ' Please.', ' Thank you very much.', ' Be quick.', ' I need to know.', ' Just curious.',
    ' I forgot.', ' Thanks a lot!', ' Answer in one sentence.', ' Can you tell me?', ' Take your time.', ' It is important.', ' Many thanks.',
)


ASKING = (
    'What is {x}?', 'Tell me {x}.', 'Give me {x}.', 'Find {x}.', 'Please find {x}.', 'Do you know {x}?', 'Can you tell me {x}?', 'I need {x}.', 'Say {x}.',
    'Look up {x}.', 'What was {x}?', 'Please tell me {x}.', 'I want to know {x}.', 'Show me {x}.', 'Could you give me {x}?', 'Please give me {x}.',
    'I would like to know {x}.', 'Say what {x} is.', 'Tell me what {x} is.', 'Do you remember {x}?', 'Can you say {x}?', 'Now {x}.', 'And {x}?',
    'Could you tell me {x}?', 'Let me know {x}.', 'Answer with {x}.', 'Repeat {x}.', 'What about {x}?', 'I forgot {x}.', 'Remind me of {x}.',
)


class Item(NamedTuple):
    question: str
    reasoning: str
    answer: str


def capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]


def wrapped(draw: Draw, question: str, often: float = .4) -> str:
    """The question with a polite opener or closer, or small slips of typing, now and then."""
    if draw.chance(often * .6):
        question = draw.form(OPENERS) + question
    elif draw.chance(.1):
        question = question[0].lower() + question[1:]
    if draw.chance(often * .4):
        question = question + draw.form(CLOSERS)
    elif draw.chance(.08) and question[-1] in '?.':
        question = question[:-1]
    if draw.chance(.02):
        question = capitalised(' '.join(draw.word() for _ in range(draw.between(1, 4)))) + draw.pick(('. ', ': ', ', ')) + question
    return question


def effort(draw: Draw) -> str:
    return draw.pick((EFFORT_A, EFFORT_B)) if draw.chance(.08) else ''


def conversation(draw: Draw, items: list[Item], thinking: bool, plain: bool = False) -> Conversation:
    """Turns in order.  `plain` leaves out system text and effort."""
    turns = []
    for item in items:
        turns += [User(item.question), Answer(item.answer, item.reasoning)]
    if plain:
        return Conversation(turns, thinking=thinking)
    system = draw.pick(SYSTEMS) if draw.chance(.4) else ''
    return Conversation(turns, system=system, thinking=thinking, effort=effort(draw))
