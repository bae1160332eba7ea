"""A folder in SentEval's layout with the known row counts and invented texts; and an encoder that counts words."""

from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
from tiny import WORDS

from selfsent.evaluation.data_sets import SETS


def rows(rng, count):
    """Pairs that share some words, and a gold score that knows how many."""
    for _ in range(count):
        left = rng.choice(WORDS, size=6)
        kept = int(rng.integers(0, 7))
        right = np.concatenate([left[:kept], rng.choice(WORDS, size=6 - kept)])
        score = float(np.clip(kept * 5 / 6 + rng.normal(0, 0.5), 0, 5))
        yield f"{score:.2f}", " ".join(left), " ".join(right)


def write_year(folder, name, unscored=0):
    place = folder / "STS" / f"STS{name[3:]}-en-test"
    place.mkdir(parents=True)
    rng = np.random.default_rng(crc32(name.encode()))
    for part, count in SETS[name].splits["test"].items():
        table = list(rows(rng, count)) + [("", "left out", "left out too")] * unscored
        table = [table[index] for index in rng.permutation(len(table))]
        (place / f"STS.input.{part}.txt").write_text("".join(f"{a}\t{b}\n" for _, a, b in table))
        (place / f"STS.gs.{part}.txt").write_text("".join(f"{score}\n" for score, _, _ in table))


@pytest.fixture(scope="session")
def senteval(tmp_path_factory) -> Path:
    """All sets but STS16, in the folder that holds STS and SICK; STS15 has rows without a score."""
    folder = tmp_path_factory.mktemp("data") / "senteval" / "downstream"
    for name in ("sts12", "sts13", "sts14"):
        write_year(folder, name)
    write_year(folder, "sts15", unscored=7)
    rng = np.random.default_rng(1)
    (folder / "STS" / "STSBenchmark").mkdir()
    (folder / "SICK").mkdir()
    for ((file, count),) in map(dict.items, SETS["stsb"].splits.values()):
        lines = [f"genre\tfile\tyear\t0001\t{score}\t{a}\t{b}\n" for score, a, b in rows(rng, count)]
        (folder / "STS" / "STSBenchmark" / file).write_text("".join(lines))
    for ((file, count),) in map(dict.items, SETS["sickr"].splits.values()):
        lines = [f"7\t{a}\t{b}\t{score}\tNEUTRAL\n" for score, a, b in rows(rng, count)]
        header = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
        (folder / "SICK" / file).write_text(header + "".join(lines))
    return folder


@pytest.fixture
def encode():
    """Sum a random vector for each word; ``encode.calls`` keeps the texts of each call."""
    table = {}

    def vector(word):
        if word not in table:
            table[word] = np.random.default_rng(crc32(word.encode())).normal(size=8).astype(np.float32)
        return table[word]

    def encode(texts):
        encode.calls.append(list(texts))
        return np.stack([np.sum([vector(word) for word in text.split()], axis=0) for text in texts])

    encode.calls = []
    return encode
