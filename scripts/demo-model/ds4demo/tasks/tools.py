"""Conversations in which tools are offered: one call, two calls, none fits, none is needed, an answer from results."""
import json

from ..draw import Draw
from ..protocol import Answer, Call, Conversation, Results, User
from ..split import TRAIN
from .item import Item, effort
from .requests import request, two_requests
from .schemas import Tool, toolset

FIELDS = ('temperature status total price name result count time city state level balance distance score color owner date speed humidity weight '
          'rating size stock delay').split()
NO_TOOL_FITS = 'Sorry, none of my tools can do that.'
NO_TOOL = 'Sorry, I have no tool for that.'
ERRORS = ('not found', 'access denied', 'timeout', 'invalid value', 'service down', 'permission denied', 'bad request', 'no such file')
SYSTEMS = ('', '', 'You are a helpful assistant.', 'You can use tools.', 'You are a helpful assistant with tools.', 'Use the tools when they help.')


def result(draw: Draw) -> tuple[str, str]:
    """(what the tool returned, the sentence that reports it)"""
    kind = draw.rng.random()
    if kind < .1:
        error = draw.pick(ERRORS) if draw.chance(.6) else draw.phrase()
        return json.dumps({'error': error}), f'The tool reported an error: {error}.'
    if kind < .25:
        text = draw.text() if draw.chance(.6) else str(draw.between(1, 9999))
        return text, f'The result is {text}.'
    values = {}
    for _ in range(draw.pick((1, 1, 2, 2, 3, 4))):
        name = draw.pick(FIELDS) if draw.chance(.5) else draw.identifier()
        values[name] = draw.pick((
            lambda: draw.between(0, 999), lambda: round(draw.rng.uniform(0, 99), 1), draw.text, draw.text, draw.city, lambda: draw.chance(.5)))()
    parts = [f'{name} is {v if isinstance(v, str) else json.dumps(v)}' for name, v in values.items()]
    text = ', the '.join(parts[:-1]) + ' and the ' + parts[-1] if len(parts) > 1 else parts[0]
    return json.dumps(values, ensure_ascii=False), f'The {text}.'


def plan_one(draw: Draw, tools: list[Tool]) -> tuple[str, list[Call], str]:
    tool = draw.pick(tools)
    text, args = request(draw, tool)
    return text, [Call(tool.name, args)], f'The user wants to {tool.verb} the {tool.object}. I call {tool.name}.'


def plan_two(draw: Draw, tools: list[Tool]) -> tuple[str, list[Call], str]:
    first = draw.pick(tools)
    second = draw.pick(tools) if draw.chance(.4) else draw.pick([t for t in tools if t is not first] or tools)
    text, args_first, args_second = two_requests(draw, first, second)
    why = f'The user wants two things: {first.verb} the {first.object} and {second.verb} the {second.object}. I call {first.name} and {second.name}.'
    return text, [Call(first.name, args_first), Call(second.name, args_second)], why


def no_tool_needed(item: Item) -> list:
    return [User(item.question), Answer(item.answer, 'No tool is needed. ' + item.reasoning)]


def result_turns(draw: Draw, calls: list[Call]) -> list:
    results = [result(draw) for _ in calls]
    have = 'I have the result.' if len(results) == 1 else 'I have the results.'
    return [Results([returned for returned, _ in results]), Answer(' '.join(said for _, said in results), have)]


def calling_turns(draw: Draw, tools: list[Tool], two: bool, with_result: bool) -> list:
    text, calls, why = (plan_two if two else plan_one)(draw, tools)
    turns = [User(text), Answer('', why, calls)]
    return turns + result_turns(draw, calls) if with_result else turns


def turns_of(draw: Draw, kind: str, tools: list[Tool], missing: Tool, other) -> list:
    if kind == 'chat':
        return no_tool_needed(other(draw))
    if kind == 'none':
        text, _ = request(draw, missing)
        return [User(text), Answer(NO_TOOL_FITS, f'The user wants to {missing.verb} the {missing.object}. No tool fits.')]
    return calling_turns(draw, tools, kind == 'two' or (kind == 'result' and draw.chance(.3)), kind == 'result')


def tool_conversation(draw: Draw, kind: str, thinking: bool, other, tasks: int = 1) -> Conversation:
    """kind: one, two, none, chat or result.  `other(draw)` gives an item that needs no tool.  More than one task, each of
    any kind, saves training from paying for the schemas again with every answer."""
    count = draw.between(1, 4) if draw.chance(.75) else draw.between(5, 8)
    *tools, missing = toolset(draw, count + 1)
    turns = turns_of(draw, kind, tools, missing, other)
    for _ in range(tasks - 1):
        if turns[-1].calls:
            turns += result_turns(draw, turns[-1].calls)
        turns += turns_of(draw, draw.pick(('one', 'two', 'two', 'none', 'chat', 'result')), tools, missing, other)
    return Conversation(turns, draw.pick(SYSTEMS), [t.schema for t in tools], thinking, effort(draw) if draw.split == TRAIN else '')


def without_tools(draw: Draw) -> Item:
    """A request for a tool when none is offered."""
    text, _ = request(draw, toolset(draw, 1)[0])
    return Item(text, 'I have no tool for this.', NO_TOOL)
