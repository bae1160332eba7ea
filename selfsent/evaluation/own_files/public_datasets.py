"""Public classification and clustering sets, read from the files that their authors publish.

    banking77   77 intents, 8 texts a class for training    emotion         6 emotions, 16 a class
    clinc150    150 intents, 8 a class                      stackoverflow   titles with 20 tags, for clustering

Training texts of each class: MTEB's 8, and 16 where it has 16.  Row counts are checked: a truncated file would be
another task.
"""

import csv
import json
from collections.abc import Sequence
from pathlib import Path

from selfsent.errors import DataError
from selfsent.evaluation.own_files.classification import FewShot, Labelled
from selfsent.evaluation.own_files.clustering import Clustering

FEW_SHOT = {  # rows to train on, rows to test on, training texts of each class
    "banking77": (10_003, 3_080, 8),
    "emotion": (16_000, 2_000, 16),
    "clinc150": (15_000, 4_500, 8),
}


TASKS = {**{name: name for name in FEW_SHOT}, "stackoverflow": "stackoverflow_short_text"}  # name -> folder


def find_public_dataset(name: str, data: Path) -> Path:
    """Return the folder of a set in ``data`` or its folder ``mteb``; where it should be if it is not there."""
    place = TASKS[name]
    return data / place if (data / place).is_dir() else data / "mteb" / place


def read_public_dataset(name: str, folder: Path) -> FewShot | Clustering | Path:
    """Read a set from its folder, or return the folder if it is not there.

    Raises:
        DataError: it is there but incomplete.
    """
    if not folder.is_dir():
        return folder
    try:
        if name != "stackoverflow":
            return few_shot(name, folder, *(_labelled(name, folder, split) for split in ("train", "test")))
        titles, labels = (_lines(folder / f"{part}_StackOverflow.txt") for part in ("title", "label"))
    except OSError as error:
        raise DataError(f"cannot read {error.filename}: {error.strerror}") from error
    except (ValueError, KeyError, csv.Error) as error:
        raise DataError(f"{folder} is not what {name} publishes: {error}") from error
    _require_count(name, folder, "titles", titles, 20_000)
    _require_count(name, folder, "labels", labels, 20_000)
    return Clustering(name=name, documents=titles, labels=labels)


def few_shot(name: str, place: object, train: Labelled, test: Labelled) -> FewShot:
    """Build a task from texts and labels that were read at a place.

    Raises:
        DataError: another number of texts than is known.
    """
    train_rows, test_rows, shots = FEW_SHOT[name]
    _require_count(name, place, "train texts", train, train_rows)
    _require_count(name, place, "test texts", test, test_rows)
    return FewShot(name=name, train=train, test=test, shots=shots)


def _labelled(name: str, folder: Path, split: str) -> Labelled:
    if name == "banking77":
        with (folder / f"{split}.csv").open(encoding="utf-8", newline="") as file:
            return [(row["text"], row["category"]) for row in csv.DictReader(file)]
    if name == "clinc150":  # the texts out of scope have splits of their own
        return [(text, label) for text, label in json.loads((folder / "data_full.json").read_text("utf-8"))[split]]
    rows = (line.rpartition(";") for line in _lines(folder / f"{split}.txt")[1:])  # below a header: text;label
    return [(text, label) for text, _, label in rows]


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def _require_count(name: str, place: object, what: str, found: Sequence[object], expected: int) -> None:
    if len(found) != expected:
        raise DataError(f"{place} has {len(found):,} {what} where {name} has {expected:,}: the file is not whole")
