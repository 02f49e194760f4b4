"""The training mixture: which conversations, how often, how long."""
from .draw import Draw
from .protocol import Conversation
from .tasks import agents, chat, copying, facts, needles, stories, sums, tools
from .tasks.item import Item, conversation

THINKING = .4
# share of documents by skill; long documents are few but hold most tokens
SHORT = {'chat': 15, 'recall': 12, 'facts': 4, 'sums': 3, 'copy': 13, 'story': 2, 'one': 20, 'two': 9, 'none': 7, 'tool_chat': 4, 'result': 8, 'needle': 5, 'agent': 6}
LONG = {**SHORT, 'needle': 6, 'agent': 10, 'long_needle': 2.5, 'long_agent': 6}
# the second training: more of what the first left wrong
REFINED_SHORT = {**SHORT, 'chat': 15, 'recall': 24, 'copy': 18, 'two': 20, 'needle': 5}
REFINED_LONG = {**REFINED_SHORT, 'long_needle': 1.0, 'long_agent': 1.6}
STAGES = {'short': SHORT, 'long': LONG, 'refined short': REFINED_SHORT, 'refined long': REFINED_LONG}
NEEDLE_CHARACTERS = (200, 600, 1500, 3500, 8000)
LONG_NEEDLE_CHARACTERS = (12000, 24000, 40000, 55000, 66000)
AGENT_CHARACTERS = (300, 1000, 2500, 5000, 9000)
LONG_AGENT_CHARACTERS = (9000, 14000, 22000, 32000, 42000, 50000)


def single(draw: Draw) -> Item:
    """One question that needs neither tools nor earlier turns."""
    kind = draw.weighted({'fact': 40, 'greeting': 16, 'sum': 22, 'unknown': 4, 'no_tools': 3, 'repeat': 8, 'look_up': 6, 'story': 2})
    makers = dict(fact=facts.fact, greeting=chat.greeting, sum=sums.sum_item, unknown=facts.unknown, no_tools=tools.without_tools, repeat=copying.repeat,
                  look_up=copying.look_up, story=stories.story)
    return makers[kind](draw)


def small_talk(draw: Draw) -> Item:
    """Like `single`, but right also where tools are offered."""
    kind = draw.weighted({'fact': 45, 'greeting': 25, 'sum': 12, 'repeat': 15})
    return dict(fact=facts.fact, greeting=chat.greeting, sum=sums.sum_item, repeat=copying.repeat)[kind](draw)


def short(draw: Draw, kind: str) -> Conversation:
    thinking = draw.chance(THINKING)
    if kind == 'chat':
        return conversation(draw, [single(draw) for _ in range(draw.pick((1, 1, 2, 3, 5)))], thinking)
    if kind == 'recall':
        return chat.recall(draw, draw.pick((0, 1, 1, 2, 3, 5, 7)), single, thinking)
    if kind == 'facts':
        return conversation(draw, [facts.fact(draw)], thinking)
    if kind == 'sums':
        return conversation(draw, [sums.sum_item(draw) for _ in range(draw.between(1, 6))], thinking)
    if kind == 'copy':
        return conversation(draw, [draw.pick((copying.repeat, copying.look_up))(draw) for _ in range(draw.between(1, 5))], draw.chance(.2))
    if kind == 'story':
        return conversation(draw, [stories.story(draw)], draw.chance(.2))
    if kind == 'needle':
        return needles.needle(draw, int(draw.pick(NEEDLE_CHARACTERS) * draw.rng.uniform(.4, 1)), draw.pick((1, 1, 2, 3, 5)), draw.chance(.2))
    if kind == 'agent':
        return agents.agent_conversation(draw, int(draw.pick(AGENT_CHARACTERS) * draw.rng.uniform(.6, 1)), draw.chance(.6), small_talk)
    return tools.tool_conversation(draw, dict(tool_chat='chat').get(kind, kind), thinking, small_talk, tasks=draw.pick((1, 1, 2, 3, 4, 6, 8)))


def conversation_of(draw: Draw, stage: str) -> Conversation:
    """One document of a stage's mixture; those for short rows have none of up to 16,000 tokens."""
    kind = draw.weighted(STAGES[stage])
    if kind == 'long_needle':
        characters = int(draw.pick(LONG_NEEDLE_CHARACTERS) * draw.rng.uniform(.7, 1))
        return needles.needle(draw, characters, draw.pick((2, 4, 8)), draw.chance(.2))
    if kind == 'long_agent':
        characters = int(draw.pick(LONG_AGENT_CHARACTERS) * draw.rng.uniform(.6, 1.1))
        return agents.agent_conversation(draw, characters, draw.chance(.6), small_talk)
    return short(draw, kind)
