"""Real English for long contexts: the docstrings of the running Python's standard library, paragraph by paragraph.

They are read from the interpreter at build time and are only ever context, never an answer.  Run as a module to write
the corpus file that training and evaluation read:  python -m ds4demo.prose OUT.json
"""
import ast
import json
import re
import sys
import sysconfig
from pathlib import Path

SKIPPED_FOLDERS = {'test', 'tests', 'idlelib', 'lib2to3', 'site-packages', 'dist-packages', '__pycache__', 'pydoc_data', 'turtledemo'}
SHORTEST, LONGEST = 40, 1500


def docstrings(root: Path):
    for path in sorted(root.rglob('*.py')):
        if SKIPPED_FOLDERS & set(path.relative_to(root).parts):
            continue
        try:
            tree = ast.parse(path.read_text(encoding='utf-8'))
        except (SyntaxError, UnicodeDecodeError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                text = ast.get_docstring(node)
                if text:
                    yield text


def paragraphs(root: Path) -> list[str]:
    """Distinct ASCII paragraphs in a fixed order."""
    found = {}
    for text in docstrings(root):
        for paragraph in text.split('\n\n'):
            paragraph = paragraph.strip()
            if SHORTEST <= len(paragraph) <= LONGEST and paragraph.isascii():
                found[paragraph] = None
    return list(found)


def words(corpus: list[str]) -> list[str]:
    """Lower-case words that occur at least twice, sorted."""
    counts: dict[str, int] = {}
    for paragraph in corpus:
        for word in re.findall(r'\b[a-z]{3,12}\b', paragraph):
            counts[word] = counts.get(word, 0) + 1
    return sorted(word for word, count in counts.items() if count > 1)


def main() -> None:
    corpus = paragraphs(Path(sysconfig.get_paths()['stdlib']))
    out = Path(sys.argv[1])
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(corpus))
    print(f'{len(corpus)} paragraphs, {sum(map(len, corpus))} characters, Python {sys.version.split()[0]}')


if __name__ == '__main__':
    main()
