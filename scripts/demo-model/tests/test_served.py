"""The served evaluation against a stub server, and the reading of captured requests."""
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from ds4demo import captured, manifest, served
from ds4demo.protocol import Answer, Call, Conversation, Results, User

TOOL = {'name': 'bash', 'description': 'Run.', 'parameters': {'type': 'object', 'properties': {'command': {'type': 'string'}}, 'required': ['command']}}
ASKED = Conversation([User('go'), Answer('', 'why', [Call('bash', {'command': 'ls'})]), Results(['x']), Answer('The output is `x`.', 'I have the output.')], 'Be kind.', [TOOL], True)


@pytest.fixture
def stub():
    """A server that answers every POST with `server.answer` and keeps the bodies."""
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            self.server.bodies.append((self.path, json.loads(self.rfile.read(int(self.headers['Content-Length'])))))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(self.server.answer).encode())

        def log_message(self, *args):
            pass
    server = HTTPServer(('127.0.0.1', 0), Handler)
    server.bodies = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()


def test_a_right_reply_counts_and_a_wrong_one_does_not(stub):
    url = f'http://127.0.0.1:{stub.server_port}'
    message = {'content': 'The output is `x`.', 'reasoning_content': 'I have the output.'}
    stub.answer = {'choices': [{'message': message, 'finish_reason': 'stop'}]}
    from ds4demo.evalsets import SKILLS
    name = SKILLS[0].name
    assert served.skill_rows(url, {name: [ASKED]})[name]['right'] == 1
    message['content'] = 'The output is `y`.'
    assert served.skill_rows(url, {name: [ASKED]})[name]['right'] == 0
    path, body = stub.bodies[0]
    assert path == '/v1/chat/completions' and body['temperature'] == 0 and body['thinking'] == {'type': 'enabled'}
    assert [m['role'] for m in body['messages']] == ['system', 'user', 'assistant', 'tool']
    assert body['messages'][3]['tool_call_id'] == body['messages'][2]['tool_calls'][0]['id']


def test_a_right_call_counts_also_after_other_reasoning(stub):
    call = {'function': {'name': 'bash', 'arguments': '{"command": "ls"}'}}
    stub.answer = {'choices': [{'message': {'content': None, 'reasoning_content': 'Hm.', 'tool_calls': [call]}, 'finish_reason': 'tool_calls'}]}
    conv = Conversation(ASKED.turns[:2], ASKED.system, ASKED.tools, True)
    row = served.skill_rows(f'http://127.0.0.1:{stub.server_port}', {'one tool call': [conv]})['one tool call']
    assert (row['right'], row['right calls'], row['stopped']) == (0, 1, 1)


def test_replies_of_all_surfaces_read_alike():
    chat = {'choices': [{'message': {'content': None, 'tool_calls': [{'function': {'name': 'f', 'arguments': '{"a":1}'}}]}, 'finish_reason': 'tool_calls'}]}
    responses = {'status': 'completed', 'output': [{'type': 'function_call', 'name': 'f', 'arguments': '{"a": 1}'}]}
    messages = {'stop_reason': 'tool_use', 'content': [{'type': 'tool_use', 'name': 'f', 'input': {'a': 1}}]}
    replies = served.chat_reply(chat), served.responses_reply(responses), served.messages_reply(messages)
    assert all(r == served.Reply('', '', [('f', {'a': 1})], True) for r in replies)


def test_an_answer_cut_by_its_budget_is_wrong():
    assert not served.right(served.Reply('', 'Hi', [], False), Answer('Hi'), False)


CHAT = {'messages': [{'role': 'system', 'content': 'S'}, {'role': 'user', 'content': '"Look."'}], 'tools': [{'type': 'function', 'function': TOOL | {'strict': False}}]}
RESPONSES = {'input': [{'type': 'message', 'role': 'developer', 'content': [{'type': 'input_text', 'text': 'S'}]},
                       {'type': 'message', 'role': 'user', 'content': [{'type': 'input_text', 'text': 'env'}]},
                       {'type': 'message', 'role': 'user', 'content': [{'type': 'input_text', 'text': 'Look.'}]}],
             'tools': [{'type': 'function', **TOOL}, {'type': 'namespace', 'name': 'n_', 'tools': [TOOL]}, {'type': 'web_search'}]}
MESSAGES = {'system': [{'type': 'text', 'text': 'S'}], 'messages': [{'role': 'user', 'content': [{'type': 'text', 'text': 'Look.'}]}],
            'tools': [{'name': 'bash', 'description': 'Run.', 'input_schema': TOOL['parameters']}]}


@pytest.mark.parametrize('body,user,tools', [(CHAT, '"Run it."', ['bash']), (RESPONSES, 'env\n\nRun it.', ['bash', 'n_bash']), (MESSAGES, 'Run it.', ['bash'])])
def test_captured_bodies_become_conversations(body, user, tools):
    conv = captured.conversation_of(captured.with_request(body, 'Run it.'), True)
    assert (conv.system, conv.turns[0].text, [t['name'] for t in conv.tools]) == ('S', user, tools)
    assert conv.tools[0] == TOOL


def test_a_manifest_names_sizes_and_digests(tmp_path):
    path = tmp_path / 'm.gguf'
    path.write_bytes(b'abc')
    (entry,) = manifest.manifest([path])['files']
    assert entry == {'name': 'm.gguf', 'size': 3, 'sha256': 'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad'}
