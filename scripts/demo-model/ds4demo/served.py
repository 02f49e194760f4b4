"""Asks a running server what the evaluation sets ask, over HTTP and greedily, and writes the share of right answers.

    python -m ds4demo.served --url http://127.0.0.1:8000 --model M.gguf --work build --out results.json [--captured build/captures.json]

A sample on a CPU takes minutes (--count); with a GPU behind the server the whole sets are fine.
"""
import argparse
import json
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from . import captured, evalsets, gguf_file, lexicon
from .draw import Draw
from .protocol import Answer, Conversation, Results, User
from .split import TEST
from .tasks.agents import said_output

LONGEST_ANSWER = 400
TIMEOUT_SECONDS = 600


@dataclass
class Reply:
    """One answer, whichever surface it came from."""

    reasoning: str
    text: str
    calls: list[tuple[str, dict]]
    stopped: bool     # by the model, not by the token limit


def post(url: str, path: str, body: dict) -> dict:
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {'Content-Type': 'application/json'})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise SystemExit(f'{url}{path} answered {error.code}: {error.read().decode(errors="replace")[:500]}') from error
    except urllib.error.URLError as error:
        raise SystemExit(f'nothing answers at {url}: {error.reason}; start ds4-server first') from error


def chat_messages(conv: Conversation) -> list[dict]:
    """The turns of a conversation as Chat Completions states them, without the last answer."""
    messages = [{'role': 'system', 'content': conv.system}] if conv.system else []
    ids: list[str] = []
    for n, turn in enumerate(conv.turns[:-1]):
        if isinstance(turn, User):
            messages.append({'role': 'user', 'content': turn.text})
        elif isinstance(turn, Results):
            messages += [{'role': 'tool', 'tool_call_id': i, 'content': text} for i, text in zip(ids, turn.texts)]
        else:
            ids = [f'call_{n}_{i}' for i in range(len(turn.calls))]
            calls = [{'id': i, 'type': 'function', 'function': {'name': c.name, 'arguments': json.dumps(c.arguments)}} for i, c in zip(ids, turn.calls)]
            message = {'role': 'assistant', 'content': turn.text}
            if conv.thinking:
                message['reasoning_content'] = turn.reasoning
            messages.append(message | ({'tool_calls': calls} if calls else {}))
    return messages


def chat_body(conv: Conversation) -> dict:
    body = {'model': 'demo', 'messages': chat_messages(conv), 'temperature': 0, 'max_tokens': LONGEST_ANSWER,
            'thinking': {'type': 'enabled' if conv.thinking else 'disabled'}}
    if conv.tools:
        body['tools'] = [{'type': 'function', 'function': tool} for tool in conv.tools]
    return body


def chat_reply(answer: dict) -> Reply:
    choice = answer['choices'][0]
    message = choice['message']
    calls = [(c['function']['name'], json.loads(c['function']['arguments'])) for c in message.get('tool_calls') or []]
    return Reply(message.get('reasoning_content') or '', message.get('content') or '', calls, choice['finish_reason'] in ('stop', 'tool_calls'))


def responses_reply(answer: dict) -> Reply:
    items = answer['output']
    calls = [(i['name'], json.loads(i['arguments'])) for i in items if i['type'] == 'function_call']
    text = ''.join(p['text'] for i in items if i['type'] == 'message' for p in i['content'] if p['type'] == 'output_text')
    reasoning = ''.join(p['text'] for i in items if i['type'] == 'reasoning' for p in i.get('summary') or [])
    return Reply(reasoning, text, calls, answer['status'] == 'completed')


def messages_reply(answer: dict) -> Reply:
    blocks = answer['content']
    calls = [(b['name'], b['input']) for b in blocks if b['type'] == 'tool_use']
    text = ''.join(b['text'] for b in blocks if b['type'] == 'text')
    reasoning = ''.join(b['thinking'] for b in blocks if b['type'] == 'thinking')
    return Reply(reasoning, text, calls, answer['stop_reason'] in ('end_turn', 'tool_use'))


def right(reply: Reply, wanted: Answer, thinking: bool) -> bool:
    calls = [(c.name, c.arguments) for c in wanted.calls]
    return reply.stopped and reply.calls == calls and reply.text.strip() == wanted.text.strip() and (not thinking or reply.reasoning.strip() == wanted.reasoning)


# client surfaces: path, how a reply reads, how a call and its result are appended to a body
def extended_chat(body: dict, name: str, arguments: dict, result: str) -> dict:
    call = {'id': 'call_1', 'type': 'function', 'function': {'name': name, 'arguments': json.dumps(arguments)}}
    turns = [{'role': 'assistant', 'content': '', 'tool_calls': [call]}, {'role': 'tool', 'tool_call_id': 'call_1', 'content': result}]
    return body | {'messages': body['messages'] + turns}


def extended_responses(body: dict, name: str, arguments: dict, result: str) -> dict:
    items = [{'type': 'function_call', 'call_id': 'call_1', 'name': name, 'arguments': json.dumps(arguments)},
             {'type': 'function_call_output', 'call_id': 'call_1', 'output': result}]
    return body | {'input': body['input'] + items}


