"""The demo corpus: the Python documentation on this machine.

Docstrings of the standard library and of the installed packages, parsed from their source without importing it, and
the topics of ``help()``.  Only running prose is kept: no parameter tables, examples, code or markup.  Parsing all of it
takes most of a minute of one core: every core has a share of the files, and what was found is kept in the cache.
"""

import ast
import inspect
import json
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib.metadata import distributions
from itertools import accumulate, dropwhile, groupby, takewhile
from pathlib import Path
from typing import IO

import xxhash

from selfsent.runtime.imports import without_collection
from selfsent.storage import atomic

FORMAT = 1  # raised whenever the same sources would give other documents
_FILE = "documents.jsonl"

# Files without documentation of their own: tests, vendored packages, private modules (except NumPy's _core), and
# transformers/models, where hundreds of files repeat the same sentences.
_SKIPPED = re.compile(
    r"(?:^|/)(?:tests?|testing|conftest\.py|test_[^/]*|vendor(?:ed)?|idlelib|lib2to3|pydoc_data|ensurepip"
    r"|site-packages|dist-packages|config-[^/]*|turtledemo|\.[^/]*|_(?!core/)[^/]*(?=/)|antlr"
    r"|transformers/models|selfsent)(?:/|$)|^_[^/]*$"
)
_SECTIONS = (  # of a docstring that hold tables or code
    "(?:other |keyword )?(?:parameters|arguments|args)|params|kwargs|options|inputs?|outputs?|returns?"
    "|yields?|receives?|raises|warns|attributes|methods|properties|fields|see also|references?|links|contents"
    "|authors?|copyright|license|examples?|example usage|usage|doctests?|shape|signature|todo"
)
_UNDERLINE = re.compile(r"([=\-~*^#+\"'`.])\1{2,}\s*$")
_TABLE = re.compile(r"^\s*(?:\+[-=+]+\+|\|.*\||[=\-]{2,}(?:\s+[=\-]{2,})+|.*[┌│└├─].*)\s*$")
_GOOGLE = re.compile(rf"(?P<name>{_SECTIONS})\s*:\s*$", re.IGNORECASE)
_NUMPY = re.compile(rf"(?:{_SECTIONS})$", re.IGNORECASE)
_ASIDE = re.compile(r"(?:notes?|warnings?|tips?|important|caution|hints?)\s*:\s*$", re.IGNORECASE)
_DIRECTIVE = re.compile(r"\.\.(?:\s+(?P<name>[\w:-]+?)\s*::\s*(?P<rest>.*)|\s.*|$)")
_ASIDES = {"note", "warning", "tip", "important", "caution", "hint", "attention", "admonition"}
_NO_PROSE = re.compile(  # the rest of a paragraph from such a line on is dropped
    r":[\w ]+(?:\s[^:]*)?:(?:\s|$)|@\w+"  # :param x: and @param
    r"|(?:[-*+•o]|\(?(?:\d{1,2}|[a-z])[.)])\s"  # items of lists
    r"|>>>|\$ |In \[\d+\]|[\w*]+\s*(?:\([^)]*\))?\s*(?::\s|--?\s|=)"  # code; name (type): and name = value
)
_FENCED = re.compile(r"^[ ]*(```|~~~).*?(?:^[ ]*\1[ ]*$|\Z)", re.MULTILINE | re.DOTALL)
_EMPTY_LINES = re.compile(r"\n(?:[ ]*\n)+")
_INLINE = (
    (re.compile(r":[\w:+-]+:`~?(?:[^`<]*\.)?(?P<name>[^`<.][^`<]*)`"), r"\g<name>"),  # :class:`~a.b.Name`
    (re.compile(r":[\w:+-]+:`!?(?P<text>[^`<]+?)\s*<[^`>]*>`"), r"\g<text>"),  # :ref:`text <target>`
    (re.compile(r"`(?P<text>[^`<]+?)\s*<[^`>]*>`__?"), r"\g<text>"),  # `text <url>`_
    (re.compile(r"!?\[(?P<text>[^\]]+)\]\([^()\s]*\)"), r"\g<text>"),  # [text](url)
    (re.compile(r"\s*\[[#\w]+\]_"), ""),  # [1]_
    (re.compile(r"``?(?P<text>[^`]+)``?_{0,2}"), r"\g<text>"),
    (re.compile(r"(?<![\w*])\*{1,2}(?P<text>[^\s*](?:[^*]*[^\s*])?)\*{1,2}(?![\w*])"), r"\g<text>"),
    (re.compile(r"\\(?P<mark>[*_`|\\])"), r"\g<mark>"),
)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[\"'(]?[A-Z])")
_LETTERS = re.compile(r"[^\W\d_]")
_DEFINITIONS = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def python_documents() -> Iterator[dict[str, str]]:
    """Yield title (the qualified name), summary (the first sentence) and text of each object, without duplicates.

    Raises:
        UserError: the cache is damaged, or cannot be written.
    """
    folder = atomic.cache_folder("pydocs", python_docs_identity())
    if atomic.cached(folder):
        with (folder / _FILE).open(encoding="utf-8") as file:
            yield from map(json.loads, file)
        return
    seen: set[int] = set()
    with atomic.build_folder(folder) as scratch, (scratch / _FILE).open("w", encoding="utf-8") as file:
        for title, summary, text in _found():  # a reader that stops before the end leaves nothing in the cache
            key = xxhash.xxh3_64_intdigest(f"{summary}\n{text}".casefold().encode())
            if len(summary.split()) >= 3 and key not in seen:  # not an inherited or copied docstring
                seen.add(key)
                document = {"title": title, "summary": summary, "text": text}
                file.write(f"{json.dumps(document)}\n")
                yield document


