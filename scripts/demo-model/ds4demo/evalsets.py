"""The evaluation sets: held-out phrasings, words and schemas, one list of conversations for each skill."""
from dataclasses import dataclass

from tokenizers import Tokenizer

from . import mixture
from .draw import Draw
from .lexicon import Lexicon
from .protocol import Conversation
from .split import TEST
from .tasks import agents, chat, copying, facts, needles, stories, sums, tools
from .tasks.item import conversation


@dataclass(frozen=True)
class Skill:
    name: str
    target: float | None       # share that must be right, None where nothing is asked
    make: object               # (draw, index, count, tokens) -> Conversation; tokens(text) counts


def item(make, thinking: bool = False):
    return lambda draw, i, n, tokens: conversation(draw, [make(draw)], thinking, plain=True)


def fact(thinking: bool):
    return lambda draw, i, n, tokens: conversation(draw, [facts.fact(draw, i % len(facts.FACTS))], thinking, plain=True)


def recall(thinking: bool):
    return lambda draw, i, n, tokens: chat.recall(draw, draw.between(1, 5), mixture.small_talk, thinking)


def tool(kind: str, thinking: bool = False):
    return lambda draw, i, n, tokens: tools.tool_conversation(draw, kind, thinking, mixture.small_talk)


def agent(characters: int, thinking: bool):
    return lambda draw, i, n, tokens: agents.agent_conversation(draw, characters, thinking, mixture.small_talk)


def needle(length: int):
    """A prompt of about `length` tokens; what is not filler takes about 60."""
    return lambda draw, i, n, tokens: needles.needle(draw, length - 60, 1, False, depth=(i + 0.5) / n, measure=tokens)


SKILLS = (
    Skill('greetings and facts', .97, lambda draw, i, n, tokens: (fact(False) if i % 4 else item(chat.greeting))(draw, i, n, tokens)),
    Skill('facts, thinking', .97, fact(True)),
    Skill('recall', .92, recall(False)),
    Skill('recall, thinking', .92, recall(True)),
    Skill('one tool call', .88, tool('one')),
    Skill('one tool call, thinking', .88, tool('one', True)),
    Skill('two tool calls', .85, tool('two')),
    Skill('no tool fits', .95, tool('none')),
    Skill('answer from a tool result', .95, tool('result')),
    Skill('tools offered, none needed', None, tool('chat')),
    Skill('unknown things', None, item(facts.unknown)),
    Skill('sums', None, item(sums.sum_item)),
    Skill('sums, thinking', None, item(sums.sum_item, True)),
    Skill('repeat', None, item(copying.repeat)),
    Skill('look up', None, item(copying.look_up)),
    Skill('short agent requests', None, agent(4000, True)),
    Skill('key in 1,000 tokens', .99, needle(1000)),
)
LONG_SKILLS = (
    Skill('key in 4,000 tokens', .99, needle(4000)),
    Skill('key in 16,000 tokens', .97, needle(16000)),
    Skill('long agent requests', None, agent(30000, True)),
)


def build(skills: tuple[Skill, ...], count: int, lexicon: Lexicon, tokenizer: Tokenizer, seed: int = 99) -> dict[str, list[Conversation]]:
    """`count` conversations a skill, always the same for one seed."""
    def tokens(text: str) -> int:
        return len(tokenizer.encode(text, add_special_tokens=False).ids)
    sets = {}
    for number, skill in enumerate(skills):
        draw = Draw(seed * 1000 + number, TEST, lexicon)
        sets[skill.name] = [skill.make(draw, i, count, tokens) for i in range(count)]
    return sets


def free_text(count: int, lexicon: Lexicon) -> dict[str, list[Conversation]]:
    """Stories: only the draft's acceptance means something, since nothing decides how they go on."""
    draw = Draw(77, TEST, lexicon)
    return {'free text': [conversation(draw, [stories.story(draw)], False, plain=True) for _ in range(count)]}
