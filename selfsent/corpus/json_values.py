"""JSON values of a file: no key is there twice, and an error names the place."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from selfsent.errors import CorpusError


def doubled(names: Sequence[str]) -> str:
    """Return a name that is there twice, or ""; nameless columns are what some tools put after the last."""
    return next((name for name, count in Counter(names).items() if name and count > 1), "")


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        raise ValueError(f"{doubled([name for name, _ in pairs])!r} is there twice")
    return row


JSON = json.JSONDecoder(object_pairs_hook=_object)


def parsed(line: str, where: object) -> Any:  # noqa: ANN401 - JSON is anything
    """Return the value of one line."""
    try:
        return JSON.decode(line)
    except (ValueError, RecursionError) as error:
        raise invalid(where, error) from error


def invalid(where: object, error: Exception) -> CorpusError:
    """Build the error for what is not JSON, with its reason."""
    reason = str(error)
    if isinstance(error, json.JSONDecodeError):
        reason = f"{error.msg.removesuffix(' at')} at column {error.colno}"
    elif isinstance(error, RecursionError):
        reason = "it is nested too deeply"
    elif "digits" in reason:  # of Python's limit for the conversion of integers
        reason = "a number has too many digits"
    return CorpusError(f"{where} is not valid JSON ({reason}): mend it")
