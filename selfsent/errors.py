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

import errno
import re
from collections.abc import Iterable
from difflib import get_close_matches

# What a machine refuses whatever a command asks for, by the number of the error, and what to do.
_MACHINE = {
    errno.ENOSPC: ("no space is left on the disk", "free some"),
    errno.EDQUOT: ("the quota of the disk is used up", "free some space"),
    errno.EIO: ("the disk fails", "look at the messages of the system, or take another disk"),
    errno.EROFS: ("the disk can only be read", "make it writable, or name another place"),
    errno.EMFILE: ("this process may open no more files", "raise the limit with ulimit -n"),
    errno.ENFILE: ("this machine can open no more files", "end other programs"),
    0: ("no more threads can be started", "raise the limit with ulimit -u"),
    errno.ENOMEM: ("memory is used up", "end other programs, or ask for smaller batches"),
}
# Libraries in Rust, Arrow and torch give the number or the matter in their text alone.
_NUMBERED = re.compile(r"(?:os error|errno:?) (\d+)", re.IGNORECASE)
_TOLD = {"t allocate memory": errno.ENOMEM, "out of memory": errno.ENOMEM, "t start new thread": 0}


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


def a_kind(value: object) -> str:
    """Return "an int", or "a list"."""
    name = type(value).__name__
    return f"a{'n' * (name[0].lower() in 'aeiou')} {name}"


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


def machine_failure(error: BaseException | None, place: object = "") -> str:
    """Return one sentence on the room, the rights to write or the memory that a machine lacks; "": it is another error.

    Args:
        error: it, or what it was raised from, is the machine's.
        place: what was written, where the error names no file.
    """
    while error is not None:
        number = error.errno if isinstance(error, OSError) else None
        if isinstance(error, MemoryError):
            number = errno.ENOMEM
        elif number is None and not isinstance(error, SelfsentError):
            told = _NUMBERED.search(str(error))
            number = int(told[1]) if told else next((_TOLD[part] for part in _TOLD if part in str(error)), None)
        if number in _MACHINE:
            what, remedy = _MACHINE[number]
            where = f" at {named}" if (named := getattr(error, "filename", None) or place) else ""
            return f"{what}{where}: {remedy}, and repeat the command; what was saved before is whole"
        error = error.__cause__
    return ""
