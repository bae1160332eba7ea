"""Imports: without a search for garbage among the very many objects that stay, and without what they need not load."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from selfsent.progress import Progress


@contextmanager
def without_collection() -> Iterator[None]:
    """Look for no cycles of garbage in the block; what nothing refers to is still freed at once."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


@contextmanager
def loading(what: str, progress: Progress) -> Iterator[None]:
    """Say that ``what`` is loaded, and import it in the block: a sixth faster than with a search for garbage."""
    progress.opening(f"loading {what}")
    with without_collection():
        yield


@contextmanager
def without_package(name: str) -> Iterator[None]:
    """Let what is imported in the block find no package of this name, as if it were not installed."""
    loaded = {name: sys.modules[name]} if name in sys.modules else {}
    sys.modules[name] = None  # type: ignore[assignment]  # documented: the import fails
    try:
        yield
    finally:
        del sys.modules[name]
        sys.modules |= loaded


def import_bm25s() -> ModuleType:
    """Import bm25s without JAX, which it would start where it is installed, though what we use of it is NumPy's.

    JAX takes three quarters of a GPU's memory as it starts, so that training found too little (decision 0030).
    """
    with without_package("jax"):
        import bm25s
    return bm25s
