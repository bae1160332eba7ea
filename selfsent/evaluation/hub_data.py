"""Evaluation data from the hub instead of a folder: ``--data hub``.

Only sets with the same rows as the folders: other columns or another number of rows are refused.  Differences from a
folder are recorded in the protocol of the scores, or change the fingerprint of the data:

    texts      untokenised, where SentEval's files hold tokens: a column of its own in every table
    STS12-16   without sub-files: "all" is available, "mean" and "wmean" are not
    order      of the rows, where a copy has another one: other folds and draws, and so slightly other accuracies

Sets of which ``data_sets`` names no copy are read from a folder.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any

from selfsent.errors import DataError
from selfsent.evaluation.data_sets import SETS, DataSet, HubSplit
from selfsent.evaluation.task import Row
from selfsent.runtime.imports import import_datasets

NAME = "hub"
TIMEOUT = 5.0  # seconds to find out whether the hub answers
ABSENT = "no copy on the hub is known to hold its rows: give a folder"
_ROOT = ""  # in front of every repository: the folder of a mirror


def hub_requested(data: Path | None) -> bool:
    """Tell whether the hub is meant; a folder of that name is preferred."""
    return data == Path(NAME) and not data.is_dir()


def read_hub(data_set: DataSet, split: str) -> list[Row]:
    """Read the rows of a split, in the order of the authors' file where a column ``idx`` tells it.

    Raises:
        DataError: the hub cannot be reached, or its copy is not the known one.
    """
    rows = [row for part in data_set.hub[split] for row in _read_split(part, data_set)]
    rows.sort(key=lambda row: row[0])
    where, files = " and ".join(map(str, data_set.hub[split])), data_set.splits[split]
    _require_count(where, len(rows), sum(files.values()))
    if len(files) > 1 and data_set.protocol == "transfer":  # the first file is that of class 1
        _require_count(f"{where}, its class 1,", sum(row[2] for _, row in rows), next(iter(files.values())))
    return [row for _, row in rows]


def _read_split(part: HubSplit, data_set: DataSet) -> Iterator[tuple[float, Row]]:
    """Yield each row's place in the authors' file (0 where there is no column ``idx``), and the row."""
    classes, count = data_set.classes, min(2, len(part.columns) - 1)
    scores = data_set.protocol == "similarity"
    kind = object if classes else float | int if scores else str
    for row in _rows(part, *[str] * count, *[kind] * (len(part.columns) - count)):
        label = row[count]
        if label in data_set.left_out:
            continue
        if classes and label not in classes:
            raise DataError(f"{part} has a row of label {label!r}: known are {', '.join(map(str, classes))}")
        if classes:
            label = classes[label]
        elif scores:
            label = float(label)
        yield (row[-1] if "idx" in part.columns else 0), (row[0], row[1] if count == 2 else None, label)


def _require_count(where: str, found: int, known: int) -> None:
    if found != known:
        raise DataError(
            f"{where} has {found:,} rows where {known:,} are known: a score on other rows cannot be compared with "
            "others; give a folder with --data"
        )


def _rows(part: HubSplit, *kinds: type | UnionType) -> Iterator[tuple[Any, ...]]:
    """Yield the columns of every row, each checked to be of its type; a class label as its name where that is str."""
    table = _load(part)
    missing = [column for column in part.columns if column not in table.column_names]
    if missing:
        raise DataError(
            f"{part} has no column {missing[0]!r} but {', '.join(table.column_names)}: it is not the known set; give "
            "a folder with --data"
        )
    columns = []
    for column, kind in zip(part.columns, kinds, strict=True):
        values, feature = table[column][:], table.features[column]
        columns.append(feature.int2str(values) if kind is str and hasattr(feature, "int2str") else values)
    for number, row in enumerate(zip(*columns, strict=True)):
        if not all(map(isinstance, row, kinds)):
            raise DataError(f"row {number} of {part} does not hold {', '.join(part.columns)} but {row!r}")
        yield row


def _load(part: HubSplit) -> Any:  # noqa: ANN401  a table of datasets, which has no types
    from huggingface_hub import constants

    datasets = import_datasets(str(part))
    before = constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE
    reached = bool(_ROOT) or _answers()
    try:
        if not reached:  # read from the cache, without half a minute of retries
            constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True
        return datasets.load_dataset(
            _ROOT + part.repository, part.config, split=part.split, revision=None if _ROOT else part.revision
        )
    except Exception as error:  # not found, no such split, no connection: each layer has its own
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        if not reached:
            reason = "the hub does not answer, and the cache of this machine does not hold it"
        raise DataError(
            f"{part} cannot be read ({reason}): connect to the hub, or give a folder in SentEval's layout with --data"
        ) from error
    finally:
        constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE = before


@cache
def _answers() -> bool:
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    try:
        HfApi().dataset_info(SETS["stsb"].hub["test"][0].repository, timeout=TIMEOUT)
    except HfHubHTTPError:
        return True  # an error of the server is reported when the data is loaded
    except Exception:  # no route, no name or a timeout: each HTTP client has errors of its own
        return False
    return True
