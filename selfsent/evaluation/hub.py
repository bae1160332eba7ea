"""Evaluation data by name from the hub, in place of a folder: ``--data hub``.

Only sets whose rows are those of the folders: known columns and the known number of rows, or they are refused.  What
differs from a folder stands in the protocol of the scores, or changes the fingerprint of the data:

    texts      as their authors wrote them, where SentEval's files hold tokens: a column of its own in every table
    STS12-16   without sub-files: "all" can be given, "mean" and "wmean" cannot
    order      of the rows, where a copy has another one: other folds and draws, and so slightly other accuracies

No copy that fits is known of SICK (those on the hub have 9,840 rows, or all 9,927 in one split), CR, MPQA, the probing
tasks, COCO's features and StackOverflow's titles: these are read from a folder.  Where a revision is named, it is
the one that MTEB pins.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from selfsent.errors import UserError
from selfsent.evaluation import sts
from selfsent.evaluation.custom import public_datasets
from selfsent.evaluation.custom.classification import FewShot
from selfsent.evaluation.senteval import relatedness, transfer
from selfsent.evaluation.senteval.classification import Classification, Row
from selfsent.evaluation.senteval.classifiers import Classifier
from selfsent.evaluation.senteval.relatedness import Relatedness, StopOn

NAME = "hub"
TIMEOUT = 5.0  # seconds to find out whether the hub answers
ABSENT = "no copy on the hub is known to hold its rows: give a folder"
_ROOT = ""  # in front of every repository: the folder of a mirror


@dataclass(frozen=True)
class Part:
    """A split of a data set on the hub, and the columns that are read of it."""

    repository: str
    split: str
    columns: tuple[str, ...]
    config: str | None = None
    revision: str | None = None

    def __str__(self) -> str:
        """Name it as a reader would look for it."""
        return f"{'/'.join(filter(None, (self.repository, self.config)))}:{self.split} on the hub"


_PAIR = ("sentence1", "sentence2", "score")
_LABELLED = ("text", "label_text")
_TOMATOES = "cornell-movie-review-data/rotten_tomatoes"
_STSB = "b0fddb56ed78048fa8b90373c8a3cfc37b684831"
_BANKING = "0fd18e25b25c072e09e0d92ab615fda904d66300"
_EMOTION = "4f58c6b202a23cf9a4da393831edf4f9183cad37"

YEARS = {
    "sts12": Part("mteb/sts12-sts", "test", _PAIR, revision="a0d554a64d88156834ff5ae9920b964011b16384"),
    "sts13": Part("mteb/sts13-sts", "test", _PAIR, revision="7e90230a92c190f1bf69ae9002b8cea547a64cca"),
    "sts14": Part("mteb/sts14-sts", "test", _PAIR, revision="6031580fec1f6af667f0bd2da0a551cf4f0b2375"),
    "sts15": Part("mteb/sts15-sts", "test", _PAIR, revision="ae752c7c21bf194d8b67fd573edf7ae58183cbe3"),
    "sts16": Part("mteb/sts16-sts", "test", _PAIR, revision="4d8694f8f0e0100860b497b999b3dbed754a0513"),
}
STSB = {
    split: Part("mteb/stsbenchmark-sts", name, _PAIR, revision=_STSB)
    for split, name in (("train", "train"), ("dev", "validation"), ("test", "test"))
}

Labels = Mapping[Any, int | None]  # the label of a row of ours; None: such rows are left out
TRANSFER: dict[str, tuple[dict[str, tuple[Part, ...]], Labels]] = {
    "mr": (
        {"all": tuple(Part(_TOMATOES, split, ("text", "label")) for split in ("train", "validation", "test"))},
        {0: 0, 1: 1},
    ),
    "subj": (  # SentEval's first class is objective, and the copy's second
        {"all": tuple(Part("SetFit/subj", split, ("text", "label")) for split in ("train", "test"))},
        {0: 1, 1: 0},
    ),
    "sst2": (  # GLUE keeps the labels of its test set to itself
        {
            "train": (Part("nyu-mll/glue", "train", ("sentence", "label"), "sst2"),),
            "dev": (Part("nyu-mll/glue", "validation", ("sentence", "label"), "sst2"),),
            "test": (Part("SetFit/sst2", "test", ("text", "label")),),
        },
        {0: 0, 1: 1},
    ),
    "sst5": (
        {
            split: (Part("SetFit/sst5", name, ("text", "label")),)
            for split, name in (("train", "train"), ("dev", "validation"), ("test", "test"))
        },
        {label: label for label in range(5)},
    ),
    "trec": (
        {split: (Part("SetFit/TREC-QC", split, ("text", "label_coarse_original")),) for split in ("train", "test")},
        dict(transfer.QUESTIONS),
    ),
    "mrpc": (  # GLUE cut a development set out of the training set; idx is the row in the authors' file
        {
            "train": tuple(
                Part("nyu-mll/glue", split, ("sentence1", "sentence2", "label", "idx"), "mrpc")
                for split in ("train", "validation")
            ),
            "test": (Part("nyu-mll/glue", "test", ("sentence1", "sentence2", "label", "idx"), "mrpc"),),
        },
        {0: 0, 1: 1},
    ),
    "snli": (
        {
            split: (Part("stanfordnlp/snli", name, ("premise", "hypothesis", "label")),)
            for split, name in (("train", "train"), ("dev", "validation"), ("test", "test"))
        },
        {0: 0, 1: 1, 2: 2, -1: None},  # -1: its judges did not agree
    ),
}
INTENTS = {
    "banking77": [Part("mteb/banking77", split, _LABELLED, revision=_BANKING) for split in ("train", "test")],
    "emotion": [Part("mteb/emotion", split, _LABELLED, revision=_EMOTION) for split in ("train", "test")],
    "clinc150": [Part("clinc/clinc_oos", split, ("text", "intent"), "plus") for split in ("train", "test")],
}
_OUT_OF_SCOPE = "oos"


def hub_requested(data: Path | None) -> bool:
    """Say whether the hub is meant; a folder of that name goes first."""
    return data == Path(NAME) and not data.is_dir()


def read_hub(
    name: str, classifier: Classifier, stop_on: StopOn
) -> sts.STS | Relatedness | Classification | FewShot | None:
    """Read one task, or return None where no copy on the hub is known to hold its rows.

    Raises:
        UserError: the hub cannot be reached, or what it has is not what is known.
    """
    if name in YEARS:
        part = YEARS[name]
        pairs = _pairs(part, name, sum(sts.YEARS[name].values()))
        return sts.STS(name=name, split="test", parts=[pairs], form=_form(part))
    if name in ("stsb", "stsb-dev"):
        split = "dev" if name == "stsb-dev" else "test"
        return sts.STS(name=name, split=split, parts=[stsb(split)], form=_form(STSB[split]))
    if name == "stsb-regression":
        splits = {split: stsb(split) for split in relatedness.SPLITS}
        return relatedness.relatedness_task(name, splits, stop_on, form=_form(STSB["test"]))
    if name in TRANSFER:
        return _transfer(name, classifier)
    if name in INTENTS:
        train, test = (list(_intents(part)) for part in INTENTS[name])
        return public_datasets.few_shot(name, f"{INTENTS[name][0].repository} on the hub", train, test)
    return None


def stsb(split: str) -> sts.SentencePairs:
    """Read a split of STS-B."""
    return _pairs(STSB[split], f"sts-{split}", sts.STSB[split])


def _pairs(part: Part, name: str, count: int) -> sts.SentencePairs:
    rows = list(_rows(part, (_text, _text, _number)))
    _counted(str(part), len(rows), count)
    left, right = ([" ".join(row[side].split()) for row in rows] for side in (0, 1))
    return sts.SentencePairs(name=name, left=left, right=right, gold=[row[2] for row in rows])


def _transfer(name: str, classifier: Classifier) -> Classification:
    parts, labels = TRANSFER[name]
    found: transfer.Rows = {}
    for split, several in parts.items():
        rows = [row for part in several for row in _examples(part, labels)]
        if "idx" in several[0].columns:
            rows.sort(key=lambda row: row[0])
        found[split] = [row for _, row in rows]
        _counted(_form(several[0]), len(rows), transfer.transfer_rows(name)[split])
    if name in transfer.BINARY:
        ones = next(iter(transfer.BINARY[name][1].values()))
        _counted(f"{_form(parts['all'][0])}, its class 1,", sum(label for _, _, label in found["all"]), ones)
    form = " and ".join(dict.fromkeys(part.repository for several in parts.values() for part in several))
    return transfer.transfer_task(name, found, classifier, texts=f"{form} on the hub")


def _examples(part: Part, labels: Labels) -> Iterator[tuple[float, Row]]:
    """Yield the place of every row, where the set tells it, and the row."""
    texts = 2 if len(part.columns) > 2 else 1
    kinds = (*(_text,) * texts, _label, *(_number,) * (len(part.columns) - texts - 1))
    for row in _rows(part, kinds):
        if row[texts] not in labels:
            raise UserError(f"{part} has a row of label {row[texts]!r}: known are {', '.join(map(str, labels))}")
        label = labels[row[texts]]
        if label is not None:
            yield (row[-1] if "idx" in part.columns else 0.0), (row[0], row[1] if texts == 2 else None, label)


def _intents(part: Part) -> Iterator[tuple[str, str]]:
    for text, label in _rows(part, (_text, _text)):
        if label != _OUT_OF_SCOPE:
            yield text, label


def _form(part: Part) -> str:
    return f"{part.repository} on the hub"


def _counted(where: str, found: int, known: int) -> None:
    if found != known:
        raise UserError(
            f"{where} has {found:,} rows where {known:,} are known: a score on other rows cannot be compared with "
            "anybody's; give a folder with --data"
        )


Read = Callable[[object], Any]


def _rows(part: Part, kinds: Sequence[Read]) -> Iterator[tuple[Any, ...]]:
    """Yield the columns of every row, each checked to be of its kind; a class label under its name if it is a text."""
    table = _load(part)
    missing = [column for column in part.columns if column not in table.column_names]
    if missing:
        raise UserError(
            f"{part} has no column {missing[0]!r} but {', '.join(table.column_names)}: it is not the set that is "
            "known; give a folder with --data"
        )
    columns = []
    for column, kind in zip(part.columns, kinds, strict=True):
        values, feature = table[column][:], table.features[column]
        columns.append(feature.int2str(values) if kind is _text and hasattr(feature, "int2str") else values)
    for number, row in enumerate(zip(*columns, strict=True)):
        try:
            yield tuple(kind(value) for kind, value in zip(kinds, row, strict=True))
        except TypeError:
            raise UserError(f"row {number} of {part} does not hold {', '.join(part.columns)} but {row!r}") from None


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _number(value: object) -> float:
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise TypeError(value)
    return float(value)


def _label(value: object) -> int | str:
    if not isinstance(value, int | str):
        raise TypeError(value)
    return value


def _load(part: Part) -> Any:  # noqa: ANN401  a table of datasets, which has no types
    import datasets

    datasets.disable_progress_bars()
    reached = bool(_ROOT) or _answers()
    try:
        with _retrying(reached):
            return datasets.load_dataset(
                _ROOT + part.repository, part.config, split=part.split, revision=None if _ROOT else part.revision
            )
    except Exception as error:  # not found, no such split, no connection: each layer has its own
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        if not reached:
            reason = "the hub does not answer, and the cache of this machine does not hold it"
        raise UserError(
            f"{part} cannot be read ({reason}): connect to the hub, or give a folder in SentEval's layout with --data"
        ) from error


@contextmanager
def _retrying(reached: bool) -> Iterator[None]:
    """Where the hub was not reached, read what the cache holds, without half a minute of retries."""
    import datasets.config
    from huggingface_hub import constants

    places = (constants, datasets.config)
    before = [place.HF_HUB_OFFLINE for place in places]
    try:
        for place, value in zip(places, before, strict=True):
            place.HF_HUB_OFFLINE = value or not reached
        yield
    finally:
        for place, value in zip(places, before, strict=True):
            place.HF_HUB_OFFLINE = value


@cache
def _answers() -> bool:
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    try:
        HfApi().dataset_info(STSB["test"].repository, timeout=TIMEOUT)
    except HfHubHTTPError:
        return True  # whatever it has to say, it says better when the data is asked for
    except Exception:  # no route, no name, no answer in time, in the words of whichever HTTP client it uses
        return False
    return True
