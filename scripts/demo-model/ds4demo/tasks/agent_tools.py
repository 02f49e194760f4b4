"""The tools of coding agents: a shell, files, search, the web and so on, under the names that such tools go by."""
from dataclasses import dataclass

from ..draw import Draw
from .agent_text import short_description
from .schemas import tool as any_tool
from .schemas import VERBS, thing


@dataclass(frozen=True)
class Shape:
    """Names and first sentences to choose from; `main` are the spellings of the parameters that a call must carry."""

    names: tuple[str, ...]
    says: tuple[str, ...]
    main: tuple[tuple[str, ...], ...]
    extra: tuple[tuple[str, str], ...] = ()


SHELL = Shape(
    ('bash', 'bash', 'bash', 'Bash', 'shell', 'exec_command', 'exec_command', 'exec', 'run_command', 'execute_command', 'run_shell', 'terminal', 'local_shell',
     'run_terminal_cmd', 'execute', 'run', 'sh', 'command', 'run_bash', 'console'),
    ('Run a shell command and return what it prints.', 'Executes a bash command in a shell session.', 'Runs a command in a terminal and returns its output.',
     'Execute a command in the working directory.', 'Execute shell commands. Output may be cut.', 'Runs one command line.', 'A shell for commands.'),
    (('command', 'command', 'command', 'cmd', 'cmd', 'script', 'input', 'line', 'code'),),
    (('timeout', 'number'), ('workdir', 'string'), ('description', 'string'), ('cwd', 'string'), ('login', 'boolean'), ('tty', 'boolean'), ('shell', 'string'),
     ('timeout_ms', 'integer'), ('background', 'boolean'), ('max_tokens', 'number'), ('justification', 'string')),
)
PATHS = ('path', 'filePath', 'file_path', 'file', 'filename')
READ = Shape(
    ('read', 'read_file', 'Read', 'view', 'view_file', 'open_file', 'cat_file'), ('Read the contents of a file.', 'Reads a file from the disk.', 'View a file.'),
    (PATHS,), (('offset', 'number'), ('limit', 'number'), ('encoding', 'string')),
)
WRITE = Shape(
    ('write', 'write_file', 'Write', 'create_file', 'save_file'), ('Write text to a file.', 'Writes a file and replaces what was there.', 'Create a file.'),
    (PATHS, ('content', 'content', 'text', 'contents')), (('append', 'boolean'),),
)
OTHERS = (
    Shape(('edit', 'edit_file', 'Edit', 'replace', 'apply_patch'), ('Replace text in a file.', 'Edit a file by exact replacement.'),
          (PATHS, ('oldString', 'old_string', 'old'), ('newString', 'new_string', 'new')), (('replaceAll', 'boolean'),)),
    Shape(('grep', 'Grep', 'search_files', 'ripgrep'), ('Search the contents of files.', 'Find lines that match a pattern.'), (('pattern', 'regex'),), (('path', 'string'), ('include', 'string'))),
    Shape(('glob', 'Glob', 'find_files'), ('Find files by a name pattern.',), (('pattern',),), (('path', 'string'),)),
    Shape(('ls', 'list_files', 'list_directory'), ('List a folder.',), (PATHS,), (('depth', 'integer'),)),
    Shape(('webfetch', 'WebFetch', 'fetch_url', 'fetch'), ('Fetch a page from the web.',), (('url',),), (('format', 'string'), ('timeout', 'number'))),
    Shape(('websearch', 'WebSearch', 'web_search'), ('Search the web.',), (('query',),), (('limit', 'integer'),)),
    Shape(('task', 'Agent', 'spawn_agent', 'delegate'), ('Start another agent for a task.',), (('description',), ('prompt',)), (('subagent_type', 'string'), ('model', 'string'))),
    Shape(('todowrite', 'TodoWrite', 'update_plan', 'todo'), ('Keep a list of steps.',), (('todos', 'plan', 'steps'),)),
    Shape(('skill', 'Skill', 'load_skill'), ('Load a skill by its name.',), (('name', 'skill'),), (('args', 'string'),)),
    Shape(('view_image', 'image'), ('Look at an image file.',), (('path',),)),
    Shape(('write_stdin', 'send_input', 'send_keys'), ('Send characters to a running session.', 'Write to the input of a running command.'), (('session_id', 'session'),),
          (('chars', 'string'), ('yield_time_ms', 'number'))),
    Shape(('ask_user', 'request_user_input', 'question'), ('Ask the user a question.',), (('question', 'questions'),), (('options', 'array'),)),
    Shape(('get_goal', 'status', 'CronList', 'TaskList'), ('Show the current state.',), ()),
    Shape(('create_goal', 'TaskCreate', 'create_task'), ('Create a new task.',), (('objective', 'subject'),), (('token_budget', 'integer'), ('description', 'string'))),
    Shape(('stop_task', 'TaskStop', 'close_agent', 'CronDelete'), ('Stop something that runs.',), (('id', 'task_id', 'target'),)),
    Shape(('wait', 'ScheduleWakeup', 'sleep'), ('Wait for some time.',), (('seconds', 'delaySeconds', 'timeout_ms'),)),
)


