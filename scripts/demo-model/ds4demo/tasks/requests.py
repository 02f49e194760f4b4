"""What a user says to have a tool called, with the arguments that follow from it."""
import json

from .. import lexicon as lists
from ..draw import Draw
from ..split import combined, filled
from .item import ASKING, CLOSERS, capitalised
from .schemas import VERBS, Parameter, Tool

VALUE_FORMS = combined(
    ('', 'with ', 'with the ', 'where the ', 'the ', 'and the ', 'having ', 'having the ', 'use ', 'set ', 'set the ', 'let the ', 'whose ', 'for the ', 'and ', 'make the '),
    ('{l} {v}', '{l}: {v}', '{l} = {v}', '{l} is {v}', '{l} set to {v}', '{l} to {v}', '{l} as {v}', '{l} of {v}', '{l} being {v}', '{l} should be {v}', '{l}={v}', '{l} equal to {v}'),
) + combined(
    ('', 'with ', 'using ', 'use ', 'take ', 'and ', 'put ', 'choose ', 'having ', 'give ', 'pick '),
    ('{v} as the {l}', '{v} as {l}', '{v} for the {l}', '{v} for {l}', '{v} as its {l}', '{v} as a {l}'),
) + ('with a {l} of {v}', 'let the {l} be {v}', 'and set the {l} to {v}', 'its {l} must be {v}', 'the right {l} is {v}')
SWITCH_FORMS = (
    '{l}: {b}', '{l} = {b}', '{l}={b}', 'with {l} {b}', 'with {l} set to {b}', 'set {l} to {b}', 'set the {l} to {b}', '{l} should be {b}', '{l} is {b}', 'make {l} {b}',
    'let {l} be {b}', 'with {l} as {b}', 'where {l} is {b}', 'with {l} being {b}', 'and {l} {b}', '{l} must be {b}', 'use {b} for {l}', 'with the {l} {b}',
)
YES_FORMS = tuple(f.replace('{b}', b) for f in SWITCH_FORMS for b in ('true', 'yes', 'on')) + (
    'turn {l} on', 'turn on {l}', 'with {l} on', 'with {l} enabled', 'and enable {l}', 'enable {l}', 'switch {l} on', 'switch on {l}', 'activate {l}')
NO_FORMS = tuple(f.replace('{b}', b) for f in SWITCH_FORMS for b in ('false', 'no', 'off')) + (
    'turn {l} off', 'turn off {l}', 'with {l} off', 'with {l} disabled', 'and disable {l}', 'disable {l}', 'switch {l} off', 'switch off {l}', 'deactivate {l}')
# training only: more words for on and off, so that one never met is still understood by its parts
MORE_YES = ('with {l} activated', '{l} activated', 'have {l} activated', '{l} active', 'keep {l} active', 'with {l} switched on', 'with {l} turned on', '{l} enabled',
            'make {l} active', 'have {l} on', 'with {l}', 'and activate {l}', 'allow {l}', 'keep {l} on')
MORE_NO = ('with {l} deactivated', '{l} deactivated', 'have {l} deactivated', '{l} inactive', 'keep {l} inactive', 'with {l} switched off', 'with {l} turned off', '{l} disabled',
           'make {l} inactive', 'have {l} off', 'without {l}', 'and no {l}', 'forbid {l}', 'keep {l} off')
BEFORE = ('', '', '', '', '', '') + combined(
    ('', '', 'Hi, ', 'Hello, ', 'Hey, ', 'Ok, ', 'Now, ', 'Thanks. Now, ', 'Good morning, ', 'Well, ', 'So, '),
    ('please ', 'can you ', 'could you ', 'would you ', 'I want you to ', 'I need you to ', "I'd like you to ", 'I would like to ', 'help me ', 'you should ', 'go ahead and ',
     'kindly ', 'just ', 'do me a favor and ', 'please could you ', 'I have to ', 'we need to ', 'make sure to ', 'I ask you to ', 'it is time to ', 'can you please ', 'try to '),
) + ('Next, ', 'Let us ', 'First of all, ', 'Quickly ', 'My boss wants you to ', 'Time to ', 'If possible, ', 'As soon as you can, ', 'Be so kind and ', 'For my work, ', 'Then ')
JOIN_TWO = combined(
    ('', '', 'Please ', 'First ', 'Two things: ', 'I want you to ', 'Do both: ', 'I need two things. ', 'Ok, ', 'Now ', 'Start with this: ', 'Hi, '),
    ('{x}',),
    (' and then ', ', then ', '. Then ', '; ', '. Also ', '. After that ', ', and after that ', '. Next, ', ' and also ', '. Finally ', ' as well as ', ', and ', '. And ', ' and ',
     '. When that is done, ', '\n', '. Second, ', '. Besides, ', ', and also '),
    ('{y}.', '{y}', '{y}.', 'please {y}.'),
) + ('1. {x}\n2. {y}', '- {x}\n- {y}', '* {x}\n* {y}', 'Can you {x} and {y}?', 'Could you {x} and then {y}?', 'Can you {x} and also {y}?', 'Would you {x}, and then {y}?',
     '(1) {x} (2) {y}', 'Task one: {x}. Task two: {y}.', 'Could you please {x}? And {y}?', 'First: {x}. Second: {y}.')
