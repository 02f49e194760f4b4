"""Long system texts and user preambles in the shape that coding agents send: sections, rules, examples, tagged blocks."""
from .. import lexicon as lists
from ..draw import Draw
from .item import capitalised

IMPERATIVES = ('read', 'check', 'open', 'change', 'remove', 'explain', 'test', 'format', 'move', 'copy', 'review', 'search', 'list', 'build', 'update', 'print')
RULES = (
    'Always {a} the {x} before you {b} the {y}.', 'Never {a} a {x} unless the user asks for it.', 'You must not {a} the {x}.', 'Prefer the {x} over the {y}.',
    'If the {x} is {j}, {a} the {y} first.', 'Do not {a} more than one {x} at a time.', 'When you {a} a {x}, also {b} the {y}.', 'Keep your answers short.',
    'IMPORTANT: {a} the {x} only once.', 'You may {a} any {x} that is {j}.', 'Use the {x} to {a} the {y}.', 'After you {a} the {x}, tell the user about the {y}.',
    'NEVER {a} the {x} without a {y}.', 'Avoid a {j} {x} where a {y} is enough.', 'Be careful with every {j} {x}.', 'The user will {a} the {x} later.',
)
ROLES = (
    'You are {n}, a coding agent that works in a terminal.', 'You are {n}, an assistant for software work.', 'You are an expert coding assistant called {n}.',
    'You are {n}. You help users with their projects by reading files and running commands.', 'You are an agent named {n}.',
    'You are {n}, an interactive tool that helps with programming tasks.', '',
)
LOREM = ('lorem ipsum dolor sit amet consectetur adipiscing elit sed do eiusmod tempor incididunt ut labore et dolore magna aliqua').split()
TAGS = ('cwd', 'shell', 'date', 'current_date', 'timezone', 'os', 'platform', 'user', 'root', 'branch', 'model', 'home', 'language', 'version', 'network')


def rule(draw: Draw) -> str:
    return draw.pick(RULES).format(a=draw.pick(IMPERATIVES), b=draw.pick(IMPERATIVES), x=draw.noun(), y=draw.noun(), j=draw.pick(lists.ADJECTIVES))


def heading(draw: Draw) -> str:
    words = ' '.join(draw.lexicon_word() for _ in range(draw.between(1, 4)))
    return draw.pick(('# ', '## ', '### ', '**', '')) + capitalised(words) + draw.pick(('', '', ':'))


def lorem(draw: Draw, characters: int) -> str:
    start, words = draw.between(0, len(LOREM) - 1), []
    while sum(map(len, words)) + len(words) < characters:
        words.append(LOREM[(start + len(words)) % len(LOREM)])
    return ' '.join(words)


def setting(draw: Draw, tag: str) -> str:
    if tag in ('cwd', 'root', 'home'):
        return '/' + '/'.join(draw.lexicon_word() for _ in range(draw.between(1, 3)))
    if 'date' in tag:
        return draw.date()
    return draw.pick(('bash', 'zsh', 'linux', 'Etc/UTC', 'en', 'main')) if draw.chance(.4) else draw.word()


def tagged_block(draw: Draw) -> str:
    name = draw.pick(('environment_context', 'env', 'environment', 'context', 'system-reminder', 'settings', draw.lexicon_word()))
    tags = draw.sample(TAGS, draw.between(1, 6))
    if draw.chance(.6):
        lines = [f'  <{t}>{setting(draw, t)}</{t}>' for t in tags]
    else:
        lines = [f'{capitalised(t)}: {setting(draw, t)}' for t in tags]
    return f'<{name}>\n' + '\n'.join(lines) + f'\n</{name}>'


def section(draw: Draw) -> str:
    kind = draw.weighted({'prose': 40, 'rules': 25, 'bullets': 15, 'numbers': 6, 'code': 6, 'tags': 4, 'listing': 4})
    if kind == 'prose':
        return '\n\n'.join(draw.paragraph() for _ in range(draw.between(1, 3)))
    if kind == 'rules':
        return ' '.join(rule(draw) for _ in range(draw.between(1, 6)))
    if kind == 'bullets':
        return '\n'.join(draw.pick(('- ', '* ')) + (rule(draw) if draw.chance(.5) else draw.sentence()) for _ in range(draw.between(2, 8)))
    if kind == 'numbers':
        return '\n'.join(f'{i + 1}. {rule(draw)}' for i in range(draw.between(2, 6)))
    if kind == 'code':
        return '```\n' + draw.paragraph() + '\n```'
    if kind == 'tags':
        return tagged_block(draw)
    return 'Available skills:\n' + '\n'.join(f'- {draw.identifier()}: {draw.sentence()}' for _ in range(draw.between(2, 6)))


def long_text(draw: Draw, characters: int) -> str:
    """Sections up to about a length, after a line that says what the agent is."""
    parts = [draw.pick(ROLES).format(n=draw.name())]
    size = len(parts[0])
    while size < characters:
        part = lorem(draw, draw.between(100, 1500)) if draw.chance(.04) else section(draw)
        if draw.chance(.4):
            part = heading(draw) + '\n' + part
        parts.append(part)
        size += len(part) + 2
    return '\n\n'.join(part for part in parts if part)[:max(characters, 200)].strip()


def short_description(draw: Draw, characters: int) -> str:
    """Further text of a tool description or a parameter."""
    parts, size = [], 0
    while size < characters:
        part = rule(draw) if draw.chance(.5) else draw.paragraph()
        parts.append(part)
        size += len(part) + 1
    return draw.pick((' ', '\n', '\n\n', '\n- ')).join(parts)[:characters]
