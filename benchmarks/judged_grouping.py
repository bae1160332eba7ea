"""Does what `selfsent fit --for grouping` keeps gather what labels call one?  Change of four measures.

    python benchmarks/judged_grouping.py DATA OUT --base builtin --base all-MiniLM-L6-v2 --sets banking77,emotion

DATA holds ``mteb/``, ``senteval/`` and ``pairs/hwu64/full.jsonl`` in their authors' layouts.
Latent axes beside the base, and the neighbour map behind both, are fitted, without labels, to lines drawn from the part
of a set that trains; the labels of the other part judge them, at most 3,000 texts:

few-shot    accuracy of a logistic regression of 8 texts a class, mean of 10 draws
v-measure   of k-means with as many clusters as classes, mean of 5 starts
MAP         every text ranks the others; those of its class are relevant
nearest     accuracy of the class that most of the 10 nearest others have

What they cost a search is judged, too: the correlation on STS-B's test part, and for HWU64 how often a
back-translation finds its line among all of them.  Written to OUT/<set>-<base>.json; what is there is not made again.
"""

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import mean

import harness
import numpy as np
from scipy.stats import spearmanr

from selfsent.encoder.affine import AffineMap
from selfsent.encoder.encode import encode
from selfsent.encoder.load import load_encoder
from selfsent.encoder.quantize import unit
from selfsent.evaluation.own_files.labelled import Clustering, FewShot
from selfsent.selection.candidates.neighbour_maps import fit_map
from selfsent.selection.gates import line_weights
from selfsent.selection.scoreboard import STATIC_BASE, short_name
from selfsent.word_vectors.latent_axes import latent_vectors

SETS = ("banking77", "clinc150", "stackoverflow", "hwu64", "emotion", "trec", "subj")
MEASURES = ("few-shot", "v-measure", "MAP", "nearest")
SIZES = (400, 1000, 4000, None)
TESTED, NEAREST = 3000, 10


def read(name: str, data: Path) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return the texts with labels of a set, those that train and those that test."""
    mteb, senteval = data / "mteb", data / "senteval" / "downstream"
    if name == "banking77":
        import csv

        parts = [
            [(text, label) for text, label in [*csv.reader((mteb / name / f"{part}.csv").open())][1:]]
            for part in ("train", "test")
        ]
        return parts[0], parts[1]
    if name == "clinc150":
        content = json.loads((mteb / name / "data_full.json").read_text())
        return [tuple(pair) for pair in content["train"]], [tuple(pair) for pair in content["test"]]
    if name == "emotion":
        parts = [
            [tuple(line.rsplit(";", 1)) for line in (mteb / name / f"{part}.txt").read_text().splitlines()]
            for part in ("train", "test")
        ]
        return parts[0], parts[1]
    if name == "trec":
        parts = [
            [
                (text, label.split(":")[0])
                for label, text in (
                    line.split(" ", 1) for line in (senteval / "TREC" / file).read_text(encoding="latin-1").splitlines()
                )
            ]
            for file in ("train_5500.label", "TREC_10.label")
        ]
        return parts[0], parts[1]
    if name == "stackoverflow":
        folder = mteb / "stackoverflow_short_text"
        titles, labels = (
            (folder / f"{part}_StackOverflow.txt").read_text().splitlines() for part in ("title", "label")
        )
        pairs = [*zip(titles, labels, strict=True)]
    elif name == "hwu64":
        rows = map(json.loads, (data / "pairs" / name / "full.jsonl").open(encoding="utf-8"))
        pairs = [(row["sentence"], row["label"]) for row in rows]
    else:
        pairs = [
            (line, part)
            for part in ("subjective", "objective")
            for line in (senteval / "SUBJ" / f"subj.{part}").read_text(encoding="latin-1").splitlines()
        ]
    order = np.random.default_rng(0).permutation(len(pairs))
    return [pairs[row] for row in order[len(pairs) // 4 :]], [pairs[row] for row in order[: len(pairs) // 4]]


def judge(train: np.ndarray, test: np.ndarray, labels: list[str], answers: list[str]) -> list[float]:
    """Return the four measures of vectors."""
    train, test = unit(train), unit(test)
    texts = FewShot(name="set", train=[("", label) for label in labels], test=[("", label) for label in answers])
    groups = Clustering(name="set", documents=[""] * len(answers), labels=answers)
    found = texts.score(np.vstack([train, test]), resamples=0, seed=0)[0].value
    clusters = groups.score(test, resamples=0, seed=0)[0].value
    return [found, clusters, *gathered(test, answers)]


def gathered(vectors: np.ndarray, labels: list[str]) -> tuple[float, float]:
    """Return MAP, and how often most of the nearest others have the class of a text; N x width of length 1."""
    cosines = vectors @ vectors.T
    np.fill_diagonal(cosines, -np.inf)
    order = np.argsort(-cosines, axis=1, kind="stable")[:, :-1]
    classes = np.unique(labels, return_inverse=True)[1]
    same = classes[order] == classes[:, None]
    several = same.any(axis=1)
    precision = np.cumsum(same, axis=1) / np.arange(1, same.shape[1] + 1)
    average = (precision * same).sum(axis=1)[several] / same.sum(axis=1)[several]
    most = [Counter(row.tolist()).most_common(1)[0][0] for row in classes[order[:, :NEAREST]]]
    return 100 * float(average.mean()), 100 * float(np.mean(most == classes))


def similarities(data: Path) -> tuple[list[str], list[str], list[float]]:
    """Return the pairs of STS-B's test part and how similar people find them."""
    path = data / "senteval" / "downstream" / "STS" / "STSBenchmark" / "sts-test.csv"
    rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
    return [row[5] for row in rows], [row[6] for row in rows], [float(row[4]) for row in rows]


