"""Where SentEval keeps its files, and how they are read."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from selfsent.errors import UserError

FOLDERS = ("STS", "SICK", "MR", "CR", "SUBJ", "MPQA", "SST", "TREC", "MRPC", "SNLI", "COCO")  # any of them will do

Row = TypeVar("Row")


def find_folder(data: Path) -> Path:
    """Return SentEval's ``downstream`` folder, given itself or a folder above it.

    Raises:
        UserError: there is no such folder.
    """
    if not data.is_dir():
        raise UserError(f"the data folder {data} does not exist: give a folder in SentEval's layout, or hub")
    places = [data / "senteval" / "downstream", data / "data" / "downstream", data / "downstream", data]
    for place in places:
        if any((place / folder).is_dir() for folder in FOLDERS):
            return place
    raise UserError(
        f"{data} holds no SentEval data: expected the folders STS and SICK in it, or those of its other tasks, "
        "or in downstream, data/downstream or senteval/downstream below it"
    )


def find_probing(data: Path) -> Path:
    """Return SentEval's ``probing`` folder: in the folder given, or beside ``downstream``; where it should be if not.

    Raises:
        UserError: the folder given does not exist.
    """
    if not data.is_dir():
        raise UserError(f"the data folder {data} does not exist: give a folder in SentEval's layout, or hub")
    places = [data / "probing", data / "data" / "probing", data / "senteval" / "probing"]
    places += [data.parent / "probing", data.parent.parent / "probing"]
    return next((place for place in places if place.is_dir()), places[0])


def senteval_lines(path: Path, encoding: str = "utf-8") -> list[str]:
    """Return the lines of a file without their ends.

    Raises:
        UserError: the file is not in this encoding.
    """
    # Not splitlines(): it also cuts at characters that stand inside a text, such as U+2028.
    try:
        return path.read_text(encoding=encoding).removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 at byte {error.start}: convert it") from None


def senteval_table(
    path: Path, parse: Callable[[str], Row], *, rows: int | None, what: str, encoding: str = "utf-8", skip: int = 0
) -> list[Row]:
    """Parse every line of a file after the first ``skip``.

    Args:
        rows: how many are known to be there; None takes any number.
        what: what a line holds, for the message when one does not.

    Raises:
        UserError: a line of another kind, or another number of rows.
    """
    found = []
    given = senteval_lines(path, encoding)[skip:]
    if rows is not None and len(given) != rows:
        raise UserError(
            f"{path} has {len(given)} rows where {rows} are known: a score on other rows cannot be compared with "
            "anybody's; get the data again"
        )
    for number, line in enumerate(given, start=skip + 1):
        try:
            found.append(parse(line))
        except (ValueError, IndexError, KeyError):
            raise UserError(f"line {number} of {path} is not {what}: {line[:80]!r}") from None
    return found
