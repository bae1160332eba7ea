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
from selfsent.evaluation.labelled import Classification, Examples, sorted_examples
from selfsent.evaluation.layout import table
from selfsent.evaluation.learners import Classifier
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

Pair = tuple[str, str, int]


def read(name: str, folder: Path, classifier: Classifier) -> Classification | Path:
    """Read one task from SentEval's ``downstream`` folder, or return where it should have been.

    Raises:
        UserError: a file is missing beside others, has another number of rows, or a line that is none.
    """
    if name in BINARY:
        return _binary(name, folder, classifier)
    if name in SST:
        return _sst(name, folder, classifier)
    readers = {"trec": _trec, "mrpc": _mrpc, "sick-e": _sick, "snli": _snli}
    return readers[name](folder, classifier)


def _binary(name: str, folder: Path, classifier: Classifier) -> Classification | Path:
    place, files = folder / BINARY[name][0], BINARY[name][1]
    if not place.is_dir():
        return place
    texts: list[str] = []
    labels: list[int] = []
    for label, (file, rows) in zip((1, 0), files.items(), strict=True):
        found = table(_whole(place / file), str, rows=rows, what="a text", encoding="latin-1")
        texts += found
        labels += [label] * len(found)
    splits = {"all": sorted_examples(texts, None, labels)}
    return Classification(name=name, splits=splits, procedure="nested", classifier=classifier)


def _sst(name: str, folder: Path, classifier: Classifier) -> Classification | Path:
    kind, classes, counts = SST[name]
    place = folder / "SST" / kind
    if not place.is_dir():
        return place

    def parse(line: str) -> tuple[str, int]:
        if name == "sst2":
            text, label = line.split("\t")
        else:
            label, text = line.split(" ", 1)
        return text, _in_range(label, classes)

    what = "a text, a tab and its label" if name == "sst2" else "a label, a space and its text"
    splits = {}
    for split, rows in counts.items():
        found = table(_whole(place / f"sentiment-{split}"), parse, rows=rows, what=what)
        splits[split] = sorted_examples([text for text, _ in found], None, [label for _, label in found])
    return Classification(name=name, splits=splits, procedure="split", classifier=classifier)


def _trec(folder: Path, classifier: Classifier) -> Classification | Path:
    place = folder / "TREC"
    if not place.is_dir():
        return place

    def parse(line: str) -> tuple[str, int]:
        coarse, rest = line.strip().split(":", 1)
        return rest.split(" ", 1)[1], QUESTIONS[coarse]

    splits = {}
    for split, (file, rows) in TREC.items():
        what = f"a label such as LOC:city and a question, the label one of {', '.join(QUESTIONS)}"
        found = table(_whole(place / file), parse, rows=rows, what=what, encoding="latin-1")
        splits[split] = sorted_examples([text for text, _ in found], None, [label for _, label in found])
    return Classification(name="trec", splits=splits, procedure="cross", classifier=classifier)


def _mrpc(folder: Path, classifier: Classifier) -> Classification | Path:
    place = folder / "MRPC"
    if not place.is_dir():
        return place

    def parse(line: str) -> Pair:
        cells = line.strip().split("\t")
        return cells[3], cells[4], _in_range(cells[0], 2)

    what = "a label 0 or 1, two numbers and two texts between tabs"
    splits = {
        split: _pairs(table(_whole(place / file), parse, rows=rows, what=what, skip=1))
        for split, (file, rows) in MRPC.items()
    }
    return Classification(
        name="mrpc", splits=splits, procedure="cross", classifier=classifier, kind="pair", with_f1=True
    )


def _sick(folder: Path, classifier: Classifier) -> Classification | Path:
    place = folder / "SICK"
    if not place.is_dir():
        return place

    def parse(line: str) -> Pair:
        cells = line.strip().split("\t")
        return cells[1], cells[2], SICK_LABELS[cells[4]]

    what = f"a number, two texts, a score and one of {', '.join(SICK_LABELS)} between tabs"
    splits = {
        split: _pairs(table(_whole(place / file), parse, rows=SICK[split], what=what, skip=1))
        for split, file in SICK_FILES.items()
    }
    return Classification(name="sick-e", splits=splits, procedure="split", classifier=classifier, kind="pair")


def _snli(folder: Path, classifier: Classifier) -> Classification | Path:
    place = folder / "SNLI"
    if not place.is_dir():
        return place
    splits = {}
    for split, rows in SNLI.items():
        left, right = (
            table(_whole(place / f"{side}.{split}"), str, rows=rows, what="a text", encoding="latin-1")
            for side in ("s1", "s2")
        )
        path = _whole(place / f"labels.{split}")
        what = f"one of {', '.join(SNLI_LABELS)}"
        labels = table(path, lambda line: SNLI_LABELS[line.strip()], rows=rows, what=what, encoding="latin-1")
        words = list(SNLI_LABELS)
        # Sorted by the second text first, and by the labels' words.
        turned = sorted_examples(right, left, labels, [words[label] for label in labels])
        splits[split] = Examples(left=turned.right or [], right=turned.left, labels=turned.labels)
    return Classification(
        name="snli",
        splits=splits,
        procedure="split",
        classifier=classifier.without_regulariser(max_passes=15, passes=1),
        kind="entailment",
        facts={"training": "no regulariser, rounds of one pass, max_epoch 15"},
    )


def _pairs(found: list[Pair]) -> Examples:
    return sorted_examples([left for left, _, _ in found], [right for _, right, _ in found], [y for _, _, y in found])


def _in_range(label: str, classes: int) -> int:
    number = int(label)
    if not 0 <= number < classes:
        raise ValueError(label)
    return number


def _whole(path: Path) -> Path:
    if not path.is_file():
        raise UserError(f"{path.parent.name} is incomplete: {path} is missing; unpack the whole set again")
    return path