def extended_messages(body: dict, name: str, arguments: dict, result: str) -> dict:
    turns = [{'role': 'assistant', 'content': [{'type': 'tool_use', 'id': 'toolu_1', 'name': name, 'input': arguments}]},
             {'role': 'user', 'content': [{'type': 'tool_result', 'tool_use_id': 'toolu_1', 'content': result}]}]
    return body | {'messages': body['messages'] + turns}


SURFACES = {
    'codex': ('/v1/responses', responses_reply, extended_responses), 'opencode': ('/v1/chat/completions', chat_reply, extended_chat),
    'pi': ('/v1/chat/completions', chat_reply, extended_chat), 'claude-code': ('/v1/messages', messages_reply, extended_messages),
}


def ask_agent(url: str, request: captured.Request, draw: Draw) -> tuple[bool, bool]:
    """(right call, right answer from its result)"""
    path, read, extended = SURFACES[request.client]
    _, tool, argument, frame = captured.CLIENTS[request.client]
    body = {k: v for k, v in request.body.items() if k not in ('stream', 'stream_options')} | {'temperature': 0}
    wanted = (tool, {argument: request.command})
    called = read(post(url, path, body)).calls == [wanted]
    result = frame.format(id=draw.digits(6, 6), n=len(request.output) // 4 + 1, out=request.output)
    reply = read(post(url, path, extended(body, *wanted, result)))
    return called, reply.text.strip() == said_output(request.output) and not reply.calls


def agent_rows(url: str, captures: Path, draw: Draw, count: int) -> dict:
    rows = {}
    for client in captured.CLIENTS:
        outcomes = [ask_agent(url, request, draw) for request in captured.requests(captures, draw, client, count)]
        rows[client] = {'call': sum(c for c, _ in outcomes), 'answer': sum(a for _, a in outcomes), 'both': sum(c and a for c, a in outcomes), 'count': count}
        print(f'{client:32} call {rows[client]["call"]}, answer {rows[client]["answer"]}, both {rows[client]["both"]} of {count}', flush=True)
    return rows


def well_formed(reply: Reply, thinking: bool) -> bool:
    """Reasoning where it was asked for and nowhere else, ended once, then an answer."""
    spoke = bool(reply.text.strip() or reply.calls)
    return spoke and bool(reply.reasoning.strip()) == thinking and 'think>' not in reply.text


def skill_rows(url: str, sets: dict[str, list[Conversation]]) -> dict:
    targets = {s.name: s.target for s in evalsets.SKILLS + evalsets.LONG_SKILLS}
    rows = {}
    for name, conversations in sets.items():
        replies = [(chat_reply(post(url, '/v1/chat/completions', chat_body(c))), c) for c in conversations]
        good = sum(right(reply, c.turns[-1], c.thinking) for reply, c in replies)
        rows[name] = {'right': good, 'count': len(replies), 'stopped': sum(r.stopped for r, _ in replies), 'well formed': sum(well_formed(r, c.thinking) for r, c in replies), 'target': targets[name]}
        if any(c.turns[-1].calls for c in conversations):  # whatever the reasoning said
            rows[name]['right calls'] = sum(right(reply, c.turns[-1], False) for reply, c in replies)
        print(f'{name:32} {100 * good / max(1, len(replies)):6.1f} %  of {len(replies)}', flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--url', default='http://127.0.0.1:8000')
    parser.add_argument('--model', type=Path, required=True, help='the GGUF that the server runs; only its tokenizer is used, to measure lengths')
    parser.add_argument('--work', type=Path, required=True, help='folder with prose.json')
    parser.add_argument('--out', type=Path, required=True)
    parser.add_argument('--count', type=int, default=20, help='conversations a skill')
    parser.add_argument('--long-count', type=int, default=4)
    parser.add_argument('--skills', nargs='*', help='only these, by name; each draws the same questions as in a whole run')
    parser.add_argument('--captured', type=Path, help='captured agent requests, as tests/fixtures/clients holds them packed')
    parser.add_argument('--captured-count', type=int, default=4)
    args = parser.parse_args()
    began = time.monotonic()
    words, tokenizer = lexicon.load(args.work / 'prose.json'), gguf_file.read_tokenizer(args.model)
    sets = evalsets.build(evalsets.SKILLS, args.count, words, tokenizer) | evalsets.build(evalsets.LONG_SKILLS, args.long_count, words, tokenizer)
    asked = {name: conversations for name, conversations in sets.items() if not args.skills or name in args.skills}
    report = {'model': args.model.stem, 'skills': skill_rows(args.url, asked)}
    if args.captured:
        report['agents'] = agent_rows(args.url, args.captured, Draw(4242, TEST, words), args.captured_count)
    report['seconds'] = round(time.monotonic() - began, 1)
    args.out.write_text(json.dumps(report, indent=1) + '\n')


if __name__ == '__main__':
    main()
