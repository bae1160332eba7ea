"""No search for garbage while something is loaded, nothing loaded that is not needed, and all as before after it."""

import gc
import json as json_before
import os
import subprocess
import sys

import pytest

from selfsent.progress import Progress
from selfsent.runtime.imports import loading, without_collection, without_package


class Told(Progress):
    def __init__(self):
        self.said = []

    def opening(self, what):
        self.said.append((what, gc.isenabled()))


@pytest.fixture(params=[True, False])
def collecting(request):
    before = gc.isenabled()
    (gc.enable if request.param else gc.disable)()
    yield request.param
    (gc.enable if before else gc.disable)()


def test_nothing_is_collected_in_the_block_and_what_was_set_before_is_set_after(collecting):
    told = Told()
    with loading("torch", told):
        assert not gc.isenabled()
        with without_collection():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled() is collecting
    assert told.said == [("loading torch", collecting)]


def test_a_block_that_fails_leaves_the_collector_as_it_was(collecting):
    with pytest.raises(ZeroDivisionError), without_collection():
        1 / 0  # noqa: B018
    assert gc.isenabled() is collecting


def test_a_command_ends_without_a_search_for_garbage():
    code = (
        "import atexit, gc, sys\n"
        "atexit.register(lambda: print('frozen', gc.get_freeze_count() > 1000))\n"  # runs after what main registers
        "sys.argv = ['selfsent', '--version']\n"
        "from selfsent.__main__ import main\nmain()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "frozen True"


def run(code, path):
    surroundings = {**os.environ, "PYTHONPATH": os.pathsep.join([str(path), os.environ.get("PYTHONPATH", "")])}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=surroundings)


def test_word_matching_does_not_start_jax(tmp_path):
    """A package in JAX's place says that it is imported: bm25s alone does so, word matching does not."""
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax" / "__init__.py").write_text("print('jax is here')\n")
    (tmp_path / "jax" / "lax.py").write_text("def top_k(scores, k):\n    print('jax has started')\n")
    scores = (
        "from selfsent.text.bm25 import bm25_scores\nprint(bm25_scores(['red'], ['a red fox', 'a dog']).argmax())\n"
    )
    assert run(f"{scores}import jax", tmp_path).stdout.split("\n") == ["0", "jax is here", ""]
    assert run(f"import jax\n{scores}print(jax.__name__)", tmp_path).stdout.split("\n") == [
        *("jax is here", "0", "jax", "")
    ]
    assert "jax has started" in run("import bm25s", tmp_path).stdout


def test_a_package_that_was_hidden_is_there_again_after_a_failure():
    with pytest.raises(ModuleNotFoundError), without_package("json"):
        import json  # noqa: F401
    assert sys.modules["json"] is json_before
    with pytest.raises(ZeroDivisionError), without_package("no_such_package"):
        1 / 0  # noqa: B018
    assert "no_such_package" not in sys.modules
