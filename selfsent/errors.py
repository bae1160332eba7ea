"""The errors that a reader can mend.

    SelfsentError
    ├── UserError                what somebody wrote or gave is wrong: one sentence, no traceback
    │   ├── ConfigurationError   a setting, recipe, method or command-line value
    │   ├── CorpusError          the raw text: missing, unreadable, too small
    │   ├── EncoderError         the base or model folder
    │   ├── DataError            labelled evaluation data
    │   └── ResumeError          what is on disk does not fit what is resumed, or is damaged
    ├── Interrupted              the run was stopped and its state is saved: says how to resume
    └── EndedElsewhere           another process of the run ended, which says why

A caller's mistake in Python is a ``ValueError``; what we ourselves guarantee is an ``assert``.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class SelfsentError(Exception):
    """Anything that this package raises on purpose for a person to read."""


class UserError(SelfsentError):
    """Something given by the user is wrong; the message says what, and what would be right.

    Examples:
        >>> try:
        ...     selfsent.load("no-such-folder")
        ... except selfsent.UserError as error:
        ...     print(error)
    """


class ConfigurationError(UserError):
    """A setting, a recipe, the name of a method, or an output path does not fit."""


class CorpusError(UserError):
    """The raw text is missing, cannot be read, or is too small for what is asked of it."""


class EncoderError(UserError):
    """A base or model cannot be opened, or is no encoder that fits."""


class DataError(UserError):
    """Labelled evaluation data are missing, incomplete or malformed."""


class ResumeError(UserError):
    """What is on disk is damaged, or was made by other settings than those it would be resumed with."""


class StorageError(UserError):
    """Something could not be written: of the disk, and not of what was to be done."""


class Interrupted(SelfsentError):
    """A run stopped before its end with its state saved; the message says how to resume.

    Examples:
        >>> try:
        ...     selfsent.train("simcse", corpus="tickets.jsonl", out="runs/once", settings={"train.steps": 500})
        ... except selfsent.Interrupted as stopped:
        ...     print(stopped)
    """


class EndedElsewhere(SelfsentError):
    """Another process of the same run ended before its end, and says itself why."""


def unknown(kind: str, name: str, known: Iterable[str], meant: str = "") -> ConfigurationError:
    """Build the error for a name that does not exist: the nearest known name first, then all of them.

    Args:
        meant: the nearest name, where the caller knows better than the spelling.
    """
    names = sorted(known)
    near = [meant] if meant else get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return ConfigurationError(f"unknown {kind} {name!r}: {hint}choose one of {', '.join(names)}")


def first_line(error: BaseException) -> str:
    """Return the first line of an error of another library, or its type where it says nothing."""
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
