"""SentEval's transfer tasks: the accuracy of a linear classifier on sentence vectors.

    mr cr subj mpqa    film reviews, product reviews, subjectivity, opinion polarity: two classes, nested
                       cross-validation over all rows
    sst2 sst5          the Stanford Sentiment Treebank with two and five classes: train, dev and test set
    trec               six kinds of question: cross-validation, test set
    mrpc               is the second text a paraphrase?  pairs: cross-validation, test set, F1 beside the accuracy
    sick-e snli        entailment of pairs: train, dev and test set

The files are those of SentEval's own preparation (Penn Treebank tokens, TREC without apostrophes), which is not
repeated here; rows must have the known counts.  Source: the behaviour of facebookresearch/SentEval @ 5d6dc11,
senteval/binary.py, sst.py, trec.py, mrpc.py, sick.py, snli.py.
"""

from collections.abc import Callable
from pathlib import Path

from selfsent.errors import DataError
from selfsent.evaluation.senteval.classification import Classification, Row, sorted_examples
from selfsent.evaluation.senteval.classifiers import Classifier
from selfsent.evaluation.senteval.files import senteval_table
from selfsent.evaluation.sts import SICK, SICK_FILES

AVERAGED = ("mr", "cr", "subj", "mpqa", "sst2", "trec", "mrpc")  # the literature's average, in its order
TASKS = (*AVERAGED, "sst5", "sick-e", "snli")

# folder, then the rows of the file with label 1 and of the file with label 0
BINARY: dict[str, tuple[str, dict[str, int]]] = {
    "mr": ("MR", {"rt-polarity.pos": 5331, "rt-polarity.neg": 5331}),
    "cr": ("CR", {"custrev.pos": 2407, "custrev.neg": 1368}),
    "subj": ("SUBJ", {"subj.objective": 5000, "subj.subjective": 5000}),
    "mpqa": ("MPQA", {"mpqa.pos": 3312, "mpqa.neg": 7294}),
}
SST = {
    "sst2": ("binary", 2, {"train": 67349, "dev": 872, "test": 1821}),
    "sst5": ("fine", 5, {"train": 8544, "dev": 1101, "test": 2210}),
}
TREC = {"train": ("train_5500.label", 5452), "test": ("TREC_10.label", 500)}
QUESTIONS = {"ABBR": 0, "DESC": 1, "ENTY": 2, "HUM": 3, "LOC": 4, "NUM": 5}
MRPC = {"train": ("msr_paraphrase_train.txt", 4076), "test": ("msr_paraphrase_test.txt", 1725)}
SICK_LABELS = {"CONTRADICTION": 0, "NEUTRAL": 1, "ENTAILMENT": 2}
SNLI = {"train": 549367, "dev": 9842, "test": 9824}
SNLI_LABELS = {"entailment": 0, "neutral": 1, "contradiction": 2}

Rows = dict[str, list[Row]]  # by split; in nested cross-validation one, "all"


def transfer_rows(name: str) -> dict[str, int]:
    """Return how many rows each split of a task is known to have."""
    if name in BINARY:
        return {"all": sum(BINARY[name][1].values())}
    return SNLI if name == "snli" else {split: rows for split, (_, rows) in _files(name).items()}


def _files(name: str) -> dict[str, tuple[str, int]]:
    """Return the file of each split, and its rows."""
    if name in SST:
        return {split: (f"sentiment-{split}", rows) for split, rows in SST[name][2].items()}
    if name == "sick-e":
        return {split: (file, SICK[split]) for split, file in SICK_FILES.items()}
    return TREC if name == "trec" else MRPC


def read_transfer(name: str, folder: Path, classifier: Classifier) -> Classification | Path:
    """Read one task from SentEval's ``downstream`` folder, or return where it should have been.

    Raises:
        DataError: a file is missing beside others, has another number of rows, or a line that cannot be parsed.
    """
    if name in BINARY:
        place = folder / BINARY[name][0]
    else:
        place = folder / ("SST/" + SST[name][0] if name in SST else name.removesuffix("-e").upper())
    if not place.is_dir():
        return place
    if name in BINARY:
        rows = {"all": _binary(place, BINARY[name][1])}
    elif name == "snli":
        rows = {split: _snli(place, split, count) for split, count in SNLI.items()}
    else:
        parse, what, encoding, header = LINES[name]
        rows = {
            split: senteval_table(_file(place, file), parse, rows=count, what=what, encoding=encoding, skip=header)
            for split, (file, count) in _files(name).items()
        }
    return transfer_task(name, rows, classifier)