def python_docs_identity() -> str:
    """Return a hash of the Python version and the installed packages."""
    packages = sorted(f"{package.name} {package.version}" for package in distributions())
    return xxhash.xxh3_128_hexdigest("\n".join([str(FORMAT), sys.version, *packages]).encode())


def _found() -> Iterator[tuple[str, str, str]]:
    """Yield title, summary and text of every topic, and of every object in the order of the files."""
    from pydoc_data.topics import topics

    for title, topic in sorted(topics.items()):
        yield title, *prose(topic)
    mine, *others = _shares(source_files())
    with ExitStack() as stack:
        running = [stack.enter_context(_parsing(group)) for group in others]
        yield from parse(mine)
        for group, (process, output) in zip(others, running, strict=True):
            if process.wait() == 0:
                output.seek(0)
                yield from (tuple(json.loads(line)) for line in output)
            else:  # another process may not be started everywhere
                yield from parse(group)


def source_files() -> list[tuple[str, str]]:
    """Return the path and the module's name of every source file that documentation is read from."""
    files = []
    paths = sysconfig.get_paths()
    for root in dict.fromkeys(paths[kind] for kind in ("stdlib", "purelib", "platlib")):
        for name in sorted(_names(Path(root)), key=lambda name: name.split("/")):
            parts = name.removesuffix(".py").removesuffix("/__init__").split("/")
            files.append((f"{root}/{name}", ".".join(level for level in parts if not level.startswith("_"))))
    return files


def _names(root: Path) -> Iterator[str]:
    for folder, inner, files in os.walk(root):
        above = Path(folder).relative_to(root).as_posix().removeprefix(".")
        inside = f"{above}/" if above else ""
        inner[:] = [name for name in inner if not _SKIPPED.search(f"{inside}{name}/")]  # is not entered
        yield from (
            f"{inside}{name}" for name in files if name.endswith(".py") and not _SKIPPED.search(f"{inside}{name}")
        )


def _shares(files: Sequence[tuple[str, str]]) -> list[list[tuple[str, str]]]:
    """Divide files into one share a core, of about as many bytes each, in their order; one at least."""
    from selfsent.runtime.hardware import usable_cores

    ends = list(accumulate((Path(path).stat().st_size for path, _ in files), initial=0))
    size = ends[-1] / (usable_cores() if sys.executable else 1) + 1
    numbered = zip(ends, files, strict=False)
    return [
        [file for _, file in group]
        for _, group in groupby(numbered, lambda numbered_file: int(numbered_file[0] / size))
    ] or [[]]


@contextmanager
def _parsing(files: Sequence[tuple[str, str]]) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]:
    """Parse files in a process of its own, which is stopped at the end of the block."""
    with tempfile.TemporaryFile() as request, tempfile.TemporaryFile() as output:
        request.write(json.dumps(files).encode())
        request.seek(0)
        code = "from selfsent.corpus import python_docs; python_docs.parse_given()"
        path = os.pathsep.join(filter(None, sys.path))
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", code],
            stdin=request,
            stdout=output,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": path},
        )
        try:
            yield process, output
        finally:
            process.kill()
            process.wait()


