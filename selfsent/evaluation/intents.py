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
from selfsent.evaluation.clustering import Clustering
from selfsent.evaluation.fewshot import FewShot

Labelled = list[tuple[str, str]]


def banking77(folder: Path) -> FewShot:
    """Read train.csv and test.csv: text, category."""
    train, test = (_csv(folder / f"{split}.csv") for split in ("train", "test"))
    return _few_shot("banking77", folder, train, test, rows=(10_003, 3_080), shots=8)


def emotion(folder: Path) -> FewShot:
    """Read train.txt and test.txt: a head, then text;label."""
    train, test = (_semicolons(folder / f"{split}.txt") for split in ("train", "test"))
    return _few_shot("emotion", folder, train, test, rows=(16_000, 2_000), shots=16)


def clinc150(folder: Path) -> FewShot:
    """Read data_full.json, without its texts out of scope."""
    content = json.loads((folder / "data_full.json").read_text(encoding="utf-8"))
    train, test = ([(text, label) for text, label in content[split]] for split in ("train", "test"))
    return _few_shot("clinc150", folder, train, test, rows=(15_000, 4_500), shots=8)


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


def read(name: str, data: Path) -> FewShot | Clustering | Path:
    """Read a set from ``data`` or its folder ``mteb``, or return where it should have been.

    Raises:
        UserError: it is there but not whole.
    """
    place, reader = TASKS[name]
    folder = next((path for path in (data / place, data / "mteb" / place) if path.is_dir()), None)
    if folder is None:
        return data / "mteb" / place
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


def _few_shot(
    name: str, folder: Path, train: Labelled, test: Labelled, *, rows: tuple[int, int], shots: int
) -> FewShot:
    for split, found, expected in (("train", len(train), rows[0]), ("test", len(test), rows[1])):
        _counted(name, folder, f"{split} texts", found, expected)
    return FewShot(
        name=name,
        train=[text for text, _ in train],
        train_labels=[label for _, label in train],
        test=[text for text, _ in test],
        test_labels=[label for _, label in test],
        shots=shots,
    )


def _counted(name: str, folder: Path, what: str, found: int, expected: int) -> None:
    if found != expected:
        raise UserError(f"{folder} has {found:,} {what} where {name} has {expected:,}: the file is not whole")
