"""One module per method.  The folder is the registry: ``load("scd")`` reads ``methods/scd.py``."""

from importlib import import_module
from pkgutil import iter_modules

from selfsent.errors import UserError, unknown
from selfsent.objective import Objective


def names() -> list[str]:
    """List the methods that come with the package."""
    return sorted(module.name for module in iter_modules(__path__))


def load(name: str) -> type[Objective]:
    """Return the objective of a method of ours (``"scd"``) or of an importable module (``"mypackage.mine"``).

    Raises:
        UserError: no such method or module, or the module names no METHOD.
    """
    if "." not in name and name not in names():
        raise unknown("method", name, names())
    path = name if "." in name else f"{__name__}.{name}"
    try:
        method = import_module(path).METHOD
    except ModuleNotFoundError as error:
        if error.name is None or not f"{path}.".startswith(f"{error.name}."):
            raise  # the module exists; something that it needs does not
        raise UserError(f"no module {name!r}: give one that can be imported and names its METHOD") from error
    except AttributeError as error:
        raise UserError(f"module {name!r} is no method: its last line should be METHOD = ...") from error
    if not (isinstance(method, type) and issubclass(method, Objective)):
        raise UserError(f"METHOD of module {name!r} is {method!r}: it should be a subclass of Objective")
    return method


def find(name: str) -> tuple[type[Objective], dict[str, object]]:
    """Return the objective that a method or preset name means, and what it changes in the Config.

    ``find("scd")`` changes nothing; ``find("scd_paper_literal")`` is SCD with the changes of that preset.

    Raises:
        UserError: neither a method, nor a preset, nor an importable module.
    """
    if "." in name or name in names():
        return load(name), {}
    presets = {preset: method for method in map(load, names()) for preset in method.presets}
    if name not in presets:
        raise unknown("method", name, [*names(), *presets])
    return presets[name], dict(presets[name].presets[name])
