"""Tools: their names, descriptions and JSON schemas, and the words a user has for them."""
from dataclasses import dataclass

from ..draw import Draw
from ..split import TRAIN

# verb of the tool's name: what a user may say
VERBS = {
    'get': ('get', 'show me', 'fetch', 'look up', 'find', 'check', 'give me', 'retrieve'), 'create': ('create', 'make', 'add', 'set up'),
    'delete': ('delete', 'remove', 'erase', 'get rid of'), 'send': ('send', 'submit', 'mail', 'dispatch'),
    'update': ('update', 'change', 'modify', 'edit', 'adjust'), 'book': ('book', 'reserve'), 'play': ('play', 'put on'),
    'convert': ('convert', 'transform'), 'open': ('open', 'launch'), 'close': ('close', 'shut'), 'start': ('start', 'begin', 'run'),
    'stop': ('stop', 'end', 'halt'), 'save': ('save', 'store', 'keep'), 'print': ('print', 'print out'), 'share': ('share', 'post', 'publish'),
    'count': ('count', 'tally'), 'list': ('list', 'show all', 'display'), 'order': ('order', 'buy', 'purchase'),
    'cancel': ('cancel', 'call off'), 'schedule': ('schedule', 'plan'), 'translate': ('translate',), 'lock': ('lock', 'secure'),
    'measure': ('measure', 'gauge'), 'move': ('move', 'shift', 'transfer'), 'search': ('search', 'look for'), 'rename': ('rename', 'give a new name to'),
}


@dataclass(frozen=True)
class Parameter:
    """`natural` holds phrases that name the value without naming the parameter; `kind` says which values it takes."""

    name: str
    type: str
    description: str
    kind: str
    natural: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        spaced = self.name.replace('_', ' ').replace('-', ' ')
        return ''.join(f' {c.lower()}' if c.isupper() else c for c in spaced)


def p(name, type_, description, kind, *natural) -> Parameter:
    return Parameter(name, type_, description, kind, natural)


KNOWN = (
    p('city', 'string', 'City name', 'city', 'in {v}', 'for {v}', 'near {v}'), p('person', 'string', 'Name of the person', 'name', 'for {v}', 'with {v}'),
    p('title', 'string', 'Title', 'phrase', 'called {v}', 'titled {v}', 'named {v}'), p('day', 'string', 'Day of the week', 'day', 'on {v}'),
    p('color', 'string', 'Color to use', 'word', 'in {v}'), p('language', 'string', 'Target language', 'word'),
    p('query', 'string', 'Search text', 'phrase', 'about {v}'), p('category', 'string', 'Category name', 'word'),
    p('location', 'string', 'Where', 'phrase', 'at {v}', 'in {v}'), p('recipient', 'string', 'Who receives it', 'name', 'to {v}'),
    p('format', 'string', 'Output format', 'word'), p('label', 'string', 'Label text', 'phrase', 'labeled {v}'),
    p('source', 'string', 'Where it comes from', 'phrase', 'from {v}'), p('target', 'string', 'Where it goes', 'phrase', 'to {v}'),
    p('owner', 'string', 'Owner name', 'name', 'owned by {v}'), p('unit', 'string', 'Unit to use', 'word'), p('topic', 'string', 'Topic', 'phrase', 'about {v}'),
    p('host', 'string', 'Host name', 'word'), p('email', 'string', 'Email address', 'email', 'to {v}', 'for {v}'),
    p('path', 'string', 'File path', 'path', 'at {v}', 'in {v}'), p('file', 'string', 'File name', 'path', 'from {v}'),
    p('date', 'string', 'Date', 'date', 'on {v}', 'for {v}'), p('time', 'string', 'Time of day', 'time', 'at {v}'),
    p('url', 'string', 'Web address', 'url', 'from {v}'), p('code', 'string', 'Code', 'code'), p('message', 'string', 'Message text', 'phrase', 'saying {v}'),
    p('name', 'string', 'Name', 'phrase', 'called {v}', 'named {v}'), p('id', 'string', 'Identifier', 'code'), p('country', 'string', 'Country', 'name', 'in {v}'),
    p('count', 'integer', 'How many', 'integer'), p('limit', 'integer', 'Maximum number of results', 'integer'),
    p('amount', 'number', 'Amount', 'number'), p('price', 'number', 'Price', 'number', 'for {v}'),
    p('minutes', 'integer', 'Duration in minutes', 'integer', 'for {v} minutes', 'lasting {v} minutes'),
    p('hours', 'integer', 'Duration in hours', 'integer', 'for {v} hours'), p('year', 'integer', 'Year', 'year', 'from the year {v}'),
    p('page', 'integer', 'Page number', 'integer', 'on page {v}'), p('quantity', 'integer', 'Quantity', 'integer'),
    p('level', 'integer', 'Level', 'integer', 'at level {v}'), p('width', 'number', 'Width', 'number', '{v} wide'),
    p('weight', 'number', 'Weight', 'number'), p('size', 'integer', 'Size', 'integer'), p('priority', 'integer', 'Priority', 'integer', 'with priority {v}'),
    p('urgent', 'boolean', 'Whether it is urgent', 'boolean'), p('public', 'boolean', 'Whether it is public', 'boolean'),
    p('notify', 'boolean', 'Whether to notify', 'boolean'), p('verbose', 'boolean', 'Whether to be verbose', 'boolean'),
    p('active', 'boolean', 'Whether it is active', 'boolean'), p('private', 'boolean', 'Whether it is private', 'boolean'),
    p('silent', 'boolean', 'Whether to be silent', 'boolean'),
)
KINDS_OF_TYPE = {
    'string': ('phrase', 'phrase', 'word', 'name', 'email', 'path', 'date', 'code', 'url', 'time'), 'integer': ('integer',), 'number': ('number',),
    'boolean': ('boolean',),
}


