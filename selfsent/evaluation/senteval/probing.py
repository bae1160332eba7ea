"""SentEval's ten probing tasks: which properties of a sentence a classifier finds in its vector.

One file a task, five or so columns between tabs of which the first is the split (tr, va, te), the second the label and
the last the text; labels are numbered in the order of the alphabet.  The linear classifier of ``senteval_full`` is
DeCLUTR's; ``senteval_mlp`` is what SentEval's authors recommend, except for the 1,000 classes of word_content.
Conneau et al. 2018, https://arxiv.org/abs/1805.01070.

Each file has 100,000, 10,000 and 10,000 rows.  Sub-sampled files are scored, but their scores say so, enter no
average and compare with nobody's.  Source: the behaviour of facebookresearch/SentEval @ 5d6dc11, senteval/probing.py.
"""

from pathlib import Path

from selfsent.errors import UserError
from selfsent.evaluation.senteval.classification import Classification, sorted_examples
from selfsent.evaluation.senteval.classifiers import Classifier
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
        UserError: a line without split, label or text, a split without rows, or classes that are not the task's.
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

    found = senteval_table(path, parse, rows=None, what="a split (tr, va, te), a label and a text between tabs")
    known = {
        label: index for index, label in enumerate(sorted({label for split, label, _ in found if split == "train"}))
    }
    strange = sorted({label for _, label, _ in found} - set(known))
    if strange:
        raise UserError(f"{path} has rows of label {strange[0]!r} in va or te and none in tr: get the file again")
    if len(known) != classes:
        raise UserError(f"{path} has {len(known)} classes in tr where {name} has {classes}: get the file again")
    splits = {}
    for split in ROWS:
        rows = [(text, known[label]) for part, label, text in found if part == split]
        if not rows:
            raise UserError(f"{path} has no rows for {split}: get the file again")
        splits[split] = sorted_examples([text for text, _ in rows], None, [label for _, label in rows])

    counts = {split: len(examples.labels) for split, examples in splits.items()}
    share = "/".join(map(str, counts.values()))
    full = counts == ROWS
    return Classification(
        name=name,
        splits=splits,
        procedure="split",
        classifier=classifier.for_linear_task() if classes > 100 else classifier,
        note="" if full else f"sub-sampled, {share} rows of 100000/10000/10000: compares with nobody's score",
        facts={} if full else {"rows": f"{share} of 100000/10000/10000"},
    )
