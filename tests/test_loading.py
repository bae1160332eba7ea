"""No search for garbage while something is loaded, and as before after it."""

import gc
import subprocess
import sys

import pytest

from selfsent.loading import loading, without_collection
from selfsent.progress import Progress


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