@dataclass(frozen=True)
class Tool:
    name: str
    verb: str
    object: str
    parameters: tuple[Parameter, ...]
    required: tuple[str, ...]
    enums: dict
    schema: dict


def free_parameter(draw: Draw) -> Parameter:
    name, type_ = draw.identifier(), draw.pick(('string', 'string', 'string', 'integer', 'number', 'boolean'))
    words = Parameter(name, type_, '', '').label
    description = draw.pick((f'The {words}', f'{words[:1].upper()}{words[1:]}', f'Which {words} to use', f'The {words} of the request'))
    return Parameter(name, type_, description, draw.pick(KINDS_OF_TYPE[type_]))


def parameters(draw: Draw) -> tuple[Parameter, ...]:
    if draw.chance(.05):
        return ()
    chosen = {}
    for _ in range(draw.pick((1, 1, 2, 2, 2, 3, 3, 4))):
        parameter = draw.pick(KNOWN) if draw.chance(.5) else free_parameter(draw)
        chosen.setdefault(parameter.name, parameter)
    return tuple(chosen.values())


def named(draw: Draw, verb: str, thing: str) -> str:
    words = thing.split(' ')
    snake, camel = '_'.join(words), ''.join(w.capitalize() for w in words)
    if draw.split == TRAIN and draw.chance(.4):  # the spellings that are mistaken for each other
        return draw.pick((f'{verb}{camel}', f'{verb.capitalize()}{camel}', f'{verb}-{snake}', f'{snake}-{verb}', f'{camel}{verb.capitalize()}', f'{snake}_{verb}'))
    return draw.pick((
        f'{verb}_{snake}', f'{verb}_{snake}', f'{verb}_{snake}', f'{verb}{camel}', f'{snake}_{verb}', f'{verb.capitalize()}{camel}',
        f'{verb}-{snake}', f'{draw.pick(("my", "app", "home", "web", "user"))}_{verb}_{snake}',
    ))


def description(draw: Draw, verb: str, thing: str) -> str:
    said = draw.pick(VERBS[verb])
    text = draw.pick((
        f'{said.capitalize()} the {thing}.', f'{said.capitalize()} a {thing}.', f'This tool can {said} the {thing}.', f'{verb.capitalize()} {thing} by parameters.',
        f'Use it to {verb} the {thing}.', f'{verb.capitalize()}s a {thing}', f'A tool to {said} a {thing}.',
    ))
    return text + (' ' + draw.paragraph()[:draw.between(30, 200)] if draw.chance(.08) else '')


def property_schema(draw: Draw, parameter: Parameter, enum: list | None) -> dict:
    schema = {'type': parameter.type}
    if draw.chance(.6):
        schema['description'] = parameter.description
        if draw.chance(.2):
            schema = dict(reversed(schema.items()))
    if enum:
        schema['enum'] = enum
    if parameter.type == 'boolean' and draw.chance(.2):
        schema['default'] = False
    return schema


def tool(draw: Draw, verb: str, thing: str, odd_name: bool = False) -> Tool:
    """A tool whose schema follows one of the shapes that clients send."""
    params = parameters(draw)
    enums = {q.name: list(dict.fromkeys(draw.word() for _ in range(draw.between(2, 4)))) for q in params if q.type == 'string' and draw.chance(.08)}
    required = tuple(q.name for q in params if draw.chance(.75)) or tuple(q.name for q in params[:1])
    name = draw.identifier() if odd_name else named(draw, verb, thing)
    body = {'type': 'object', 'properties': {q.name: property_schema(draw, q, enums.get(q.name)) for q in params}, 'required': list(required)}
    if draw.chance(.1):
        body['additionalProperties'] = False
    if draw.chance(.05):
        body = {'$schema': 'https://json-schema.org/draft/2020-12/schema', **body}
    schema = {'name': name, 'description': description(draw, verb, thing), 'parameters': body}
    return Tool(name, verb, thing, params, required, enums, schema)


def thing(draw: Draw) -> str:
    return draw.noun() if draw.chance(.8) else f'{draw.word()} {draw.noun()}' if draw.chance(.7) else draw.made_up()


def alike(verb: str, other: str) -> bool:
    """Whether some word of a user may mean either verb."""
    return verb == other or bool(set(VERBS[verb]) & set(VERBS[other])) or {verb, other} <= {'get', 'list', 'search', 'print', 'open'} or (
        {verb, other} <= {'update', 'convert', 'move', 'rename'} or {verb, other} <= {'send', 'share', 'move'} or {verb, other} <= {'book', 'schedule', 'order', 'create'}
        or {verb, other} <= {'delete', 'cancel', 'stop', 'close', 'lock'} or {verb, other} <= {'start', 'open', 'play'} or {verb, other} <= {'count', 'measure'})


def toolset(draw: Draw, count: int) -> list[Tool]:
    """Tools that a request can tell apart: different objects, or different verbs on one object."""
    odd_names = draw.chance(.25 if draw.split == TRAIN else .1)
    tools, names = [], set()
    while len(tools) < count:
        verb, what = draw.pick(list(VERBS)), thing(draw)
        if tools and draw.chance(.15):
            what = tools[0].object
        if any(t.object == what and alike(verb, t.verb) for t in tools):
            continue
        candidate = tool(draw, verb, what, odd_names)
        if candidate.name in names:
            continue
        names.add(candidate.name)
        tools.append(candidate)
    return tools
