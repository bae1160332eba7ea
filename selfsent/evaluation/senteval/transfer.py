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

import re
from pathlib import Path

from selfsent.evaluation.senteval.classification import Classification, Row, sorted_examples
from selfsent.evaluation.senteval.classifiers import Classifier, unregularised_classifier
from selfsent.evaluation.senteval.files import senteval_table
from selfsent.evaluation.sts import SICK, SICK_FILES

AVERAGED = ("mr", "cr", "subj", "mpqa", "sst2", "trec", "mrpc")  # the literature's average, in its order
BINARY = ("mr", "cr", "subj", "mpqa")
TASKS = (*AVERAGED, "sst5", "sick-e", "snli")

# Folder, and the files and numbers of rows of each split.  The two files of a binary task hold label 1 and label 0;
# beside each s1 of SNLI are an s2 and labels.
FILES: dict[str, tuple[str, dict[str, dict[str, int]]]] = {
    "mr": ("MR", {"all": {"rt-polarity.pos": 5331, "rt-polarity.neg": 5331}}),
    "cr": ("CR", {"all": {"custrev.pos": 2407, "custrev.neg": 1368}}),
    "subj": ("SUBJ", {"all": {"subj.objective": 5000, "subj.subjective": 5000}}),
    "mpqa": ("MPQA", {"all": {"mpqa.pos": 3312, "mpqa.neg": 7294}}),
    "sst2": (
        "SST/binary",
        {"train": {"sentiment-train": 67349}, "dev": {"sentiment-dev": 872}, "test": {"sentiment-test": 1821}},
    ),
    "sst5": (
        "SST/fine",
        {"train": {"sentiment-train": 8544}, "dev": {"sentiment-dev": 1101}, "test": {"sentiment-test": 2210}},
    ),
    "trec": ("TREC", {"train": {"train_5500.label": 5452}, "test": {"TREC_10.label": 500}}),
    "mrpc": ("MRPC", {"train": {"msr_paraphrase_train.txt": 4076}, "test": {"msr_paraphrase_test.txt": 1725}}),
    "sick-e": ("SICK", {split: {file: SICK[split]} for split, file in SICK_FILES.items()}),
    "snli": ("SNLI", {"train": {"s1.train": 549367}, "dev": {"s1.dev": 9842}, "test": {"s1.test": 9824}}),
}
QUESTIONS = {"ABBR": 0, "DESC": 1, "ENTY": 2, "HUM": 3, "LOC": 4, "NUM": 5}
SICK_LABELS = {"CONTRADICTION": 0, "NEUTRAL": 1, "ENTAILMENT": 2}
SNLI_LABELS = {"entailment": 0, "neutral": 1, "contradiction": 2}
DIGITS = {str(digit): digit for digit in range(5)}

# The form of a line, its labels, and what it holds.
LINES: dict[str, tuple[str, dict[str, int], str]] = {
    "sst2": (r"(?P<left>[^\t]*)\t(?P<label>[01])\s*$", DIGITS, "a text, a tab and its label"),
    "sst5": (r"(?P<label>[0-4]) (?P<left>.*)", DIGITS, "a label, a space and its text"),
    "trec": (
        r"(?P<label>\w+):[^ ]* (?P<left>.*)",
        QUESTIONS,
        f"a label such as LOC:city and a question, the label one of {', '.join(QUESTIONS)}",
    ),
    "mrpc": (
        r"(?P<label>[01])(\t[^\t]*){2}\t(?P<left>[^\t]*)\t(?P<right>[^\t]*)",
        DIGITS,
        "a label 0 or 1, two numbers and two texts between tabs",
    ),
    "sick-e": (
        r"[^\t]*\t(?P<left>[^\t]*)\t(?P<right>[^\t]*)\t[^\t]*\t(?P<label>\w+)\s*$",
        SICK_LABELS,
        f"a number, two texts, a score and one of {', '.join(SICK_LABELS)} between tabs",
    ),
}
PAIRS = ("mrpc", "sick-e")  # with a header line


def read_transfer(name: str, folder: Path, classifier: Classifier) -> Classification | Path:
    """Read one task from SentEval's ``downstream`` folder, or return where it should have been.

    Raises:
        DataError: a file is missing beside others, has another number of rows, or a line that cannot be parsed.
    """
    place, splits = folder / FILES[name][0], FILES[name][1]
    if not place.is_dir():
        return place
    rows = {
        split: [
            row
            for label, (file, count) in zip((1, 0), files.items(), strict=False)
            for row in _rows(name, place / file, count, label)
        ]
        for split, files in splits.items()
    }
    return transfer_task(name, rows, classifier)


def transfer_task(name: str, rows: dict[str, list[Row]], classifier: Classifier, **facts: object) -> Classification:
    """Make the task from its rows.

    Args:
        facts: for the protocol of the scores.
    """
    words = None
    if name == "snli":
        words = tuple(SNLI_LABELS)  # SNLI is sorted by the second text first, and by the words of its labels
        classifier = unregularised_classifier(classifier, max_passes=15, passes=1)
        facts = {"training": "no regulariser, rounds of one pass, max_epoch 15", **facts}
    return Classification(
        name=name,
        splits={split: sorted_examples(given, words=words) for split, given in rows.items()},
        classifier=classifier,
        kind="entailment" if name == "snli" else "pair" if name in PAIRS else "text",
        with_f1=name == "mrpc",
        facts=facts,
    )


def _rows(name: str, path: Path, count: int, label: int) -> list[Row]:
    """Read one file, or for SNLI three; the label is that of a binary task's file."""
    if name in BINARY:
        return [(text, None, label) for text in senteval_table(path, str, rows=count, encoding="latin-1")]
    if name == "snli":
        right, labels = (path.with_name(path.name.replace("s1", side)) for side in ("s2", "labels"))
        texts = [senteval_table(side, str, rows=count, encoding="latin-1") for side in (path, right)]
        what = f"one of {', '.join(SNLI_LABELS)}"
        classes = senteval_table(labels, lambda line: SNLI_LABELS[line.strip()], rows=count, what=what)
        return list(zip(*texts, classes, strict=True))
    form, known, what = LINES[name]
    encoding = "latin-1" if name == "trec" else "utf-8"

    def parse(line: str) -> Row:
        if not (cells := re.match(form, line)):
            raise ValueError(line)
        found = cells.groupdict()
        return found["left"], found.get("right"), known[found["label"]]

    return senteval_table(path, parse, rows=count, what=what, encoding=encoding, skip=int(name in PAIRS))
