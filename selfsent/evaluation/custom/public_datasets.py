"""Public classification and clustering sets, read from the files that their authors publish.

    banking77   77 intents, 8 texts a class for training    emotion         6 emotions, 16 a class
    clinc150    150 intents, 8 a class                      stackoverflow   titles with 20 tags, for clustering

Training texts of each class: MTEB's 8, and 16 where it has 16.  Row counts are checked: a truncated file would be
another task.
"""

import csv
import json
from collections.abc import Callable
from pathlib import Path

from selfsent.errors import DataError
from selfsent.evaluation.custom.classification import FewShot, Labelled
from selfsent.evaluation.custom.clustering import Clustering

FEW_SHOT = {  # rows to train on, rows to test on, training texts of each class
    "banking77": (10_003, 3_080, 8),
    "emotion": (16_000, 2_000, 16),
    "clinc150": (15_000, 4_500, 8),
}


def banking77(folder: Path) -> FewShot:
    """Read train.csv and test.csv: text, category."""
    splits = []
    for split in ("train", "test"):
        with (folder / f"{split}.csv").open(encoding="utf-8", newline="") as file:
            splits.append([(row["text"], row["category"]) for row in csv.DictReader(file)])
    return few_shot("banking77", folder, *splits)


def emotion(folder: Path) -> FewShot:
    """Read train.txt and test.txt: a header, then text;label."""
    splits = []
    for split in ("train", "test"):
        rows = (line.rpartition(";") for line in _lines(folder / f"{split}.txt")[1:])
        splits.append([(text, label) for text, _, label in rows])
    return few_shot("emotion", folder, *splits)


def clinc150(folder: Path) -> FewShot:
    """Read data_full.json, without its texts out of scope."""
    content = json.loads((folder / "data_full.json").read_text(encoding="utf-8"))
    train, test = ([(text, label) for text, label in content[split]] for split in ("train", "test"))
    return few_shot("clinc150", folder, train, test)


def stackoverflow(folder: Path) -> Clustering:
    """Read titles and their tags, line by line."""
    titles, labels = (_lines(folder / f"{name}_StackOverflow.txt") for name in ("title", "label"))
    _require_count("stackoverflow", folder, "titles", len(titles), 20_000)
    _require_count("stackoverflow", folder, "labels", len(labels), 20_000)
    return Clustering(name="stackoverflow", documents=titles, labels=labels)


TASKS: dict[str, tuple[str, Callable[[Path], FewShot | Clustering]]] = {
    "banking77": ("banking77", banking77),
    "emotion": ("emotion", emotion),
    "clinc150": ("clinc150", clinc150),
    "stackoverflow": ("stackoverflow_short_text", stackoverflow),
}


def find_public_dataset(name: str, data: Path) -> Path:
    """Return the folder of a set in ``data`` or its folder ``mteb``; where it should be if it is not there."""
    place = TASKS[name][0]
    return data / place if (data / place).is_dir() else data / "mteb" / place


def read_public_dataset(name: str, data: Path) -> FewShot | Clustering | Path:
    """Read a set from ``data`` or its folder ``mteb``, or return where it should have been.

    Raises:
        DataError: it is there but incomplete.
    """
    folder = find_public_dataset(name, data)
    if not folder.is_dir():
        return folder
    try:
        return TASKS[name][1](folder)
    except OSError as error:
        raise DataError(f"cannot read {error.filename}: {error.strerror}") from error
    except (ValueError, KeyError, csv.Error) as error:
        raise DataError(f"{folder} is not what {name} publishes: {error}") from error


def few_shot(name: str, place: object, train: Labelled, test: Labelled) -> FewShot:
    """Build a task from its texts and labels.

    Args:
        place: where they were read, for the message.

    Raises:
        DataError: another number of texts than is known.
    """
    train_rows, test_rows, shots = FEW_SHOT[name]
    _require_count(name, place, "train texts", len(train), train_rows)
    _require_count(name, place, "test texts", len(test), test_rows)
    return FewShot(name=name, train=train, test=test, shots=shots)


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def _require_count(name: str, place: object, what: str, found: int, expected: int) -> None:
    if found != expected:
        raise DataError(f"{place} has {found:,} {what} where {name} has {expected:,}: the file is not whole")
