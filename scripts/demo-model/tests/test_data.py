"""What the generators promise."""
import re

import pytest

from ds4demo import evalsets, mixture
from ds4demo.protocol import Answer, Results, render, text_of
from ds4demo.split import TEST, TRAIN, templates, word_split
from ds4demo.tasks import agents, chat, facts, needles, requests, tools
from ds4demo.tokenizer import encode


def test_the_same_seed_gives_the_same_conversations(draw):
    first, second = draw(seed=5), draw(seed=5)
    for stage in ('short', 'long'):
        assert [text_of(mixture.conversation_of(first, stage)) for _ in range(20)] == [text_of(mixture.conversation_of(second, stage)) for _ in range(20)]


def test_no_template_is_in_both_splits():
    for forms in (requests.VALUE_FORMS, requests.JOIN_TWO, agents.RUN_FORMS, needles.QUESTIONS, *facts.ALL_FORMS.values(), *chat.QUESTIONS):
        held, trained = set(templates(forms, TEST)), set(templates(forms, TRAIN))
        assert held and trained and not held & trained


def test_phrasings_for_training_only_are_none_that_evaluation_holds_out():
    pairs = [(forms, more) for (forms, *_), more in zip(chat.MEMORIES, chat.MORE_STATEMENTS)]
    for forms, more in pairs + [(requests.YES_FORMS, requests.MORE_YES), (requests.NO_FORMS, requests.MORE_NO)]:
        assert not set(more) & set(templates(forms, TEST))


def test_phrasings_for_training_only_never_reach_an_evaluation(draw):
    own, more = ('a', 'b', 'c'), ('d',)
    assert {draw(TEST).form(own, more) for _ in range(50)} <= set(own)
    source = draw(TRAIN)
    assert 'd' in {source.form(own, more) for _ in range(100)}


def test_drawn_words_belong_to_their_split(draw):
    for split in (TRAIN, TEST):
        source = draw(split)
        assert all(word_split(source.word()) == split for _ in range(300))


def test_sixty_facts_are_listed():
    assert len(facts.FACTS) == 60


def test_segments_encode_as_the_whole_text_does(draw, small_tokenizer):
    source = draw()
    for _ in range(30):
        conv = mixture.conversation_of(source, 'short')
        whole = small_tokenizer.encode(text_of(conv), add_special_tokens=False).ids
        assert encode(small_tokenizer, conv).ids == whole


def test_every_answer_ends_with_the_end_token(draw, small_tokenizer):
    source = draw()
    for _ in range(30):
        encoded = encode(small_tokenizer, mixture.conversation_of(source, 'short'))
        assert encoded.ids[encoded.last[1] - 1] == 1
        assert encoded.last[1] == len(encoded.ids)


def test_thinking_answers_close_their_reasoning_once(draw):
    source = draw()
    for _ in range(60):
        conv = mixture.conversation_of(source, 'short')
        answer = render(conv)[-1].text
        assert answer.count('</think>') == (1 if conv.thinking else 0)


def test_call_arguments_are_said_in_the_request_and_known_to_the_schema(draw):
    source = draw()
    for seed in range(40):
        conv = tools.tool_conversation(source, 'one', False, mixture.small_talk)
        request, answer = conv.turns[:2]
        (call,) = answer.calls
        schema = next(t for t in conv.tools if t['name'] == call.name)['parameters']
        assert set(schema['required']) <= set(call.arguments) <= set(schema['properties'])
        assert all(value in request.text for value in call.arguments.values() if isinstance(value, str))


def test_a_natural_phrase_names_one_parameter_only(draw):
    source = draw()
    for _ in range(200):
        from ds4demo.tasks.schemas import toolset
        tool = toolset(source, 1)[0]
        phrases = [f for p in tool.parameters for f in requests.natural_forms(p, tool)]
        assert len(phrases) == len(set(phrases))


def test_a_needle_has_its_key_in_the_text_and_in_the_answer(draw):
    for depth in (0.0, 0.5, 1.0):
        conv = needles.needle(draw(), 2000, 1, False, depth)
        key = re.search(r'\d{6}', conv.turns[-1].text).group()
        assert key in conv.turns[0].text


def test_an_agent_answer_repeats_what_the_command_printed(draw):
    source = draw()
    for _ in range(40):
        conv = agents.agent_conversation(source, 1500, True, mixture.small_talk)
        for before, after in zip(conv.turns, conv.turns[1:]):
            if isinstance(before, Results) and len(before.texts) == 1 and isinstance(after, Answer) and '`' in after.text:
                assert after.text.removeprefix('The output is `').removesuffix('`.').splitlines()[0].strip('`') in before.texts[0] or '\n' in after.text or '\\' in before.texts[0]


@pytest.mark.parametrize('skill', evalsets.SKILLS, ids=lambda s: s.name)
def test_evaluation_sets_do_not_change_between_runs(skill, words, small_tokenizer):
    first, second = (evalsets.build((skill,), 2, words, small_tokenizer)[skill.name] for _ in range(2))
    assert [text_of(c) for c in first] == [text_of(c) for c in second]
