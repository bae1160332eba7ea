"""The errors that a reader can mend.

    SelfsentError
    ├── UserError        what somebody wrote or gave is wrong: one sentence, no traceback
    └── Interrupted      the run was stopped and its state is saved: says how to go on

A caller's mistake in Python is a ``ValueError``; what we ourselves guarantee is an ``assert``.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class SelfsentError(Exception):
    """Anything that this package raises on purpose for a person to read."""


class UserError(SelfsentError):
    """Something given by the user is wrong; the message says what, and what would be right."""


class Interrupted(SelfsentError):
    """A run stopped before its end with its state saved; the message says how to go on."""


def unknown(kind: str, name: str, known: Iterable[str]) -> UserError:
    """Build the error for a name that does not exist: the nearest known name first, then all of them."""
    names = sorted(known)
    near = get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return UserError(f"unknown {kind} {name!r}: {hint}choose one of {', '.join(names)}")
