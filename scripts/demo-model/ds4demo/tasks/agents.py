"""Requests of coding agents: run a harmless command and say what it printed, read or write a file, or just talk."""
import json

from ..draw import Draw
from ..protocol import EFFORT_A, EFFORT_B, Answer, Call, Conversation, Results, User
from ..split import TRAIN
from . import agent_tools as tools
from .agent_text import long_text, lorem, tagged_block
from .tools import no_tool_needed

RUN_FORMS = (
    'Run {c} and tell me its output.', 'Run {c} and tell me its output', 'Run: {c}, then tell me its output', 'Please run {c} and tell me what it prints.',
    'Execute {c} and report the output.', 'Run the command {c} and show me the output.', 'Use the shell to run {c} and tell me the result.',
    'Run {c}, then tell me the output.', 'Can you run {c} and tell me its output?', 'Run this command and tell me its output: {c}',
    'Execute this: {c}\nThen tell me what it printed.', 'run {c} and tell me its output', 'I want you to run {c} and report its output.',
    'Call the shell with {c} and repeat the output.', 'Please execute {c} and say what the output is.', 'Start {c} and give me its output.',
    'Run {c}. What does it print?', 'What does {c} print? Run it.', 'Try {c} and tell me what comes out.', 'Run the shell command {c} and tell me its output.',
    'Could you run {c} and tell me the output?', 'Run {c} for me and tell me what it says.', 'Please run the following and tell me its output: {c}',
    'Run {c} in the terminal and report what it prints.', 'Type {c} into the shell and tell me what you see.', 'Run {c}', 'Please run {c}.', 'Execute {c}.',
)
TWO_FORMS = (
    'Run {c} and {d} and tell me their outputs.', 'Run {c} and then {d}, then tell me the outputs.', 'First run {c}, then {d}, and report both outputs.',
    'Execute {c} and {d}.', 'Please run both {c} and {d} and tell me what they print.', 'Run these two commands: {c} and {d}. Tell me the outputs.',
    'Run {c}. Also run {d}. What do they print?',
)
READ_FORMS = (
    'Read the file {f}.', 'Show me {f}', 'Open {f} and read it.', 'What is in {f}?', 'Please read {f}.', 'Read {f} for me.', 'Have a look at the file {f}.',
    'Can you read {f}?', 'Take a look at {f}.', 'Show the contents of {f}.',
)
WRITE_FORMS = (
    'Write "{t}" to {f}.', 'Create the file {f} with the text "{t}".', 'Save "{t}" in {f}.', 'Put the text "{t}" into {f}.', 'Please write "{t}" into the file {f}.',
    'Make a file {f} that says "{t}".',
)
MARKS = ('`{c}`', '`{c}`', '`{c}`', '`{c}`', '"{c}"', '{c}', "'{c}'")


def printable(draw: Draw) -> str:
    """One line of output."""
    kind = draw.rng.random()
    if kind < .35:
        return '-'.join(draw.word() for _ in range(draw.between(1, 4)))
    if kind < .8:
        return draw.text()
    return draw.sentence() if kind < .9 else str(draw.between(0, 99999))


def echo(draw: Draw) -> tuple[str, str]:
    said = printable(draw)
    kind = draw.rng.random()
    if kind < .45 or '"' in said or "'" in said:
        return f'echo {said}', said
    return (f'echo "{said}"' if kind < .75 else f"echo '{said}'"), said


def other_command(draw: Draw) -> tuple[str, str]:
    word, path = draw.word(), draw.path()
    command = draw.pick((
        'ls', 'ls -la', 'pwd', 'date', 'whoami', 'uname -a', 'git status', 'git log --oneline', f'ls {path}', f'cat {path}', f'wc -l {path}', f'head -n {draw.between(1, 20)} {path}',
        f'grep {word} {path}', f'find . -name {word}', f'python3 {path}', f'stat {path}', f'du -sh {path}', f'which {word}', f'printf {word}', f'make {word}', f'{word} --version',
        f'cargo test {word}', f'git show {word}', f'{word} {draw.word()}', f'expr {draw.between(1, 99)} + {draw.between(1, 99)}', f'basename {path}', f'sort {path} | uniq',
    ))
    if draw.chance(.75):
        return command, printable(draw)
    return command, '\n'.join(draw.path() if draw.chance(.4) else printable(draw) for _ in range(draw.between(2, 5)))


def shell_command(draw: Draw) -> tuple[str, str]:
    """(command line, what it prints)"""
    return echo(draw) if draw.chance(.6) else other_command(draw)


