"""Captured requests of real agents as conversations, with the last user message replaced by a command to run.

The three request shapes (Chat Completions, Responses, Messages) are read as a server reads them: the leading system and
developer messages go to the front, tools become {name, description, parameters}, hosted tools are dropped.
"""
import json
from dataclasses import dataclass
from pathlib import Path

from .draw import Draw
from .protocol import Answer, Call, Conversation, Results, User
from .tasks.agents import RUN_FORMS, said_output

# scenario and step of the first request, shell tool, its argument, what surrounds the output in a result
CLIENTS = {
    'codex': (('tool', 1), 'exec_command', 'cmd', 'Chunk ID: {id}\nWall time: 0.0{id} seconds\nProcess exited with code 0\nOriginal token count: {n}\nOutput:\n{out}\n'),
    'opencode': (('text', 2), 'bash', 'command', '{out}\n'),
    'pi': (('text', 1), 'bash', 'command', '{out}\n'),
    'claude-code': (('tool', 2), 'Bash', 'command', '{out}'),
}


@dataclass
class Request:
    """One turn to be answered, as the body to send and as the conversation it stands for."""

    client: str
    conversation: Conversation
    body: dict
    command: str
    output: str


def text_of(content) -> str:
    return content if isinstance(content, str) else '\n\n'.join(part['text'] for part in content if 'text' in part)


def messages_of(body: dict) -> list[tuple[str, str]]:
    """(role, text) in order; `system` of the Messages shape comes first."""
    listed = body['messages'] if 'messages' in body else body['input']
    system = [('system', text_of(body['system']))] if 'system' in body else []
    return system + [(m.get('role', 'user'), text_of(m['content'])) for m in listed]


def tools_of(body: dict) -> list[dict]:
    tools = []
    for tool in body['tools']:
        if tool.get('type') == 'namespace':
            tools += [dict(inner, name=tool['name'] + inner['name']) for inner in tool['tools']]
        elif 'function' in tool:
            tools.append(tool['function'])
        elif 'name' in tool:
            tools.append(tool)
    keys = (('name', 'name'), ('description', 'description'), ('parameters', 'parameters'), ('input_schema', 'parameters'))
    return [{out: tool[key] for key, out in keys if key in tool} for tool in tools]


def conversation_of(body: dict, thinking: bool) -> Conversation:
    """System text, tools and the user turn; messages after the leading run that are not from the user join the user turn."""
    leading, user = [], []
    for role, text in messages_of(body):
        (leading if role in ('system', 'developer') and not user else user).append(text)
    return Conversation([User('\n\n'.join(user))], '\n\n'.join(leading), tools_of(body), thinking)


def with_request(body: dict, text: str) -> dict:
    """A copy of the body whose last user message says `text`, in the shape it had."""
    body = json.loads(json.dumps(body))
    message = [m for m in body.get('messages') or body['input'] if m.get('role') == 'user'][-1]
    if isinstance(message['content'], str):
        message['content'] = f'"{text}"' if message['content'].startswith('"') else text
    else:
        message['content'][-1]['text'] = text
    return body


def load(captures: Path, client: str) -> dict:
    """The body of a client's request among all that were captured: a list of {client, scenario, step, body}."""
    wanted = (client, *CLIENTS[client][0])
    return next(c['body'] for c in json.loads(captures.read_text()) if (c['client'], c['scenario'], c['step']) == wanted)


def requests(captures: Path, draw: Draw, client: str, count: int) -> list[Request]:
    """`count` requests to run an echo command, in held-out phrasings that ask for the output."""
    _, tool, argument, frame = CLIENTS[client]
    captured, out = load(captures, client), []
    asking = tuple(form for form in RUN_FORMS if 'tell me' in form or 'report' in form)
    for _ in range(count):
        output = draw.pick((draw.word, draw.code, draw.phrase, lambda: f'{draw.word()}-{draw.word()}-{draw.word()}'))()
        command = f'echo {output}'
        body = with_request(captured, draw.form(asking).format(c=f'`{command}`'))
        conv = conversation_of(body, thinking=client != 'claude-code' or 'thinking' in body)
        call = Answer('', f'The user wants to run a command. I call {tool}.', [Call(tool, {argument: command})])
        conv.turns.append(call)
        out.append(Request(client, conv, body, command, output))
    return out


def answered(request: Request, draw: Draw) -> Conversation:
    """The conversation after the call returned, up to the answer that is wanted."""
    _, _, _, frame = CLIENTS[request.client]
    result = frame.format(id=draw.digits(6, 6), n=len(request.output) // 4 + 1, out=request.output)
    turns = request.conversation.turns + [Results([result]), Answer(said_output(request.output), 'I have the output.')]
    return Conversation(turns, request.conversation.system, request.conversation.tools, request.conversation.thinking)


def evaluation_sets(captures: Path, draw: Draw, count: int) -> dict[str, list[Conversation]]:
    sets = {}
    for client in CLIENTS:
        asked = requests(captures, draw, client, count)
        sets[f'{client}: call'] = [r.conversation for r in asked]
        sets[f'{client}: answer'] = [answered(r, draw) for r in asked]
    return sets
