"""Which signals without labels rank encoders as people do?  Spearman's correlation over the candidates of ``fit``.

    python benchmarks/judged_search.py DATA OUT --base builtin --base all-MiniLM-L6-v2 --base all-mpnet-base-v2
    python benchmarks/predictors.py DATA OUT

Held-out documents of the text (what fit sees):
inside    a sentence from inside a document finds it        meaning   without its rarer words        both   their mean

A log of queries without judgements:
pool      documents drawn from all first tens count as relevant (Soboroff et al. 2001)
fused     the part of the first ten that is among those of all systems fused (Nuray and Can 2006)
alone     the part of the first ten that no other system finds, the fewer the better (Spoerri 2007)
spread    standard deviation of the first hundred cosines over their mean (Shtok et al. 2012)

Then the pairs of candidates of one base that the tests decide, by 95 % intervals: right or wrong by the sign of the
difference that people see, however small, surely so where its interval over the queries excludes zero, or cannot tell.
"""

import argparse
import json
from collections import Counter, defaultdict
from pathlib import Path
from statistics import mean

import harness
import numpy as np
from judged_search import COLLECTIONS, Collection
from scipy.stats import rankdata, spearmanr

from selfsent.selection.search_scores import MEANING, MRR

DRAWS, SHARE = 50, 0.1  # of the pool
VERDICTS = ("surely right", "right", "surely wrong", "wrong", "cannot tell")
UNJUDGED = ("pool", "fused", "alone", "spread")


class Systems:
    """What every candidate of every base finds in a collection."""

    def __init__(self, out: Path, collection: Collection) -> None:
        self.people: dict[str, float] = {}
        self.own: dict[str, tuple[float, float]] = {}
        self.first: dict[str, np.ndarray] = {}
        self.cosines: dict[str, np.ndarray] = {}
        self.decided: Counter[str] = Counter()
        for path in sorted(out.glob(f"{collection.name}-*.npz")):
            row, found = json.loads(path.with_suffix(".json").read_text()), np.load(path)
            judged, queries = row["judged"]["document"], {}
            for name in {key.rpartition("|")[0] for key in found}:
                system = name if name == row["base"] else f"{name}, from {row['base']}"
                self.people[system], self.own[system] = judged[name], (row["own"][name][MRR], row["own"][name][MEANING])
                self.first[system], self.cosines[system] = found[f"{name}|rows"], found[f"{name}|cosines"]
                tens = [[collection.names[document] for document in each[:10]] for each in found[f"{name}|rows"]]
                queries[name] = collection.per_query(dict(zip(collection.queries, tens, strict=True)))
            for one, other, decision in row["decided"]:
                if decision not in ("better", "worse"):
                    self.decided["cannot tell"] += 1
                    continue
                better, worse = (one, other) if decision == "better" else (other, one)
                verdict = "right" if judged[better] >= judged[worse] else "wrong"
                self.decided[verdict] += 1
                self.decided[f"surely {verdict}"] += _is_sure(queries[better] - queries[worse])

    def predictors(self, documents: int) -> dict[str, list[float]]:
        """Return every signal, system by system."""
        names = [*self.people]
        tens = np.array([self.first[name][:, :10] for name in names])  # systems x queries x 10
        unjudged = dict(zip(UNJUDGED, (_pool(tens), *_agreement(tens, documents)), strict=False))
        unjudged["spread"] = [
            float((scores.std(axis=1) / scores.mean(axis=1)).mean())
            for scores in (self.cosines[name].astype(float) for name in names)
        ]
        own = np.array([self.own[name] for name in names])
        return {"inside": [*own[:, 0]], "meaning": [*own[:, 1]], "both": [*own.mean(axis=1)], **unjudged}


def _is_sure(differences: np.ndarray) -> bool:
    drawn = np.random.default_rng(0).integers(len(differences), size=(1000, len(differences)))
    low, high = np.quantile(differences[drawn].mean(axis=1), (0.025, 0.975))
    return bool(low > 0 or high < 0)


def _pool(tens: np.ndarray) -> list[float]:
    rng, gains = np.random.default_rng(0), 1 / np.log2(np.arange(2, 12))
    totals = np.zeros(len(tens))
    for query in range(tens.shape[1]):
        pool = np.unique(tens[:, query])
        for _ in range(DRAWS):
            drawn = rng.choice(pool, max(1, round(SHARE * len(pool))), replace=False)
            totals += np.isin(tens[:, query], drawn) @ gains
    return totals.tolist()


def _agreement(tens: np.ndarray, documents: int) -> tuple[list[float], list[float]]:
    fused_parts, alone = np.zeros(len(tens)), np.zeros(len(tens))
    for query in range(tens.shape[1]):
        scores, holders = np.zeros(documents), np.zeros(documents)
        for row in tens[:, query]:
            scores[row] += 1 / (60 + np.arange(1, 11))
            holders[row] += 1
        best = np.flatnonzero(rankdata(-scores, method="ordinal") <= 10)
        fused_parts += np.isin(tens[:, query], best).mean(axis=1)
        alone += (holders[tens[:, query]] == 1).mean(axis=1)
    return fused_parts.tolist(), (-alone).tolist()


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    columns: dict[str, list[float]] = defaultdict(list)
    rows = []
    for name in COLLECTIONS:
        collection = Collection(given.data / name)
        systems = Systems(given.out, collection)
        if len(systems.people) < 3:
            continue
        signals = systems.predictors(len(collection.names))
        people = [*systems.people.values()]
        for signal, values in signals.items():
            columns[signal].append(float(spearmanr(values, people).statistic))
        shares = [systems.decided[verdict] for verdict in VERDICTS]
        rows.append((name, len(people), *(f"{values[-1]:.2f}" for values in columns.values()), *shares))
    harness.head("collection", "systems", *columns, *VERDICTS)
    for row in rows:
        harness.row(*row)
    harness.row("mean", "", *(f"{mean(values):.2f}" for values in columns.values()))


if __name__ == "__main__":
    main()
