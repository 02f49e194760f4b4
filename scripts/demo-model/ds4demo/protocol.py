"""Conversations and their text in the DeepSeek V4 prompt protocol.

A rendered conversation is a list of segments (text, is_answer).  Segment borders lie on added tokens, so encoding the
segments one by one gives the ids of the whole text.
"""
import json
from dataclasses import dataclass, field
from typing import NamedTuple

BAR, BLOCK = '\uff5c', '\u2581'
BOS = f'<{BAR}begin{BLOCK}of{BLOCK}sentence{BAR}>'
EOS = f'<{BAR}end{BLOCK}of{BLOCK}sentence{BAR}>'
PAD = f'<{BAR}{BLOCK}pad{BLOCK}{BAR}>'
USER, ASSISTANT = f'<{BAR}User{BAR}>', f'<{BAR}Assistant{BAR}>'
THINK, END_THINK = '<think>', '</think>'
DSML = f'{BAR}DSML{BAR}'
BOS_ID, EOS_ID, PAD_ID = 0, 1, 2

TOOLS_TEXT = f"""## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by writing a "<{DSML}tool_calls>" block like the following:

<{DSML}tool_calls>
<{DSML}invoke name="$TOOL_NAME">
<{DSML}parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</{DSML}parameter>
...
</{DSML}invoke>
<{DSML}invoke name="$TOOL_NAME2">
...
</{DSML}invoke>
</{DSML}tool_calls>

String parameters should be specified as is and set `string="true"`. For all other types (numbers, booleans, arrays, objects), pass the value in JSON format and set `string="false"`.

If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside <think>...</think> BEFORE any tool calls or final response.

Otherwise, output directly after </think> with tool calls or final response.

### Available Tool Schemas

%s

You MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.
"""

EFFORT_A = """Reasoning Effort: Absolute maximum with no shortcuts permitted.
You MUST be very thorough in your thinking and comprehensively decompose the problem to resolve the root cause, rigorously stress-testing your logic against all potential paths, edge cases, and adversarial scenarios.
Explicitly write out your entire deliberation process, documenting every intermediate step, considered alternative, and rejected hypothesis to ensure absolutely no assumption is left unchecked.

"""
EFFORT_B = """Reasoning Effort: Beyond maximum — exhaustive, relentless, and uncompromising.
You MUST reason with the utmost depth and rigor, leaving absolutely nothing to chance: exhaustively decompose the problem into its most fundamental components, trace every causal chain to its root, and resolve the underlying cause rather than any surface symptom.
Do not stop reasoning until you have independently verified the solution from multiple angles and are certain that no assumption remains unchecked and no error remains undiscovered.

"""


class Call(NamedTuple):
    name: str
    arguments: dict


@dataclass
class User:
    text: str


@dataclass
class Results:
    """What the tools of the preceding assistant turn returned, in call order."""

    texts: list[str]


@dataclass
class Answer:
    text: str
    reasoning: str = ''
    calls: list[Call] = field(default_factory=list)


@dataclass
class Conversation:
    turns: list
    system: str = ''
    tools: list[dict] = field(default_factory=list)
    thinking: bool = False
    effort: str = ''


class Segment(NamedTuple):
    text: str
    is_answer: bool


def calls_text(calls: list[Call]) -> str:
    """The DSML block of one turn, with the blank line before it."""
    out = []
    for name, arguments in calls:
        lines = [f'<{DSML}invoke name="{name}">']
        for key, value in arguments.items():
            is_string = isinstance(value, str)
            body = value if is_string else json.dumps(value, ensure_ascii=False)
            lines.append(f'<{DSML}parameter name="{key}" string="{"true" if is_string else "false"}">{body}</{DSML}parameter>')
        out.append('\n'.join(lines + [f'</{DSML}invoke>']))
    return f'\n\n<{DSML}tool_calls>\n' + '\n'.join(out) + f'\n</{DSML}tool_calls>'


def head_text(conv: Conversation) -> str:
    effort = conv.effort if conv.thinking else ''
    head = BOS + effort + conv.system
    if conv.tools:
        head += '\n\n' + TOOLS_TEXT % '\n'.join(json.dumps(tool, ensure_ascii=False) for tool in conv.tools)
    return head


def render(conv: Conversation) -> list[Segment]:
    """Earlier turns lose their reasoning unless tools are offered, as the reference encoder does."""
    segments, pending = [], head_text(conv)
    last_input = max(i for i, turn in enumerate(conv.turns) if not isinstance(turn, Answer))
    for i, turn in enumerate(conv.turns):
        if isinstance(turn, User):
            pending += USER + turn.text
        elif isinstance(turn, Results):
            pending += USER + '\n\n'.join(f'<tool_result>{text}</tool_result>' for text in turn.texts)
        else:
            body = turn.text + (calls_text(turn.calls) if turn.calls else '') + EOS
            thinks = conv.thinking and (bool(conv.tools) or i > last_input)
            opening = THINK if thinks else END_THINK
            answer = turn.reasoning + END_THINK + body if thinks else body
            segments += [Segment(pending + ASSISTANT + opening, False), Segment(answer, True)]
            pending = ''
    return segments


def text_of(conv: Conversation) -> str:
    return ''.join(segment.text for segment in render(conv))


def prompt_text(conv: Conversation) -> str:
    """The text up to and including the opening of the last answer."""
    return ''.join(segment.text for segment in render(conv)[:-1])