def parse_given() -> None:
    """Parse the files that standard input names, and write what is found to standard output, a line each."""
    for documented in parse(json.load(sys.stdin)):
        sys.stdout.write(f"{json.dumps(documented)}\n")


def parse(files: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str, str]]:
    """Yield title, summary and text of every public object of source files."""
    return ((title, *prose(docstring)) for title, docstring in read_docstrings(files))


def read_docstrings(files: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield the qualified name and the docstring of every public object of source files."""
    for path, module in files:
        source = Path(path).read_bytes()
        if b'"""' in source or b"'''" in source:
            with suppress(SyntaxError, ValueError, RecursionError):  # not valid Python
                yield from docstrings(source, module)


def docstrings(source: bytes, module: str) -> list[tuple[str, str]]:
    """Return the (qualified name, docstring) pairs of the public objects of a source file."""
    with without_collection(), warnings.catch_warnings():  # half the time: a syntax tree has no cycles
        warnings.simplefilter("ignore")  # invalid escapes in other people's code
        return list(_public_docstrings(ast.parse(source), module))


def _public_docstrings(node: ast.AST, name: str) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Module | _DEFINITIONS) and (docstring := ast.get_docstring(node, clean=False)):
        yield name, docstring
    for inner in node.body if isinstance(node, ast.Module | ast.ClassDef) else ():
        if isinstance(inner, _DEFINITIONS) and not inner.name.startswith("_"):
            yield from _public_docstrings(inner, f"{name}.{inner.name}")


def prose(docstring: str) -> tuple[str, str]:
    """Return the first sentence of a docstring, and the running prose after it."""
    paragraphs = [text for block in _blocks(docstring) if (text := _plain(block))]
    paragraphs = [*dropwhile(lambda text: not _LETTERS.match(text.lstrip("\"'(")), paragraphs)]
    summary, *rest = _SENTENCE_END.split(paragraphs[0], maxsplit=1) if paragraphs else [""]
    if not _is_prose(f"{summary.rstrip('.')}."):
        return "", ""
    return summary, "\n".join(filter(_is_prose, rest + paragraphs[1:]))


def _is_prose(text: str) -> bool:
    letters = len(_LETTERS.findall(text))
    return len(text.split()) >= 3 and text[-1] in ".!?:)\"'" and letters > 0.7 * len(text.replace(" ", ""))


def _blocks(docstring: str) -> Iterator[list[str]]:
    """Yield paragraphs as lines, leaving out sections, directives, fields, code, tables and lists."""
    text = _FENCED.sub("\n", inspect.cleandoc(docstring).replace("\t", "    "))
    deepest = 0  # indent of running text: 0, or that of a note; anything deeper is code
    section = False  # inside a section of tables, until the next heading
    for lines in (block.split("\n") for block in _EMPTY_LINES.split(text)):
        while lines and _UNDERLINE.match(lines[0].strip()):
            del lines[0]
        if len(lines) > 1 and _UNDERLINE.match(lines[1].strip()):
            section = bool(_NUMPY.match(lines[0].strip()))
            deepest = 0
            del lines[:2]
        if section or not lines:
            continue
        first = lines[0].strip()
        indent = len(lines[0]) - len(lines[0].lstrip())
        directive = _DIRECTIVE.match(first)
        if indent > deepest:
            continue
        deepest = indent
        if _ASIDE.match(first) or (directive and directive["name"] in _ASIDES):
            lines[0] = (directive and directive["rest"]) or ""
            deepest = indent + 4
        elif directive or _GOOGLE.match(first):
            continue
        kept = list(takewhile(lambda line: not _NO_PROSE.match(line.strip()), lines))
        if not any(_TABLE.match(line) for line in kept):
            yield kept


def _plain(lines: list[str]) -> str:
    """Join the lines of a paragraph without their inline markup."""
    text = " ".join(" ".join(lines).split())
    for pattern, plain in _INLINE:
        text = pattern.sub(plain, text)
    return text.replace("::", ":") if text.endswith("::") else text
