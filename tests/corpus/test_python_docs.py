"""Out of a docstring comes running prose, in a fixed order, of public things only."""

import shutil
import subprocess
import sys
import sysconfig

import pytest

from selfsent.corpus import python_docs
from selfsent.errors import ResumeError
from selfsent.runtime import hardware

EXECUTABLE = sys.executable
NUMPY = """Merge two tables.

    The join is done on ``columns`` or :class:`~pandas.core.Index`, see
    :ref:`User Guide <merging>` and `the site <http://a.org>`_. It is *fast* [1]_.

    .. versionadded:: 1.2
        A new thing came.

    .. note::

        Rows that are null match each other.

    Parameters
    ----------
    how : {'left', 'right'}
        Type of the merge, which is one of two.

        More about this parameter.

    Notes
    -----
    The algorithm sorts both tables first::

        code = "is dropped"

    Then it walks along them.

    Examples
    --------
    An example is given here.

    >>> merge(a, b)
    c
    """
GOOGLE = """Open a file, then read it.

    Files of any size can be opened here.
    - an item of a list

    Args:
        path (str): the file to be opened.
            It goes on.

            A file can be of any size here.

    Returns:
        The text of the file.

    ```python
    open("x")
    ```

    Note:
        The file is closed afterwards.

    :param other: something more
    """
SOURCE = b'''"""A module for testing things."""
class Public:
    """A public class of things."""
    def method(self):
        """Do what a method does."""
        def inner():
            """Nobody sees the inside of it."""
    def _private(self):
        """Hide away from all readers."""
class _Hidden:
    """Hide the class from all readers."""
    def method(self):
        """Hide this method as well."""
async def task():
    """Wait for something to happen."""
'''


def test_numpydoc_leaves_its_prose():
    summary, text = python_docs.prose(NUMPY)
    assert summary == "Merge two tables."
    assert text.split("\n") == [
        "The join is done on columns or Index, see User Guide and the site. It is fast.",
        "Rows that are null match each other.",
        "The algorithm sorts both tables first:",
        "Then it walks along them.",
    ]


def test_google_style_leaves_its_prose():
    summary, text = python_docs.prose(GOOGLE)
    assert summary == "Open a file, then read it."
    assert text.split("\n") == ["Files of any size can be opened here.", "The file is closed afterwards."]


def test_the_first_sentence_is_the_summary_and_the_rest_of_its_paragraph_is_text():
    assert python_docs.prose("Return e.g. a file. It must be open. Or not.") == (
        "Return e.g. a file.",
        "It must be open. Or not.",
    )


@pytest.mark.parametrize("docstring", ["", "merge(a, b) -> c", ">>> 1 + 1\n2", "x", "=====\n-----", "a: int\nb: str"])
def test_what_is_no_prose_is_nothing(docstring):
    assert python_docs.prose(docstring) == ("", "")


def test_public_things_are_named_in_the_order_of_the_source():
    assert python_docs.docstrings(SOURCE, "package.module") == [
        ("package.module", "A module for testing things."),
        ("package.module.Public", "A public class of things."),
        ("package.module.Public.method", "Do what a method does."),
        ("package.module.task", "Wait for something to happen."),
    ]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SELFSENT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "pydocs"


def test_an_installation_is_read_without_tests_copies_and_what_does_not_parse(tmp_path, monkeypatch, cache):
    files = {
        "alpha/__init__.py": SOURCE,
        "alpha/_code.py": b'"""Private files hold public things."""',
        "alpha/copy.py": b'"""A module for testing things."""',
        "alpha/_vendor/x.py": b'"""Somebody else wrote all this."""',
        "alpha/tests/test_x.py": b'"""Test that everything is right."""',
        "alpha/broken.py": b'"""This one is not Python."""\nprint "x"',
    }
    for name, source in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(source)
    paths = dict.fromkeys(("stdlib", "purelib", "platlib"), str(tmp_path))
    monkeypatch.setattr(sysconfig, "get_paths", lambda: paths)
    monkeypatch.setitem(sys.modules, "alpha", None)  # whoever imports it fails
    found = list(python_docs.python_documents())
    shutil.rmtree(cache)
    assert found == list(python_docs.python_documents())
    topics = [one for one in found if not one["title"].startswith("alpha")]
    assert 50 < len(topics) < 100
    assert [one["title"] for one in found[len(topics) :]] == [
        "alpha",
        "alpha.Public",
        "alpha.Public.method",
        "alpha.task",
        "alpha",
    ]
    assert found[-1]["summary"] == "Private files hold public things."


