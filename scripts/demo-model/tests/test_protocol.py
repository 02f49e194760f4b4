"""The prompt text, written out."""
import json

from ds4demo.protocol import Answer, Call, Conversation, Results, User, render, text_of

B, E, U, A, D = '<｜begin▁of▁sentence｜>', '<｜end▁of▁sentence｜>', '<｜User｜>', '<｜Assistant｜>', '｜DSML｜'
TOOL = {'name': 'bash', 'description': 'Run.', 'parameters': {'type': 'object', 'properties': {}}}


def test_a_plain_turn():
    conv = Conversation([User('Hi'), Answer('Hello.', 'unused')], system='Be kind.')
    assert text_of(conv) == f'{B}Be kind.{U}Hi{A}</think>Hello.{E}'


def test_reasoning_is_kept_in_the_last_turn_only_without_tools():
    conv = Conversation([User('a'), Answer('b', 'why'), User('c'), Answer('d', 'because')], thinking=True)
    assert text_of(conv) == f'{B}{U}a{A}</think>b{E}{U}c{A}<think>because</think>d{E}'


def test_reasoning_is_kept_in_every_turn_with_tools():
    conv = Conversation([User('a'), Answer('b', 'why'), User('c'), Answer('d', 'because')], thinking=True, tools=[TOOL])
    assert text_of(conv).endswith(f'{U}a{A}<think>why</think>b{E}{U}c{A}<think>because</think>d{E}')


def test_calls_and_results():
    turns = [User('go'), Answer('', '', [Call('f', {'s': 'x y', 'n': 2, 'b': True}), Call('g', {})]), Results(['1', '2']), Answer('Done.')]
    body = (f'\n\n<{D}tool_calls>\n<{D}invoke name="f">\n<{D}parameter name="s" string="true">x y</{D}parameter>\n<{D}parameter name="n" string="false">2</{D}parameter>\n'
            f'<{D}parameter name="b" string="false">true</{D}parameter>\n</{D}invoke>\n<{D}invoke name="g">\n</{D}invoke>\n</{D}tool_calls>')
    text = text_of(Conversation(turns, tools=[TOOL]))
    assert text.endswith(f'{U}go{A}</think>{body}{E}{U}<tool_result>1</tool_result>\n\n<tool_result>2</tool_result>{A}</think>Done.{E}')
    assert json.dumps(TOOL) + '\n\nYou MUST strictly' in text


def test_answers_are_the_marked_segments():
    conv = Conversation([User('a'), Answer('b'), User('c'), Answer('d')])
    assert [s.text for s in render(conv) if s.is_answer] == [f'b{E}', f'd{E}']
