"""Public names of a package that are imported on first use, listed once: in the stub beside it."""

import ast
from collections.abc import Callable
from importlib import import_module
from pathlib import Path


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
