"""SentEval's transfer tasks: what a linear classifier reads out of a sentence vector.

    mr cr subj mpqa    film reviews, product reviews, subjectivity, opinion polarity: two classes, nested
                       cross-validation over all rows
    sst2 sst5          the Stanford Sentiment Treebank with two and five classes: train, dev and test set
    trec               six kinds of question: cross-validation, test set
    mrpc               is the second sentence a paraphrase?  pairs, cross-validation, test set, F1 beside the accuracy
    sick-e snli        entailment of pairs: train, dev and test set

The files are those of SentEval's own preparation (Penn Treebank tokens, TREC without apostrophes), which is not done
again here; rows must have the known counts.  Source: the behaviour of facebookresearch/SentEval @ 5d6dc11,
senteval/binary.py, sst.py, trec.py, mrpc.py, sick.py, snli.py.
"""

from pathlib import Path

from selfsent.errors import UserError
from selfsent.evaluation.senteval.classification import Classification, LabelledExamples, sorted_examples
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

Row = tuple[str, str | None, int]  # a text, the other one of a pair, the label
Rows = dict[str, list[Row]]  # by split; nested cross-validation knows one, "all"


def transfer_rows(name: str) -> dict[str, int]:
    """Return how many rows each split of a task is known to have."""
    if name in BINARY:
        return {"all": sum(BINARY[name][1].values())}
    if name in SST:
        return SST[name][2]
    if name in ("trec", "mrpc"):
        return {split: rows for split, (_, rows) in (TREC if name == "trec" else MRPC).items()}
    return SICK if name == "sick-e" else SNLI


def read_transfer(name: str, folder: Path, classifier: Classifier) -> Classification | Path:
    """Read one task from SentEval's ``downstream`` folder, or return where it should have been.

    Raises:
        UserError: a file is missing beside others, has another number of rows, or a line that is none.
    """
    if name in BINARY:
        found = _binary(name, folder)
    elif name in SST:
        found = _sst(name, folder)
    else:
        found = {"trec": _trec, "mrpc": _mrpc, "sick-e": _sick, "snli": _snli}[name](folder)
    return found if isinstance(found, Path) else transfer_task(name, found, classifier)


def transfer_task(name: str, rows: Rows, classifier: Classifier, **facts: object) -> Classification:
    """Make the task of its rows, wherever they were read.

    Args:
        facts: for the protocol of the scores.
    """
    if name in BINARY:
        return Classification(name=name, splits=_sorted(rows), procedure="nested", classifier=classifier, facts=facts)
    if name == "snli":
        return Classification(
            name=name,
            splits={split: _turned(given) for split, given in rows.items()},
            procedure="split",
            classifier=classifier.without_regulariser(max_passes=15, passes=1),
            kind="entailment",
            facts={"training": "no regulariser, rounds of one pass, max_epoch 15", **facts},
        )
    return Classification(
        name=name,
        splits=_sorted(rows),
        procedure="cross" if name in ("trec", "mrpc") else "split",
        classifier=classifier,
        kind="pair" if name in ("mrpc", "sick-e") else "text",
        with_f1=name == "mrpc",
        facts=facts,
    )


def _sorted(rows: Rows) -> dict[str, LabelledExamples]:
    return {
        split: sorted_examples(
            [left for left, _, _ in given],
            None if given[0][1] is None else [right or "" for _, right, _ in given],
            [label for _, _, label in given],
        )
        for split, given in rows.items()
    }


def _turned(rows: list[Row]) -> LabelledExamples:
    """Sort SNLI by the second text first, and by the labels' words."""
    words = list(SNLI_LABELS)
    labels = [label for _, _, label in rows]
    turned = sorted_examples(
        [right or "" for _, right, _ in rows], [left for left, _, _ in rows], labels, [words[label] for label in labels]
    )
    return LabelledExamples(left=turned.right or [], right=turned.left, labels=turned.labels)


def _binary(name: str, folder: Path) -> Rows | Path:
    place, files = folder / BINARY[name][0], BINARY[name][1]
    if not place.is_dir():
        return place
    found: list[Row] = []
    for label, (file, rows) in zip((1, 0), files.items(), strict=True):
        texts = senteval_table(_whole(place / file), str, rows=rows, what="a text", encoding="latin-1")
        found += [(text, None, label) for text in texts]
    return {"all": found}


def _sst(name: str, folder: Path) -> Rows | Path:
    kind, classes, known = SST[name]
    place = folder / "SST" / kind
    if not place.is_dir():
        return place

    def parse(line: str) -> Row:
        if name == "sst2":
            text, label = line.split("\t")
        else:
            label, text = line.split(" ", 1)
        return text, None, _in_range(label, classes)

    what = "a text, a tab and its label" if name == "sst2" else "a label, a space and its text"
    return {
        split: senteval_table(_whole(place / f"sentiment-{split}"), parse, rows=rows, what=what)
        for split, rows in known.items()
    }


def _trec(folder: Path) -> Rows | Path:
    place = folder / "TREC"
    if not place.is_dir():
        return place

    def parse(line: str) -> Row:
        coarse, rest = line.strip().split(":", 1)
        return rest.split(" ", 1)[1], None, QUESTIONS[coarse]

    what = f"a label such as LOC:city and a question, the label one of {', '.join(QUESTIONS)}"
    return {
        split: senteval_table(_whole(place / file), parse, rows=rows, what=what, encoding="latin-1")
        for split, (file, rows) in TREC.items()
    }


def _mrpc(folder: Path) -> Rows | Path:
    place = folder / "MRPC"
    if not place.is_dir():
        return place

    def parse(line: str) -> Row:
        cells = line.strip().split("\t")
        return cells[3], cells[4], _in_range(cells[0], 2)

    what = "a label 0 or 1, two numbers and two texts between tabs"
    return {
        split: senteval_table(_whole(place / file), parse, rows=rows, what=what, skip=1)
        for split, (file, rows) in MRPC.items()
    }


def _sick(folder: Path) -> Rows | Path:
    place = folder / "SICK"
    if not place.is_dir():
        return place

    def parse(line: str) -> Row:
        cells = line.strip().split("\t")
        return cells[1], cells[2], SICK_LABELS[cells[4]]

    what = f"a number, two texts, a score and one of {', '.join(SICK_LABELS)} between tabs"
    return {
        split: senteval_table(_whole(place / file), parse, rows=SICK[split], what=what, skip=1)
        for split, file in SICK_FILES.items()
    }


def _snli(folder: Path) -> Rows | Path:
    place = folder / "SNLI"
    if not place.is_dir():
        return place
    found: Rows = {}
    for split, rows in SNLI.items():
        left, right = (
            senteval_table(_whole(place / f"{side}.{split}"), str, rows=rows, what="a text", encoding="latin-1")
            for side in ("s1", "s2")
        )
        path = _whole(place / f"labels.{split}")
        what = f"one of {', '.join(SNLI_LABELS)}"
        labels = senteval_table(path, lambda line: SNLI_LABELS[line.strip()], rows=rows, what=what, encoding="latin-1")
        found[split] = list(zip(left, right, labels, strict=True))
    return found


def _in_range(label: str, classes: int) -> int:
    number = int(label)
    if not 0 <= number < classes:
        raise ValueError(label)
    return number


def _whole(path: Path) -> Path:
    if not path.is_file():
        raise UserError(f"{path.parent.name} is incomplete: {path} is missing; unpack the whole set again")
    return path
