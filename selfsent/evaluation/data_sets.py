"""The labelled data sets: what each is, where its rows are, and by which protocol it is scored (``data_sets.toml``).

    similarity    pairs with human scores: STS12-16, STS-B, SICK-R                     -> ``sts``, ``geometry``
    transfer      texts or pairs with a class: SentEval's classification tasks         -> ``senteval``
    few-shot      texts with an intent or emotion, in the files of their authors       -> ``own_files``
    clustering    titles with their tags                                               -> ``own_files``

The files are those of SentEval's own preparation (Penn Treebank tokens, TREC without apostrophes), which is not
repeated here.  Rows must have the known counts: a score on other rows cannot be compared.  On the hub only sets with
the same rows are named.  No such copy is known of SICK (those on the hub have 9,840 rows, or all 9,927 in one split),
CR, MPQA, the probing tasks, COCO's features and StackOverflow's titles.  Revisions are those that MTEB pins.

Source: the behaviour of facebookresearch/SentEval @ 5d6dc11, senteval/binary.py, sst.py, trec.py, mrpc.py, sick.py,
snli.py and probing.py.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

SIDE = "\x1f"  # between the lines of files that belong together


@dataclass(frozen=True, kw_only=True)
class HubSplit:
    """A split of a data set on the hub, and the columns to read: one or two texts, the label, and perhaps ``idx``."""

    repository: str
    split: str
    columns: Sequence[str]
    config: str | None = None
    revision: str | None = None

    def __str__(self) -> str:
        """Return repository, config and split."""
        return f"{'/'.join(filter(None, (self.repository, self.config)))}:{self.split} on the hub"


@dataclass(frozen=True, kw_only=True)
class DataSet:
    """A labelled data set."""

    protocol: Literal["similarity", "transfer", "few-shot", "clustering"]
    folder: str  # below SentEval's ``downstream``, or below the folder of the public sets
    splits: Mapping[str, Mapping[str, int]]  # split -> its files -> the number of their labelled rows
    files: Sequence[str] = ("{}",)  # the files that a name stands for; their lines belong together
    form: str = "(?P<left>.*)"  # of a line: left, right where it has two texts, and the label unless its file says it
    holds: str = "a text"  # the same in words
    labels: Sequence[str] = ()  # the classes from 0 on as files write them; none: scores, or any name
    encoding: str = "utf-8"
    header: bool = False
    separate: bool = False  # whether a split is of use without the others
    kind: Literal["text", "pair", "entailment"] = "text"
    with_f1: bool = False  # of class 1, beside the accuracy
    shots: int = 8  # texts a class to train on: MTEB's
    hub: Mapping[str, Sequence[HubSplit]] = field(default_factory=dict)  # split -> the splits that together hold it
    classes: Mapping[Any, int] = field(default_factory=dict)  # of the labels on the hub
    left_out: Sequence[Any] = ()  # labels of rows on the hub that do not count

    @property
    def hub_form(self) -> str:
        """The repositories in words, as the protocol of the scores names them."""
        names = dict.fromkeys(split.repository for splits in self.hub.values() for split in splits)
        return f"{' and '.join(names)} on the hub"

    def label(self, cell: str) -> Any:  # noqa: ANN401
        """Return the score, class or name in a cell; ValueError where there is none."""
        if self.protocol == "similarity":
            return float(cell)
        return self.labels.index(cell) if self.labels else cell


@cache
def known_files() -> dict[str, dict[str, Any]]:
    """Return ``rows``, ``last`` (bytes of the last line) and ``sha256`` of each known file, as in ``manifest.toml``."""
    return _table("manifest.toml")


def _table(name: str) -> dict[str, dict[str, Any]]:
    return tomllib.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))


def _data_sets() -> dict[str, DataSet]:
    table, sets = _table("data_sets.toml"), {}
    for name, entry in table.items():
        facts = {**table.get(entry.pop("like", ""), {}), **entry}
        columns, hub = facts.pop("columns", ()), facts.pop("hub", {})
        splits = {split: [HubSplit(**{"columns": columns, **copy}) for copy in hub[split]] for split in hub}
        sets[name] = DataSet(**facts | {"classes": dict(facts.get("classes", ())), "hub": splits})
    return sets


SETS = _data_sets()
YEARS = ("sts12", "sts13", "sts14", "sts15", "sts16")
TRANSFER = ("mr", "cr", "subj", "mpqa", "sst2", "trec", "mrpc")  # the literature's average, in its order
PUBLIC = ("banking77", "emotion", "clinc150", "stackoverflow")

# Each task that reads a set: the set, and the splits that it reads; empty: all.
TASKS: dict[str, tuple[str, tuple[str, ...]]] = {
    **{name: (name, ("test",)) for name in (*YEARS, "stsb", "sickr")},
    **{f"{name}-dev": (name, ("dev",)) for name in ("stsb", "sickr")},
    **{"geometry": ("stsb", ()), "geometry-dev": ("stsb", ("dev",))},
    **{name: (name, ()) for name in (*TRANSFER, "sst5", "sick-e", "snli", *PUBLIC)},
    **{f"{name}-regression": (name, ()) for name in ("sickr", "stsb")},
}

# SentEval's ten probing tasks: the number of classes, and another name under which the file is found.
PROBING: dict[str, tuple[int, str]] = {
    **{"sentence_length": (6, "sent_len"), "word_content": (1000, ""), "tree_depth": (8, "")},
    **{"top_constituents": (20, ""), **dict.fromkeys(("bigram_shift", "past_present", "subj_number"), (2, ""))},
    **dict.fromkeys(("obj_number", "odd_man_out", "coordination_inversion"), (2, "")),
}
