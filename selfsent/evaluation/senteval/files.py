"""Find and read files in SentEval's layout."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from selfsent.errors import DataError

# Any one identifies the folder.
FOLDERS = ("STS", "SICK", "MR", "CR", "SUBJ", "MPQA", "SST", "TREC", "MRPC", "SNLI", "COCO")

Row = TypeVar("Row")


def find_folder(data: Path) -> Path:
    """Return SentEval's ``downstream`` folder, given itself or a folder above it.

    Raises:
        DataError: there is no such folder.
    """
    _require_folder(data)
    for place in (data / "senteval" / "downstream", data / "data" / "downstream", data / "downstream", data):
        if any((place / folder).is_dir() for folder in FOLDERS):
            return place
    raise DataError(
        f"{data} holds no SentEval data: expected the folders STS and SICK in it, or those of its other tasks, "
        "or in downstream, data/downstream or senteval/downstream below it"
    )


def find_probing(data: Path) -> Path:
    """Return SentEval's ``probing`` folder: in the folder given, or beside ``downstream``; where it should be if not.

    Raises:
        DataError: the folder given does not exist.
    """
    _require_folder(data)
    places = [data / "probing", data / "data" / "probing", data / "senteval" / "probing"]
    places += [data.parent / "probing", data.parent.parent / "probing"]
    return next((place for place in places if place.is_dir()), places[0])


def _require_folder(data: Path) -> None:
    if not data.is_dir():
        raise DataError(f"the data folder {data} does not exist: give a folder in SentEval's layout, or hub")


def senteval_lines(path: Path, encoding: str = "utf-8") -> list[str]:
    """Return the lines of a file without their ends.

    Raises:
        DataError: the file is missing or not in this encoding.
    """
    # Not splitlines(): it also splits at characters that occur inside a text, such as U+2028.
    try:
        return path.read_text(encoding=encoding).removesuffix("\n").split("\n")
    except FileNotFoundError:
        raise DataError(f"{path.parent.name} is incomplete: {path} is missing; unpack the whole set again") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 at byte {error.start}: convert it") from None


def senteval_table(
    path: Path,
    parse: Callable[[str], Row],
    *,
    rows: int = 0,
    what: str = "a text",
    encoding: str = "utf-8",
    skip: int = 0,
) -> list[Row]:
    """Parse every line of a file after the first ``skip``.

    Args:
        rows: how many are known to be there; 0 takes any number.
        what: what a line should hold, for the error message.

    Raises:
        DataError: a line cannot be parsed, or the number of rows is another.
    """
    lines = senteval_lines(path, encoding)[skip:]
    if rows and len(lines) != rows:
        raise DataError(
            f"{path} has {len(lines)} rows where {rows} are known: a score on other rows cannot be compared with "
            "published ones; get the data again"
        )
    parsed = []
    for number, line in enumerate(lines, start=skip + 1):
        try:
            parsed.append(parse(line))
        except (ValueError, IndexError, KeyError):
            raise DataError(f"line {number} of {path} is not {what}: {line[:80]!r}") from None
    return parsed
