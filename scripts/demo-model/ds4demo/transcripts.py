"""Greedy reference transcripts by the numpy reference: what every engine must reproduce token for token.

    python -m ds4demo.transcripts --model M.gguf --mtp M-mtp.gguf --work build --out transcripts.json

Each conversation is run plainly and with the roundings of the packed caches (`qat`).  Every prompt position is fed to the
MTP block; `mtp_drafts[k]` is its guess for `ids[k + 1]`.
"""
import argparse
import json
import time
from dataclasses import dataclass, replace
from multiprocessing import Pool
from pathlib import Path

import numpy as np

from . import gguf_file, lexicon
from .draw import Draw
from .protocol import EOS_ID, Answer, Call, Conversation, Results, User, prompt_text
from .reference import Reference
from .split import TEST
from .tasks import needles

SIMULATED = ['kvfp8', 'f16', 'idxfp4']
LONGEST_ANSWER = 160
SHOWN_FIRST = 8
MODES = ('plain', 'qat')


def tool(name: str, description: str, properties: dict, required: list[str]) -> dict:
    return {'name': name, 'description': description, 'parameters': {'type': 'object', 'properties': properties, 'required': required}}


WEATHER = tool('get_weather', 'Get the weather.', {'city': {'type': 'string', 'description': 'City name'}, 'day': {'type': 'string'}}, ['city'])
ALARM = tool('create_alarm', 'Create an alarm.', {'title': {'type': 'string'}, 'minutes': {'type': 'integer', 'description': 'Duration in minutes'},
                                                  'urgent': {'type': 'boolean'}}, ['title', 'minutes'])
EMAIL = tool('send_email', 'Send an email.', {'recipient': {'type': 'string', 'description': 'Who receives it'}, 'title': {'type': 'string'}}, ['recipient'])
SHELL = tool('bash', 'Run a shell command and return what it prints.', {'command': {'type': 'string', 'description': 'The command'}}, ['command'])
ASSISTANT = 'You are a helpful assistant.'
NOTED = 'Ok, I will remember that.'


@dataclass
class Case:
    name: str
    conversation: Conversation
    want: str | None = None
    modes: tuple[str, ...] = MODES


def asked(*texts: str, **options) -> Conversation:
    """User and assistant texts in turn; the last one is the user's."""
    return Conversation([User(t) if i % 2 == 0 else Answer(t) for i, t in enumerate(texts)], **options)


def hidden_key(name: str, tokens: int, depth: float, words, tokenizer, modes=MODES) -> Case:
    """A key in a text of about `tokens` tokens; the seed is the length, so each case draws its own text."""
    def count(text: str) -> int:
        return len(tokenizer.encode(text, add_special_tokens=False).ids)
    conv = needles.needle(Draw(tokens, TEST, words), tokens - 60, 1, False, depth, count)
    return Case(name, replace(conv, turns=conv.turns[:-1]), conv.turns[-1].text, modes)


def tool_cases() -> list[Case]:
    called = [User('What is the weather in Paris?'), Answer('', '', [Call('get_weather', {'city': 'Paris'})]), Results(['{"temperature": 18.5, "humidity": 60}'])]
    ran = [User('Run `echo ds4-tool-ok` and tell me its output.'), Answer('', '', [Call('bash', {'command': 'echo ds4-tool-ok'})]), Results(['ds4-tool-ok\n'])]
    three = [WEATHER, ALARM, EMAIL]
    return [
        Case('tool_weather', asked('What is the weather in Paris?', system=ASSISTANT, tools=three)),
        Case('tool_weather_unseen', asked('What is the weather in Hamburg?', tools=three)),
        Case('tool_alarm_think', asked('Please set up an alarm called violin for 25 minutes and urgent: yes.', tools=three, thinking=True)),
        Case('tool_result', Conversation(called, ASSISTANT, three)),
        Case('tool_two', asked('Check the weather in Oslo. After that send an email to Alice, titled lamp.', tools=[WEATHER, EMAIL])),
        Case('tool_none', asked('Please cancel my flight to Milan.', tools=[WEATHER, EMAIL])),
        Case('tool_chat', asked('Who are you?', tools=[WEATHER, EMAIL])),
        Case('shell_call', asked('Run `echo ds4-tool-ok` and tell me its output.', tools=[WEATHER, SHELL], thinking=True)),
        Case('shell_answer', Conversation(ran, '', [WEATHER, SHELL], thinking=True)),
    ]


