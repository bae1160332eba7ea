"""Imports: on first use, without a search for garbage among the objects that stay, without what they need not load."""

import ast
import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType

from selfsent.errors import ConfigurationError
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


def import_datasets(what: str) -> ModuleType:
    """Import datasets without its progress bars.

    Args:
        what: needs it, for the message.

    Raises:
        ConfigurationError: the extra ``datasets`` is not installed.
    """
    try:
        datasets = import_module("datasets")
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"{what} needs the package {error.name}: pip install '.[datasets]' in the checkout"
        ) from None
    datasets.disable_progress_bars()
    return datasets


def lazy_exports(package: str, file: str) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package.

    Args:
        package: its ``__name__``.
        file: its ``__file__``; the stub ``__init__.pyi`` beside it holds imports, ``from module import
            name as name``, and other names for what it imports, ``load = load_encoder``.
    """
    imported: dict[str, tuple[str, str]] = {}
    homes: dict[str, tuple[str, str]] = {}
    for node in ast.parse(Path(file).with_suffix(".pyi").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            imported |= {alias.name: (str(node.module), alias.name) for alias in node.names}
            homes |= {alias.asname: imported[alias.name] for alias in node.names if alias.asname}
        elif isinstance(node, ast.Assign):  # another name
            homes[ast.unparse(node.targets[0])] = imported[ast.unparse(node.value)]

    def import_public(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, attribute = homes[name]
        return getattr(import_module(module), attribute)

    return import_public, lambda: sorted(homes), sorted(homes)