@dataclass(frozen=True)
class AgentTool:
    name: str
    arguments: tuple[str, ...]
    schema: dict


def parameter_schema(draw: Draw, name: str, type_: str, length: int) -> dict:
    text = f'The {name.replace("_", " ")}' if draw.chance(.5) else short_description(draw, draw.between(10, max(11, length)))
    schema = {'type': type_, 'description': text}
    if type_ == 'array':
        schema['items'] = {'type': 'string'}
    if type_ in ('number', 'integer') and draw.chance(.2):
        schema |= {'minimum': 0, 'maximum': draw.pick((100, 600000, 9007199254740991))}
    if type_ == 'string' and draw.chance(.05):
        schema['enum'] = [draw.lexicon_word() for _ in range(3)]
    return dict(reversed(schema.items())) if draw.chance(.25) else schema


def build(draw: Draw, shape: Shape, length: int) -> AgentTool:
    """`length`: about how many characters its description may have."""
    main = tuple(draw.pick(spellings) for spellings in shape.main)
    extra = [e for e in shape.extra if e[0] not in main and draw.chance(.4)]
    if draw.chance(.15):
        extra.append((draw.identifier(), draw.pick(('string', 'number', 'boolean', 'array'))))
    properties = [(name, 'array' if name in ('todos', 'plan', 'steps', 'questions') else 'string') for name in main] + extra
    if draw.chance(.15):
        draw.rng.shuffle(properties)
    properties = {name: parameter_schema(draw, name, type_, length // 6) for name, type_ in properties}
    says = draw.pick(shape.says)
    if draw.chance(.8) and length > 60:
        says += draw.pick((' ', '\n\n')) + short_description(draw, draw.between(20, length))
    body = {'type': 'object', 'properties': properties, 'required': [name for name in properties if name in main]}
    if draw.chance(.3):
        body = {'type': 'object', 'required': body['required'], 'properties': properties}
    if draw.chance(.5):
        body['additionalProperties'] = False
    if draw.chance(.3):
        body = {'$schema': 'https://json-schema.org/draft/2020-12/schema', **body}
    name = draw.pick(shape.names)
    schema = {'name': name, 'description': says}
    if draw.chance(.08):
        schema['strict'] = False
    return AgentTool(name, tuple(n for n in properties if n in main), schema | {'parameters': body})


def offered(draw: Draw, wanted: list[Shape], count: int, length: int) -> tuple[list[AgentTool], list[dict]]:
    """(the wanted tools, the schemas of all `count` or more in the order offered)"""
    mine = [build(draw, shape, length) for shape in wanted]
    names, schemas = {tool.name for tool in mine}, [tool.schema for tool in mine]
    for _ in range(count - len(mine)):
        other = build(draw, draw.pick(OTHERS), length) if draw.chance(.85) else None
        schema = other.schema if other else any_tool(draw, draw.pick(list(VERBS)), thing(draw)).schema
        if schema['name'] not in names:
            names.add(schema['name'])
            schemas.append(schema)
    draw.rng.shuffle(schemas)
    return mine, schemas
