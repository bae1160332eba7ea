"""SentEval's labelled files with invented texts: a word gives the label away, more or less."""

from dataclasses import replace

import numpy as np
from tiny import WORDS

from selfsent.evaluation.data_sets import SETS

ROWS = {  # of each file of each split
    "mr": {"all": (70, 70)},
    "cr": {"all": (64, 40)},
    "subj": {"all": (60, 60)},
    "mpqa": {"all": (50, 90)},
    **{name: {"train": (100,), "dev": (30,), "test": (40,)} for name in ("sst2", "sst5")},
    "trec": {"train": (120,), "test": (40,)},
    "mrpc": {"train": (90,), "test": (45,)},
    "sick-e": {"train": (90,), "dev": (40,), "test": (60,)},
}
FEW = {"train": (300,), "dev": (150,), "test": (150,)}  # of STS-B, where it is there for the way alone
FORMS = {
    "sst2": "{left}\t{label}",
    "sst5": "{label} {left}",
    "trec": "{label}:fine {left}",
    "mrpc": "{label}\t1\t2\t{left}\t{right}",
    "sick-e": "{row}\t{left}\t{right}\t{score}\t{label}",
}
HEADERS = {
    "mrpc": "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n",
    "sick-e": "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n",
}


def sentence(rng, label):
    """Some words; the label's own in nine of ten."""
    words = list(rng.choice(WORDS, size=int(rng.integers(2, 7))))
    if rng.random() < 0.9:
        words[0] = f"label{label}"
    return " ".join(rng.permutation(words))


def line(rng, name, row, label):
    """A line of a file; the second text of a pair is the first where its label says so."""
    left = sentence(rng, {"mrpc": 0, "sick-e": 7}.get(name, label))
    same = label == 2 if name == "sick-e" else label and rng.random() < 0.9
    right = left if same else sentence(rng, label if name == "sick-e" else 1)
    word = SETS[name].labels[label]
    return FORMS.get(name, "{left} ").format(row=row, left=left, right=right, label=word, score=1 + 2 * label) + "\n"


def shrink(monkeypatch, name, rows):
    """Let the readers of a set know other counts of rows: of each file of each split."""
    splits = {split: dict(zip(files, rows[split], strict=True)) for split, files in SETS[name].splits.items()}
    monkeypatch.setitem(SETS, name, replace(SETS[name], splits=splits))
    return splits


def write(folder, monkeypatch):
    """Write all transfer tasks but SNLI, small, and let the readers know the small counts."""
    rng = np.random.default_rng(5)
    shrink(monkeypatch, "sickr", ROWS["sick-e"])
    for name, rows in ROWS.items():
        place, classes = folder / SETS[name].folder, len(SETS[name].labels)
        place.mkdir(parents=True)
        for files in shrink(monkeypatch, name, rows).values():
            for of_file, (file, count) in zip((1, 0), files.items(), strict=False):
                labels = [int(row % 3 > 0) if name == "mrpc" else row % classes for row in range(count)]
                if name not in FORMS:
                    labels = [of_file] * count
                lines = [line(rng, name, row, label) for row, label in enumerate(labels)]
                (place / file).write_text(HEADERS.get(name, "") + "".join(lines), encoding="utf-8")
    return folder