def test_what_was_read_to_its_end_is_not_parsed_again(monkeypatch, cache):
    docstrings = [
        ("a", "Return the sum of two numbers.", ""),
        ("b", "Return what is left of \u00e9t\u00e9.", "\u2028 More of it."),
    ]
    monkeypatch.setattr(python_docs, "_found", lambda: iter(docstrings))
    first = python_docs.python_documents()
    next(first)
    first.close()
    assert list(cache.iterdir()) == []
    whole = list(python_docs.python_documents())
    assert [one["title"] for one in whole] == ["a", "b"]
    monkeypatch.setattr(python_docs, "_found", lambda: 1 / 0)
    assert list(python_docs.python_documents()) == whole
    (kept,) = cache.glob("*/documents.jsonl")
    kept.write_text(kept.read_text(encoding="utf-8").replace("sum", "mean"), encoding="utf-8")
    with pytest.raises(ResumeError, match=r"delete .* and repeat the command"):
        next(python_docs.python_documents())


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Twenty modules of different sizes, and three cores to read them with."""
    for number in range(20):
        sizes = "\n\n".join(f"Paragraph {part} of module {number} says so." for part in range(1 + 7 * number % 5))
        folder = tmp_path / "installed" / f"part-{number % 3}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"module{number}.py").write_text(f'"""Module {number} is the one.\n\n{sizes}\n"""\n')
    monkeypatch.setattr(
        sysconfig, "get_paths", lambda: dict.fromkeys(("stdlib", "purelib", "platlib"), str(folder.parent))
    )
    monkeypatch.setattr(hardware, "usable_cores", lambda: 3)
    return folder.parent


@pytest.fixture
def started(monkeypatch):
    """The processes that were started."""
    seen, start = [], subprocess.Popen

    def begin(command, **others):
        seen.append(start(command, **others))
        return seen[-1]

    monkeypatch.setattr(python_docs.subprocess, "Popen", begin)
    return seen


def in_order(folder):
    """Read the modules one by one, by the names of folders and files."""
    found = []
    for file in sorted(folder.rglob("*.py")):
        for _, docstring in python_docs.docstrings(file.read_bytes(), ""):
            found.append(python_docs.prose(docstring))
    return found


def modules(documents):
    return [(one["summary"], one["text"]) for one in documents if one["title"].startswith("part-")]


@pytest.mark.parametrize("executable", [EXECUTABLE, shutil.which("false")])  # the second parses nothing
def test_several_processes_find_what_one_finds_in_the_same_order(installed, started, cache, monkeypatch, executable):
    monkeypatch.setattr(sys, "executable", executable)
    assert modules(python_docs.python_documents()) == in_order(installed)
    assert len(in_order(installed)) == 20
    assert [bool(process.returncode) for process in started] == [executable != EXECUTABLE] * 2


def test_a_reader_that_stops_stops_the_other_processes(installed, started, cache):
    documents = python_docs.python_documents()
    assert next(one for one in documents if one["title"].startswith("part-"))
    documents.close()
    assert len(started) == 2
    assert all(process.returncode is not None for process in started)


def test_topics_are_prose_too(cache):
    topic = next(one for one in python_docs.python_documents() if one["title"] == "with")
    assert topic["summary"].startswith('The "with" statement is used to wrap the execution of a block')
    assert "with_stmt" not in topic["text"]


def test_another_installation_has_another_identity(monkeypatch):
    before = python_docs.python_docs_identity()
    assert before == python_docs.python_docs_identity()
    monkeypatch.setattr(python_docs, "distributions", list)
    assert before != python_docs.python_docs_identity()
