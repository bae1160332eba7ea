"""SentEval's labelled files with invented texts: a word gives the label away, more or less."""

import numpy as np
from tiny import WORDS

from selfsent.evaluation import sts
from selfsent.evaluation.senteval import transfer

SIZES = {"mr": (70, 70), "cr": (64, 40), "subj": (60, 60), "mpqa": (50, 90)}
TREC_ROWS = {"train": 120, "test": 40}
MRPC_ROWS = {"train": 90, "test": 45}
SST_ROWS = {"train": 100, "dev": 30, "test": 40}


def sentence(rng, label):
    """Some words; the label's own in nine of ten."""
    words = list(rng.choice(WORDS, size=int(rng.integers(2, 7))))
    if rng.random() < 0.9:
        words[0] = f"label{label}"
    return " ".join(rng.permutation(words))


def write(folder, monkeypatch):
    """Write all transfer tasks but SNLI, small, and let the readers know the small counts."""
    rng = np.random.default_rng(5)
    for name, sizes in SIZES.items():
        place, files = transfer.FILES[name]
        counts = dict(zip(files["all"], sizes, strict=True))
        monkeypatch.setitem(transfer.FILES, name, (place, {"all": counts}))
        (folder / place).mkdir(parents=True)
        for label, (file, rows) in zip((1, 0), counts.items(), strict=True):
            lines = [f"{sentence(rng, label)} \n" for _ in range(rows)]
            (folder / place / file).write_text("".join(lines))
    for name, kind, classes in (("sst2", "binary", 2), ("sst5", "fine", 5)):
        counts = {split: {f"sentiment-{split}": rows} for split, rows in SST_ROWS.items()}
        monkeypatch.setitem(transfer.FILES, name, (f"SST/{kind}", counts))
        (folder / "SST" / kind).mkdir(parents=True)
        for split, rows in SST_ROWS.items():
            labels = [row % classes for row in range(rows)]
            texts = [sentence(rng, label) for label in labels]
            form = "{1}\t{0}\n" if name == "sst2" else "{0} {1}\n"
            lines = [form.format(*pair) for pair in zip(labels, texts, strict=True)]
            (folder / "SST" / kind / f"sentiment-{split}").write_text("".join(lines))
    (folder / "TREC").mkdir()
    files = {split: next(iter(files)) for split, files in transfer.FILES["trec"][1].items()}
    counts = {split: {file: TREC_ROWS[split]} for split, file in files.items()}
    monkeypatch.setitem(transfer.FILES, "trec", ("TREC", counts))
    for split, file in files.items():
        names = list(transfer.QUESTIONS)
        lines = [f"{names[row % 6]}:fine {sentence(rng, row % 6)}\n" for row in range(TREC_ROWS[split])]
        (folder / "TREC" / file).write_text("".join(lines))
    (folder / "MRPC").mkdir()
    files = {split: next(iter(files)) for split, files in transfer.FILES["mrpc"][1].items()}
    counts = {split: {file: MRPC_ROWS[split]} for split, file in files.items()}
    monkeypatch.setitem(transfer.FILES, "mrpc", ("MRPC", counts))
    for split, file in files.items():
        lines = ["\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"]
        for row in range(MRPC_ROWS[split]):
            label = int(row % 3 > 0)
            left = sentence(rng, 0)
            right = left if label and rng.random() < 0.9 else sentence(rng, 1)
            lines.append(f"{label}\t1\t2\t{left}\t{right}\n")
        (folder / "MRPC" / file).write_text("".join(lines), encoding="utf-8")
    (folder / "SICK").mkdir()
    counts = {"train": 90, "dev": 40, "test": 60}
    files = {split: {sts.SICK_FILES[split]: rows} for split, rows in counts.items()}
    monkeypatch.setitem(transfer.FILES, "sick-e", ("SICK", files))
    for split, rows in counts.items():
        monkeypatch.setitem(sts.SICK, split, rows)
        lines = ["pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"]
        for row in range(rows):
            label, word = row % 3, list(transfer.SICK_LABELS)[row % 3]
            left = sentence(rng, 7)
            right = left if label == 2 else sentence(rng, label)
            lines.append(f"{row}\t{left}\t{right}\t{1 + 2 * label}\t{word}\n")
        (folder / "SICK" / sts.SICK_FILES[split]).write_text("".join(lines))
    return folder