def wrapped_output(draw: Draw, output: str) -> str:
    """The output as a tool hands it back: bare, under a header, in tags or in JSON."""
    kind = draw.rng.random()
    if kind < .45:
        return output + draw.pick(('\n', '\n', ''))
    if kind < .8:
        header = draw.sample((f'Chunk ID: {draw.digits(6, 6)}', f'Wall time: {draw.rng.random():.4f} seconds', 'Process exited with code 0', 'Exit code: 0',
                              f'Original token count: {draw.between(1, 90)}', f'Session: {draw.code()}', f'Duration: {draw.between(1, 900)} ms', 'Status: ok'), draw.between(1, 4))
        return '\n'.join(header) + draw.pick(('\nOutput:\n', '\nOutput:\n', '\nstdout:\n', '\n\n')) + output + '\n'
    if kind < .9:
        tag = draw.pick(('output', 'stdout', 'result', 'bash_output'))
        return f'<{tag}>\n{output}\n</{tag}>' if draw.chance(.5) else f'<{tag}>{output}</{tag}>'
    return json.dumps({draw.pick(('output', 'stdout', 'result')): output, draw.pick(('exit_code', 'code', 'status')): 0}, ensure_ascii=False)


def said_output(output: str) -> str:
    return f'The output is:\n```\n{output}\n```' if '\n' in output else f'The output is `{output}`.'


def run_turns(draw: Draw, shell: tools.AgentTool, ask) -> list:
    """`ask` puts the request in a user turn."""
    argument = shell.arguments[0]
    if draw.chance(.1):
        (c, out_c), (d, out_d) = shell_command(draw), echo(draw)
        text = draw.form(TWO_FORMS).format(c=f'`{c}`', d=f'`{d}`')
        calls = [Call(shell.name, {argument: c}), Call(shell.name, {argument: d})]
        why, outputs = f'The user wants two commands. I call {shell.name} twice.', [out_c, out_d]
    else:
        c, out = shell_command(draw)
        form = draw.form(RUN_FORMS)
        text = form.format(c=draw.pick(MARKS).format(c=c)) if not (form.startswith('Run:') and draw.chance(.5)) else form.format(c=c)
        calls, why, outputs = [Call(shell.name, {argument: c})], f'The user wants to run a command. I call {shell.name}.', [out]
    if draw.chance(.08):
        text = f'"{text}"'
    turns = [ask(text), Answer('', why, calls)]
    if draw.chance(.9 if draw.split == TRAIN else .75):
        answer = said_output(outputs[0]) if len(outputs) == 1 else ' '.join(said_output(o) for o in outputs)
        turns += [Results([wrapped_output(draw, o) for o in outputs]), Answer(answer, 'I have the output.')]
    return turns


def file_turns(draw: Draw, tool: tools.AgentTool, write: bool, ask) -> list:
    path = draw.path()
    if not write:
        text, args = draw.form(READ_FORMS).format(f=f'`{path}`' if draw.chance(.3) else path), {tool.arguments[0]: path}
    else:
        said = draw.phrase()
        text = draw.form(WRITE_FORMS).format(t=said, f=path)
        args = {name: path if name in tools.PATHS else said for name in tool.arguments}
    why = f'The user wants to {"write" if write else "read"} a file. I call {tool.name}.'
    return [ask(text), Answer('', why, [Call(tool.name, args)])]


def trailing(draw: Draw, characters: int) -> list[str]:
    """What some clients put behind the user's words."""
    length = draw.between(100, max(101, characters))
    return [draw.pick((lorem(draw, length), long_text(draw, length), tagged_block(draw)))]


def agent_conversation(draw: Draw, characters: int, thinking: bool, other) -> Conversation:
    """About `characters` of system text and tool schemas, then one to three tasks.  `other(draw)` gives small talk."""
    share = draw.rng.uniform(.2, .8)
    count = draw.pick((1, 2, 4, 6, 8, 12, 20))
    length = max(20, min(4000, int(characters * (1 - share) / count * 1.2)))
    (shell, read, write), schemas = tools.offered(draw, [tools.SHELL, tools.READ, tools.WRITE], max(3, count), length)
    if count <= 2:
        schemas = [s for s in schemas if s['name'] == shell.name]
    system = long_text(draw, max(int(characters * share), characters - len(json.dumps(schemas))))
    preamble = [tagged_block(draw) if draw.chance(.6) else long_text(draw, 400)] if draw.chance(.5) else []
    if draw.chance(.2):  # some servers put an application's instructions in the first user turn
        preamble, system = [system] + preamble, ''

    after = trailing(draw, characters // 3) if draw.split == TRAIN and draw.chance(.15) else []

    def ask(text: str) -> User:
        whole = '\n\n'.join(preamble + [text] + after)
        preamble.clear()
        after.clear()
        return User(whole)

    turns = []
    for _ in range(draw.pick((1, 2, 3, 4, 6)) if draw.split == TRAIN else 1):
        kind = draw.weighted({'run': 76, 'read': 7, 'write': 5, 'talk': 12})
        if kind == 'talk' or (kind != 'run' and count <= 2):
            question, answer = no_tool_needed(other(draw))
            turns += [ask(question.text), answer]
        elif kind == 'run':
            turns += run_turns(draw, shell, ask)
        else:
            turns += file_turns(draw, write if kind == 'write' else read, kind == 'write', ask)
        if isinstance(turns[-1], Answer) and turns[-1].calls:
            break
    effort = draw.pick((EFFORT_A, EFFORT_B)) if draw.chance(.1) else ''
    return Conversation(turns, system, schemas, thinking, effort)
