"""Public classification and clustering sets, read from the files that their authors publish.

    banking77   77 intents, 8 texts a class to learn from      emotion         6 emotions, 16 a class
    clinc150    150 intents, 8 a class                         stackoverflow   titles with 20 tags, to be clustered

Texts to learn from a class: MTEB's 8, and 16 where it has 16.  Row counts are checked: a truncated file would be
another task.
"""

import csv
import json
from collections.abc import Callable
from pathlib import Path

from selfsent.errors import UserError
from selfsent.evaluation.custom.classification import FewShot
from selfsent.evaluation.custom.clustering import Clustering

Labelled = list[tuple[str, str]]

# texts to train and test on, and how many of a class are learned from
FEW_SHOT: dict[str, tuple[int, int, int]] = {
    "banking77": (10_003, 3_080, 8),
    "emotion": (16_000, 2_000, 16),
    "clinc150": (15_000, 4_500, 8),
}


def banking77(folder: Path) -> FewShot:
    """Read train.csv and test.csv: text, category."""
    train, test = (_csv(folder / f"{split}.csv") for split in ("train", "test"))
    return few_shot("banking77", folder, train, test)


def emotion(folder: Path) -> FewShot:
    """Read train.txt and test.txt: a head, then text;label."""
    train, test = (_semicolons(folder / f"{split}.txt") for split in ("train", "test"))
    return few_shot("emotion", folder, train, test)


def clinc150(folder: Path) -> FewShot:
    """Read data_full.json, without its texts out of scope."""
    content = json.loads((folder / "data_full.json").read_text(encoding="utf-8"))
    train, test = ([(text, label) for text, label in content[split]] for split in ("train", "test"))
    return few_shot("clinc150", folder, train, test)


def stackoverflow(folder: Path) -> Clustering:
    """Read titles and their tags, line by line."""
    titles, labels = (
        (folder / f"{name}_StackOverflow.txt").read_text(encoding="utf-8").splitlines() for name in ("title", "label")
    )
    _counted("stackoverflow", folder, "titles", len(titles), 20_000)
    _counted("stackoverflow", folder, "labels", len(labels), 20_000)
    return Clustering(name="stackoverflow", texts=titles, labels=labels)


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
        UserError: it is there but not whole.
    """
    folder = find_public_dataset(name, data)
    if not folder.is_dir():
        return folder
    reader = TASKS[name][1]
    try:
        return reader(folder)
    except OSError as error:
        raise UserError(f"cannot read {error.filename}: {error.strerror}") from error
    except (ValueError, KeyError, csv.Error) as error:
        raise UserError(f"{folder} is not what {name} publishes: {error}") from error


def _csv(path: Path) -> Labelled:
    with path.open(encoding="utf-8", newline="") as file:
        return [(row["text"], row["category"]) for row in csv.DictReader(file)]


def _semicolons(path: Path) -> Labelled:
    pairs = []
    for line in path.read_text(encoding="utf-8").splitlines()[1:]:
        text, _, label = line.rpartition(";")
        pairs.append((text, label))
    return pairs


def few_shot(name: str, place: object, train: Labelled, test: Labelled) -> FewShot:
    """Make the task of its texts and labels, wherever they were read.

    Args:
        place: where that was, for the message.

    Raises:
        UserError: another number of texts than is known.
    """
    rows, tests, shots = FEW_SHOT[name]
    for split, found, expected in (("train", len(train), rows), ("test", len(test), tests)):
        _counted(name, place, f"{split} texts", found, expected)
    return FewShot(
        name=name,
        train=[text for text, _ in train],
        train_labels=[label for _, label in train],
        test=[text for text, _ in test],
        test_labels=[label for _, label in test],
        shots=shots,
    )


def _counted(name: str, place: object, what: str, found: int, expected: int) -> None:
    if found != expected:
        raise UserError(f"{place} has {found:,} {what} where {name} has {expected:,}: the file is not whole")