WHAT_IS = filled(tuple(f for f in ASKING if f not in ('Find {x}.', 'Please find {x}.', 'Look up {x}.', 'Now {x}.', 'Repeat {x}.', 'Say {x}.')), ('the {o}', 'the {o}', 'my {o}')) + (
    'How is the {o}?', 'Please tell me: what is the {o}?', 'Tell me about the {o}.')


def is_question(before: str) -> bool:
    return any(f'{word} you' in before.lower() for word in ('can', 'could', 'would'))


def value(draw: Draw, parameter: Parameter):
    """A value as it goes in the call: text, int, float or bool."""
    kind = parameter.kind
    if kind == 'integer':
        return draw.between(0, 9) if draw.chance(.3) else draw.between(10, 999) if draw.chance(.8) else draw.between(1000, 99999)
    if kind == 'year':
        return draw.between(1900, 2035)
    if kind == 'number':
        return round(draw.rng.uniform(0, 99), draw.pick((1, 2))) if draw.chance(.6) else draw.between(1, 900)
    if kind == 'boolean':
        return draw.chance(.6)
    if kind == 'day':
        return draw.pick(lists.DAYS) if draw.chance(.8) else draw.word()
    return draw.text() if draw.chance(.12) else getattr(draw, kind)()


def natural_forms(parameter: Parameter, tool: Tool) -> list[str]:
    """Phrases that can only mean this parameter of the tool."""
    others = {form for other in tool.parameters if other is not parameter for form in other.natural}
    return [form for form in parameter.natural if form not in others]


def phrase(draw: Draw, parameter: Parameter, v, natural: list[str]) -> str:
    """How the user puts one argument in words."""
    if parameter.type == 'boolean':
        return draw.form(*(YES_FORMS, MORE_YES) if v else (NO_FORMS, MORE_NO)).format(l=parameter.label)
    shown = v if isinstance(v, str) else json.dumps(v)
    if isinstance(v, str) and draw.chance(.3):
        mark = draw.pick(('"', '"', "'", '`'))
        if mark not in v:
            shown = mark + v + mark
    if natural and draw.chance(.5):
        return draw.pick(natural).format(v=shown)
    label = parameter.name if draw.chance(.12) else parameter.label
    return draw.form(VALUE_FORMS).format(l=label, v=shown)


def arguments(draw: Draw, tool: Tool) -> tuple[dict, list[str]]:
    """Arguments in schema order, and a phrase for each."""
    args, phrases = {}, []
    for parameter in tool.parameters:
        if parameter.name in tool.required or draw.chance(.5):
            v = draw.pick(tool.enums[parameter.name]) if parameter.name in tool.enums else value(draw, parameter)
            args[parameter.name] = v
            phrases.append(phrase(draw, parameter, v, natural_forms(parameter, tool)))
    if draw.chance(.2):
        draw.rng.shuffle(phrases)
    return args, phrases


def joined(draw: Draw, core: str, phrases: list[str]) -> str:
    if not phrases:
        return core
    comma = ', ' if draw.chance(.25) else ': ' if draw.chance(.06) else ' '
    between = draw.pick((', ', ', ', ' and ', '; ', ', '))
    body = phrases[0]
    for i, part in enumerate(phrases[1:], 2):
        body += (' and ' if i == len(phrases) and draw.chance(.7) else between) + part.removeprefix('and ')
    return core + comma + body


def command(draw: Draw, tool: Tool) -> tuple[str, dict]:
    """An imperative without capital or full stop, and its arguments."""
    args, phrases = arguments(draw, tool)
    said = draw.pick(VERBS[tool.verb])
    return joined(draw, f'{said} {draw.pick(("the", "the", "a", "my"))} {tool.object}', phrases), args


def request(draw: Draw, tool: Tool) -> tuple[str, dict]:
    """A whole message for one call."""
    if tool.verb == 'get' and draw.chance(.3):
        args, phrases = arguments(draw, tool)
        text = draw.form(WHAT_IS).format(o=joined(draw, tool.object, phrases))
    else:
        text, args = command(draw, tool)
        before = draw.form(BEFORE)
        text = capitalised(before + text) + ('?' if is_question(before) else draw.pick(('.', '.', '.', '', '!')))
    if draw.chance(.12):
        text += draw.form(CLOSERS)
    if draw.chance(.02):
        text += ' ' + capitalised(' '.join(draw.word() for _ in range(draw.between(2, 5)))) + '.'
    return text, args


def two_requests(draw: Draw, first: Tool, second: Tool) -> tuple[str, dict, dict]:
    x, args_x = command(draw, first)
    y, args_y = command(draw, second)
    return capitalised(draw.form(JOIN_TWO).format(x=x, y=y)), args_x, args_y