def costs(vectors_of: Callable[[list[str]], np.ndarray], name: str, data: Path) -> list[float]:
    """Return the correlation on STS-B, and for HWU64 the percentage of back-translations that find their line."""
    first, second, gold = similarities(data)
    cosines = (unit(vectors_of(first)) * unit(vectors_of(second))).sum(axis=1)
    found = [100 * float(spearmanr(cosines, gold).statistic)]
    if name == "hwu64":
        rows = map(json.loads, (data / "pairs" / name / "back-translations.jsonl").open(encoding="utf-8"))
        lines = {row["src_text"]: row["tgt_texts"][0] for row in rows}
        lines = {line: other for line, other in lines.items() if line.lower() != other.lower()}
        asked, searched = unit(vectors_of([*lines.values()])), unit(vectors_of([*lines]))
        nearest = np.concatenate([(part @ searched.T).argmax(axis=1) for part in np.array_split(asked, 20)])
        found.append(100 * float(np.mean(nearest == np.arange(len(lines)))))
    return found


def measure(name: str, base: str, given: argparse.Namespace) -> dict:
    """Judge a base, and what is made of it from lines of each size and draw."""
    train, test = read(name, given.data)
    kept = np.random.default_rng(0).permutation(len(test))[:TESTED]
    train, test = list(dict.fromkeys(train)), [test[row] for row in kept]
    labels, answers = [label for _, label in train], [label for _, label in test]
    encoder, general, weights = load_encoder(base), load_encoder(STATIC_BASE), line_weights(base == "builtin")
    known: dict[str, np.ndarray] = {}

    def vectors_of(texts: list[str]) -> np.ndarray:
        if texts[0] not in known:
            known[texts[0]] = unit(encode(encoder, texts))
        return known[texts[0]]

    sides = [[text for text, _ in side] for side in (train, test)]
    before = judge(*map(vectors_of, sides), labels, answers)
    rows, made = [], vectors_of
    for size in SIZES:
        for draw in range(given.draws if size else 1):
            lines = np.random.default_rng(draw).permutation(len(train))[:size]
            held_in = lines[
                : int(len(lines) * (0.7 if len(lines) < 4000 else 0.85))
            ]  # what a selection does not hold out
            texts = [sides[0][row] for row in held_in]
            latent = latent_vectors(general, texts, "en")
            assert latent is not None
            pair = partial(_joined, vectors_of, partial(encode, latent), weights)
            of_train = pair(sides[0])
            dose, agreement, affine = fit_map(of_train[held_in], texts, vectors_of(sides[0])[held_in])
            made = partial(_mapped, pair, affine) if dose else vectors_of
            after = judge(affine(of_train), made(sides[1]), labels, answers) if dose else before
            change = [round(new - old, 2) for new, old in zip(after, before, strict=True)]
            rows.append({"size": size, "draw": draw, "dose": dose, "agreement": round(agreement, 3), "change": change})
            print(name, base, rows[-1], flush=True)
    cost = [costs(vectors_of, name, given.data), costs(made, name, given.data)]
    figures = {"before": [round(value, 2) for value in before], "rows": rows, "costs": np.round(cost, 2).tolist()}
    return {"set": name, "base": short_name(base), **figures}


Embed = Callable[[list[str]], np.ndarray]


def _joined(first: Embed, second: Embed, weights: Sequence[float], texts: list[str]) -> np.ndarray:
    sides = zip((first, second), weights, strict=True)
    return np.hstack([weight**0.5 * unit(embed(texts)) for embed, weight in sides])


def _mapped(embed: Embed, affine: AffineMap, texts: list[str]) -> np.ndarray:
    return affine(embed(texts))


def table(out: Path) -> None:
    """Print a row for every set, base and size, means over draws, and the mean and the worst cell of each size."""
    harness.head("set", "base", "lines", "dose", "agreement", *MEASURES)
    cells = defaultdict(list)
    for path in sorted(out.glob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        harness.row(content["set"], content["base"], "as it is", "", "", *content["before"])
        costs = "; ".join(f"{old:.1f} to {new:.1f}" for old, new in zip(*content["costs"], strict=True))
        print(f"  STS-B{', back-translations found' * (content['set'] == 'hwu64')}: {costs}")
        for size in SIZES:
            some = [row for row in content["rows"] if row["size"] == size]
            change = np.mean([row["change"] for row in some], axis=0)
            cells[content["base"], size].append(change)
            figures = mean(row["dose"] for row in some), mean(row["agreement"] for row in some)
            harness.row(
                content["set"],
                content["base"],
                size or "all",
                *(f"{each:.2f}" for each in figures),
                *(f"{each:+.1f}" for each in change),
            )
    for (base, size), some in cells.items():
        harness.row(
            "mean",
            base,
            size or "all",
            f"worst {np.min(some):+.2f}",
            f"{np.mean(some):+.2f}",
            *(f"{each:+.1f}" for each in np.mean(some, axis=0)),
        )


def main() -> None:
    """Measure every set and base, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--base", action="append", default=[])
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--draws", type=int, default=3)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for base in given.base:
        for name in given.sets.split(","):
            target = given.out / f"{name}-{short_name(base)}.json"
            if not target.is_file():
                target.write_text(json.dumps(measure(name, base, given)), encoding="utf-8")
    table(given.out)


if __name__ == "__main__":
    main()