def transfer_task(name: str, rows: Rows, classifier: Classifier, **facts: object) -> Classification:
    """Make the task from its rows.

    Args:
        facts: for the protocol of the scores.
    """
    if name == "snli":
        words = list(SNLI_LABELS)  # SNLI is sorted by the second text first, and by the words of its labels
        return Classification(
            name=name,
            splits={
                split: sorted_examples(given, lambda row: (row[1], row[0], words[row[2]]))
                for split, given in rows.items()
            },
            procedure="split",
            classifier=classifier.without_regulariser(max_passes=15, passes=1),
            kind="entailment",
            facts={"training": "no regulariser, rounds of one pass, max_epoch 15", **facts},
        )
    return Classification(
        name=name,
        splits={split: sorted_examples(given) for split, given in rows.items()},
        procedure="nested" if name in BINARY else "cross" if name in ("trec", "mrpc") else "split",
        classifier=classifier,
        kind="pair" if name in ("mrpc", "sick-e") else "text",
        with_f1=name == "mrpc",
        facts=facts,
    )


def _binary(place: Path, files: dict[str, int]) -> list[Row]:
    return [
        (text, None, label)
        for label, (file, rows) in zip((1, 0), files.items(), strict=True)
        for text in _column(place, file, rows)
    ]


def _snli(place: Path, split: str, rows: int) -> list[Row]:
    left, right = (_column(place, f"{side}.{split}", rows) for side in ("s1", "s2"))
    path, what = _file(place, f"labels.{split}"), f"one of {', '.join(SNLI_LABELS)}"
    labels = senteval_table(path, lambda line: SNLI_LABELS[line.strip()], rows=rows, what=what, encoding="latin-1")
    return list(zip(left, right, labels, strict=True))


def _sst2(line: str) -> Row:
    text, label = line.split("\t")
    return text, None, _in_range(label, 2)


def _sst5(line: str) -> Row:
    label, text = line.split(" ", 1)
    return text, None, _in_range(label, 5)


def _trec(line: str) -> Row:
    coarse, rest = line.strip().split(":", 1)
    return rest.split(" ", 1)[1], None, QUESTIONS[coarse]


def _mrpc(line: str) -> Row:
    cells = line.strip().split("\t")
    return cells[3], cells[4], _in_range(cells[0], 2)


def _sick(line: str) -> Row:
    cells = line.strip().split("\t")
    return cells[1], cells[2], SICK_LABELS[cells[4]]


# how a line is parsed, what it holds, the encoding, and the number of header lines
LINES: dict[str, tuple[Callable[[str], Row], str, str, int]] = {
    "sst2": (_sst2, "a text, a tab and its label", "utf-8", 0),
    "sst5": (_sst5, "a label, a space and its text", "utf-8", 0),
    "trec": (
        _trec,
        f"a label such as LOC:city and a question, the label one of {', '.join(QUESTIONS)}",
        "latin-1",
        0,
    ),
    "mrpc": (_mrpc, "a label 0 or 1, two numbers and two texts between tabs", "utf-8", 1),
    "sick-e": (_sick, f"a number, two texts, a score and one of {', '.join(SICK_LABELS)} between tabs", "utf-8", 1),
}


def _in_range(label: str, classes: int) -> int:
    number = int(label)
    if not 0 <= number < classes:
        raise ValueError(label)
    return number


def _column(place: Path, file: str, rows: int) -> list[str]:
    return senteval_table(_file(place, file), str, rows=rows, what="a text", encoding="latin-1")


def _file(place: Path, name: str) -> Path:
    path = place / name
    if not path.is_file():
        raise DataError(f"{place.name} is incomplete: {path} is missing; unpack the whole set again")
    return path