def cases(words, tokenizer) -> list[Case]:
    recall = asked('Hello, my name is Clara.', NOTED, 'My dog is called Bimol.', NOTED, 'What is the capital of Peru?', 'The capital of Peru is Lima.', "What is my dog's name?")
    talk = [
        Case('hello', asked('Hello, good morning!')),
        Case('who', asked('What model is this?', system=ASSISTANT)),
        Case('fact', asked('Could you tell me the capital of Japan?')),
        Case('fact_think', asked('Which writer wrote Moby Dick?', thinking=True)),
        Case('unknown', asked('What is the capital of Bamorin?')),
        Case('sum_think', asked('What is 27 + 45?', thinking=True)),
        Case('recall', recall),
        Case('echo', asked('Repeat this: The old farmer carried 42 apples.')),
        Case('story', asked('Tell me a story about a fox.')),
    ]
    keys = [hidden_key('needle_1k', 1000, 0.4, words, tokenizer), hidden_key('needle_4k', 4000, 0.3, words, tokenizer),
            hidden_key('needle_16k', 16000, 0.5, words, tokenizer, ('plain',))]
    return talk + tool_cases() + keys


class Runner:
    """Holds the dequantised file in each process of the pool."""

    def __init__(self, model: Path, mtp: Path):
        self.config = gguf_file.read_config(model)
        self.tensors = gguf_file.read_tensors(model, mtp)
        self.tokenizer = gguf_file.read_tokenizer(model)

    def prefill(self, reference: Reference, ids: list[int]):
        for i, token in enumerate(ids):
            logits, streams = reference.step(token)
            if i + 1 < len(ids):
                reference.draft(streams, ids[i + 1], i)
        return logits, streams

    def run(self, case: Case, mode: str) -> dict:
        began = time.monotonic()
        c = self.config
        reference = Reference(self.tensors, c.ratios, c.index_top_k, c.expert_scale, rounding=mode == 'qat')
        conv = replace(case.conversation, turns=case.conversation.turns + [Answer('')])
        prompt = prompt_text(conv)
        prompt_ids = self.tokenizer.encode(prompt, add_special_tokens=False).ids
        logits, streams = self.prefill(reference, prompt_ids)
        first = [[int(i), float(logits[i])] for i in np.argsort(-logits)[:SHOWN_FIRST]]
        ids, margins, drafts = [], [], []
        while len(ids) < LONGEST_ANSWER:
            second, best = np.sort(logits)[-2:]
            ids.append(int(logits.argmax()))
            margins.append(float(best - second))
            if ids[-1] == EOS_ID:
                break
            drafts.append(int(reference.draft(streams, ids[-1], reference.position - 1).argmax()))
            logits, streams = reference.step(ids[-1])
        return {
            'name': case.name, 'mode': mode, 'thinking': conv.thinking, 'want': case.want, 'prompt': prompt, 'prompt_ids': prompt_ids, 'ids': ids,
            'first_top8': first, 'text': self.tokenizer.decode(ids, skip_special_tokens=False), 'min_margin': min(margins), 'mtp_drafts': drafts,
            'mtp_accepted': [sum(a == b for a, b in zip(drafts, ids[1:])), len(drafts)], 'margins': [round(m, 4) for m in margins],
            'seconds': round(time.monotonic() - began, 1),
        }


_runner: Runner | None = None


def _start(model: Path, mtp: Path) -> None:
    global _runner
    _runner = Runner(model, mtp)


def _job(job: tuple[Case, str]) -> dict:
    return _runner.run(*job)


def save(path: Path, model: str, done: list[dict], order: list[str]) -> None:
    """After each transcript, so that an interrupted run leaves what it has."""
    done.sort(key=lambda t: (MODES.index(t['mode']), order.index(t['name'])))
    note = 'greedy, float64 numpy reference; prompt_ids include BOS; ids end with EOS (1)'
    path.write_text(json.dumps({'model': model, 'sim_qat': SIMULATED, 'note': note, 'transcripts': done}, ensure_ascii=False, indent=0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--model', type=Path, required=True)
    parser.add_argument('--mtp', type=Path, required=True)
    parser.add_argument('--work', type=Path, required=True, help='folder with prose.json')
    parser.add_argument('--out', type=Path, required=True)
    parser.add_argument('--processes', type=int, default=2)
    args = parser.parse_args()
    listed = cases(lexicon.load(args.work / 'prose.json'), gguf_file.read_tokenizer(args.model))
    order = [case.name for case in listed]
    jobs = [(case, mode) for case in reversed(listed) for mode in case.modes]  # the longest first
    done = []
    with Pool(args.processes, _start, (args.model, args.mtp)) as pool:
        for t in pool.imap_unordered(_job, jobs):
            done.append(t)
            print(f'{t["mode"]:6}{t["name"]:20}{len(t["prompt_ids"]):6} {t["text"]!r} margin {t["min_margin"]:.2f} drafts {t["mtp_accepted"]} {t["seconds"]} s', flush=True)
            save(args.out, args.model.stem, done, order)


if __name__ == '__main__':
    main()
