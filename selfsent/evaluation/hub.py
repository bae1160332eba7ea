"""Evaluation data from the hub instead of a folder: ``--data hub``.

Only sets with the same rows as the folders: other columns or another number of rows are refused.  Differences from a
folder are recorded in the protocol of the scores, or change the fingerprint of the data:

    texts      untokenised, where SentEval's files hold tokens: a column of its own in every table
    STS12-16   without sub-files: "all" is available, "mean" and "wmean" are not
    order      of the rows, where a copy has another one: other folds and draws, and so slightly other accuracies

No copy with the same rows is known of SICK (those on the hub have 9,840 rows, or all 9,927 in one split), CR, MPQA, the
probing tasks, COCO's features and StackOverflow's titles: these are read from a folder.  Revisions are those that MTEB
pins.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any

from selfsent.errors import DataError
from selfsent.evaluation import geometry, sts
from selfsent.evaluation.own_files import public_datasets
from selfsent.evaluation.senteval import relatedness, transfer
from selfsent.evaluation.senteval.classification import Row
from selfsent.evaluation.senteval.classifiers import Classifier
from selfsent.evaluation.senteval.relatedness import StopOn
from selfsent.evaluation.task import Task

NAME = "hub"
TIMEOUT = 5.0  # seconds to find out whether the hub answers
ABSENT = "no copy on the hub is known to hold its rows: give a folder"
_ROOT = ""  # in front of every repository: the folder of a mirror


@dataclass(frozen=True)
class Part:
    """A split of a data set on the hub, and the columns to read."""

    repository: str
    split: str
    columns: tuple[str, ...]
    config: str | None = None
    revision: str | None = None

    def __str__(self) -> str:
        """Return repository, config and split."""
        return f"{'/'.join(filter(None, (self.repository, self.config)))}:{self.split} on the hub"


def _parts(repository: str, columns: tuple[str, ...], splits: str, **where: str) -> tuple[Part, ...]:
    return tuple(Part(repository, split, columns, **where) for split in splits.split())


_SPLITS = (("train", "train"), ("dev", "validation"), ("test", "test"))
_PAIR = ("sentence1", "sentence2", "score")
_PARAPHRASES = ("sentence1", "sentence2", "label", "idx")
_TEXT = ("text", "label")
_TOMATOES = "cornell-movie-review-data/rotten_tomatoes"
_STSB = "b0fddb56ed78048fa8b90373c8a3cfc37b684831"
_BANKING = "0fd18e25b25c072e09e0d92ab615fda904d66300"
_EMOTION = "4f58c6b202a23cf9a4da393831edf4f9183cad37"
_YEARS = {
    "sts12": "a0d554a64d88156834ff5ae9920b964011b16384",
    "sts13": "7e90230a92c190f1bf69ae9002b8cea547a64cca",
    "sts14": "6031580fec1f6af667f0bd2da0a551cf4f0b2375",
    "sts15": "ae752c7c21bf194d8b67fd573edf7ae58183cbe3",
    "sts16": "4d8694f8f0e0100860b497b999b3dbed754a0513",
}
YEARS = {name: Part(f"mteb/{name}-sts", "test", _PAIR, revision=revision) for name, revision in _YEARS.items()}
STSB = {split: Part("mteb/stsbenchmark-sts", name, _PAIR, revision=_STSB) for split, name in _SPLITS}

Labels = Mapping[Any, int | None]  # label in the set -> class; None: rows to leave out
TRANSFER: dict[str, tuple[dict[str, tuple[Part, ...]], Labels]] = {
    "mr": ({"all": _parts(_TOMATOES, _TEXT, "train validation test")}, {0: 0, 1: 1}),
    # SentEval's first class is objective, and the copy's second.
    "subj": ({"all": _parts("SetFit/subj", _TEXT, "train test")}, {0: 1, 1: 0}),
    "sst2": (  # GLUE does not publish the labels of its test set
        {
            "train": _parts("nyu-mll/glue", ("sentence", "label"), "train", config="sst2"),
            "dev": _parts("nyu-mll/glue", ("sentence", "label"), "validation", config="sst2"),
            "test": _parts("SetFit/sst2", _TEXT, "test"),
        },
        {0: 0, 1: 1},
    ),
    "sst5": ({split: _parts("SetFit/sst5", _TEXT, name) for split, name in _SPLITS}, dict(enumerate(range(5)))),
    "trec": (
        {split: _parts("SetFit/TREC-QC", ("text", "label_coarse_original"), split) for split in ("train", "test")},
        dict(transfer.QUESTIONS),
    ),
    "mrpc": (  # GLUE took its development set from the training set; idx is the row in the authors' file
        {
            "train": _parts("nyu-mll/glue", _PARAPHRASES, "train validation", config="mrpc"),
            "test": _parts("nyu-mll/glue", _PARAPHRASES, "test", config="mrpc"),
        },
        {0: 0, 1: 1},
    ),
    "snli": (
        {split: _parts("stanfordnlp/snli", ("premise", "hypothesis", "label"), name) for split, name in _SPLITS},
        {0: 0, 1: 1, 2: 2, -1: None},  # -1: the annotators did not agree
    ),
}
INTENTS = {
    "banking77": _parts("mteb/banking77", ("text", "label_text"), "train test", revision=_BANKING),
    "emotion": _parts("mteb/emotion", ("text", "label_text"), "train test", revision=_EMOTION),
    "clinc150": _parts("clinc/clinc_oos", ("text", "intent"), "train test", config="plus"),
}


def hub_requested(data: Path | None) -> bool:
    """Tell whether the hub is meant; a folder of that name is preferred."""
    return data == Path(NAME) and not data.is_dir()


def read_hub(name: str, classifier: Classifier, stop_on: StopOn) -> Task | Path | None:
    """Read one task, or return None where no copy on the hub is known to hold its rows.

    Raises:
        DataError: the hub cannot be reached, or its copy is not the known one.
    """
    if name in YEARS:
        pairs = _pairs(YEARS[name], name, sum(sts.YEARS[name].values()))
        return sts.STS(name=name, split="test", parts=[pairs], form=_form(YEARS[name]))
    if name.startswith("geometry"):
        return geometry.read_geometry(name, stsb, form=_form(STSB["test"]))
    if name in ("stsb", "stsb-dev"):
        split = "dev" if name == "stsb-dev" else "test"
        return sts.STS(name=name, split=split, parts=[stsb(split)], form=_form(STSB[split]))
    if name == "stsb-regression":
        splits = {split: stsb(split) for split in relatedness.SPLITS}
        return relatedness.relatedness_task(name, splits, stop_on, form=_form(STSB["test"]))
    if name in TRANSFER:
        return _transfer(name, classifier)
    if name in INTENTS:
        train, test = ([row for row in _rows(part, str, str) if row[1] != "oos"] for part in INTENTS[name])
        return public_datasets.few_shot(name, _form(INTENTS[name][0]), train, test)
    return None


def stsb(split: str) -> sts.SentencePairs:
    """Read a split of STS-B."""
    return _pairs(STSB[split], f"sts-{split}", sts.STSB[split])


def _pairs(part: Part, name: str, count: int) -> sts.SentencePairs:
    rows = list(_rows(part, str, str, float | int))
    _require_count(str(part), len(rows), count)
    left, right = ([" ".join(row[side].split()) for row in rows] for side in (0, 1))
    return sts.SentencePairs(name=name, left=left, right=right, gold=[float(row[2]) for row in rows])


def _transfer(name: str, classifier: Classifier) -> Task:
    parts, labels = TRANSFER[name]
    splits: dict[str, list[Row]] = {}
    for split, several in parts.items():
        rows = [row for part in several for row in _examples(part, labels)]
        rows.sort(key=lambda row: row[0])
        splits[split] = [row for _, row in rows]
        _require_count(_form(several[0]), len(rows), sum(transfer.FILES[name][1][split].values()))
    if name in transfer.BINARY:
        ones = next(iter(transfer.FILES[name][1]["all"].values()))
        _require_count(f"{_form(parts['all'][0])}, its class 1,", sum(row[2] for row in splits["all"]), ones)
    form = " and ".join(dict.fromkeys(part.repository for several in parts.values() for part in several))
    return transfer.transfer_task(name, splits, classifier, texts=f"{form} on the hub")


def _examples(part: Part, labels: Labels) -> Iterator[tuple[float, Row]]:
    """Yield each row's place in the authors' file (0 where the set has no column ``idx``), and the row."""
    texts = min(2, len(part.columns) - 1)
    for row in _rows(part, *[str] * texts, *[object] * (len(part.columns) - texts)):
        if row[texts] not in labels:
            raise DataError(f"{part} has a row of label {row[texts]!r}: known are {', '.join(map(str, labels))}")
        label = labels[row[texts]]
        if label is not None:
            yield (row[-1] if "idx" in part.columns else 0), (row[0], row[1] if texts == 2 else None, label)


def _form(part: Part) -> str:
    return f"{part.repository} on the hub"


def _require_count(where: str, found: int, known: int) -> None:
    if found != known:
        raise DataError(
            f"{where} has {found:,} rows where {known:,} are known: a score on other rows cannot be compared with "
            "others; give a folder with --data"
        )


def _rows(part: Part, *kinds: type | UnionType) -> Iterator[tuple[Any, ...]]:
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


def _load(part: Part) -> Any:  # noqa: ANN401  a table of datasets, which has no types
    import datasets
    from huggingface_hub import constants

    datasets.disable_progress_bars()
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
        HfApi().dataset_info(STSB["test"].repository, timeout=TIMEOUT)
    except HfHubHTTPError:
        return True  # an error of the server is reported when the data is loaded
    except Exception:  # no route, no name or a timeout: each HTTP client has errors of its own
        return False
    return True
