"""SentEval's ten probing tasks: which properties of a sentence a classifier can predict from its vector.

One file per task, tab-separated: the first column is the split (tr, va, te), the second the label, the last the text;
labels are numbered in alphabetical order.  The linear classifier of ``senteval_full`` is DeCLUTR's; ``senteval_mlp`` is
what SentEval's authors recommend, except for the 1,000 classes of word_content.
Conneau et al. 2018, https://arxiv.org/abs/1805.01070.

Each file has 100,000, 10,000 and 10,000 rows.  Sub-sampled files are scored, but their scores say so, enter no average
and are not comparable with published ones.

Source: the behaviour of facebookresearch/SentEval @ 5d6dc11, senteval/probing.py.
"""

from pathlib import Path

from selfsent.errors import DataError
from selfsent.evaluation.senteval.classification import Classification, Row, sorted_examples
from selfsent.evaluation.senteval.classifiers import Classifier, linear_classifier
from selfsent.evaluation.senteval.files import senteval_table

# number of classes, and other names under which the file is found
TASKS: dict[str, tuple[int, tuple[str, ...]]] = {
    "sentence_length": (6, ("sent_len",)),
    "word_content": (1000, ()),
    "tree_depth": (8, ()),
    "top_constituents": (20, ()),
    "bigram_shift": (2, ()),
    "past_present": (2, ()),
    "subj_number": (2, ()),
    "obj_number": (2, ()),
    "odd_man_out": (2, ()),
    "coordination_inversion": (2, ()),
}
SPLITS = {"tr": "train", "va": "dev", "te": "test"}
ROWS = {"train": 100_000, "dev": 10_000, "test": 10_000}


def read_probing(name: str, folder: Path, classifier: Classifier) -> Classification | Path:
    """Read one task from SentEval's ``probing`` folder, or return where it should have been.

    Raises:
        DataError: a line without split, label or text, a split without rows, or classes that are not the task's.
    """
    classes, others = TASKS[name]
    places = [folder / f"{file}.txt" for file in (name, *others)]
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        return places[0]

    def parse(line: str) -> tuple[str, str, str]:
        cells = line.rstrip().split("\t")
        if len(cells) < 3 or not cells[1]:
            raise ValueError(line)
        return SPLITS[cells[0]], cells[1], cells[-1]

    rows = senteval_table(path, parse, what="a split (tr, va, te), a label and a text between tabs")
    known = {label: index for index, label in enumerate(sorted({row[1] for row in rows if row[0] == "train"}))}
    unknown = sorted({label for _, label, _ in rows} - set(known))
    if unknown:
        raise DataError(f"{path} has rows of label {unknown[0]!r} in va or te and none in tr: get the file again")
    if len(known) != classes:
        raise DataError(f"{path} has {len(known)} classes in tr where {name} has {classes}: get the file again")
    splits = {}
    for split in ROWS:
        examples: list[Row] = [(text, None, known[label]) for part, label, text in rows if part == split]
        if not examples:
            raise DataError(f"{path} has no rows for {split}: get the file again")
        splits[split] = sorted_examples(examples)

    counts, full = ("/".join(map(str, of)) for of in ([len(part.labels) for part in splits.values()], ROWS.values()))
    return Classification(
        name=name,
        splits=splits,
        classifier=linear_classifier(classifier) if classes > 100 else classifier,
        facts={} if counts == full else {"rows": f"{counts} of {full}"},
    )
