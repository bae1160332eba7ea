"""What `selfsent fit` keeps on unlabelled texts, judged by labels that it never saw.

    python benchmarks/fit_labels.py DATA OUT --base builtin --base all-MiniLM-L6-v2 --corpora banking77 --seeds 3

For every corpus and base: fit on the texts of the set, then the labelled score of every candidate.  Written to
OUT/<corpus>-<base>-<seed>.json: the base, what was kept, the best single candidate, and whether the sign of each
difference that fit saw is that of the labels.  A selection that is there is not made again.  At the end, or with
--table alone, the table of all of them.

    python benchmarks/fit_labels.py DATA OUT --table

DATA holds ``mteb/`` and ``senteval/`` in their authors' layouts, and ``pairs/hwu64/full.jsonl`` (sentence, label).
"""

import argparse
import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from statistics import mean

import numpy as np

from selfsent.encoder.encode import encode
from selfsent.encoder.load import load_encoder
from selfsent.evaluation.label_free.scores import SCORE
from selfsent.evaluation.own_files.labelled import Clustering, FewShot, few_shot_draws
from selfsent.evaluation.suite import Suite, read_suite
from selfsent.selection import fit as fitting
from selfsent.selection.held_out_tests import difference
from selfsent.selection.scoreboard import Candidate, Scoreboard, short_name

PUBLIC = {"banking77": "accuracy", "clinc150": "accuracy", "emotion": "accuracy", "stackoverflow": "v-measure"}
CORPORA = (*PUBLIC, "hwu64", "sts")
NEAR = 0.3  # points: a smaller labelled difference has no sign


class Labelled:
    """A set: its texts for fit, and a score of an encoder by its labels."""

    def __init__(self, name: str, data: Path) -> None:
        self.name = name
        self.suite: Suite | None = None
        if name == "sts":
            self.suite = read_suite(["sts"], data / "senteval")
            self.texts = list(dict.fromkeys(self.suite.sentences))
            return
        if name == "hwu64":
            rows = map(json.loads, (data / "pairs" / name / "full.jsonl").open(encoding="utf-8"))
            pairs = [(row["sentence"], row["label"]) for row in rows]
            test = pairs[::4]
            train = [pair for number, pair in enumerate(pairs) if number % 4]
            learnt = {label for _, label in train}
            task = FewShot(name=name, train=train, test=[pair for pair in test if pair[1] in learnt])
            self.texts, self.task, self.metric = [text for text, _ in pairs], task, "accuracy"
        else:
            (found,) = read_suite([name], data).tasks
            assert isinstance(found, FewShot | Clustering)
            self.task, self.metric = found, PUBLIC[name]
            self.texts = [text for text, _ in found.train] if isinstance(found, FewShot) else list(found.documents)
        self.texts = list(dict.fromkeys(self.texts))

    def score(self, encoder: object) -> float:
        """Return accuracy, v-measure or the STS average of six."""
        if self.suite is not None:
            average = self.suite.score(encode(encoder, self.suite.sentences), protocol={}, bootstrap=0).average()
            assert average is not None
            return average.value
        texts = self.task.texts
        used = np.arange(len(texts))
        if isinstance(self.task, FewShot):  # the draws leave most training texts out
            labels = np.array([label for _, label in self.task.train])
            draws = few_shot_draws(labels, self.task.shots, self.task.experiments)
            used = np.union1d(np.concatenate(draws), used[len(labels) :])
        encoded = encode(encoder, [texts[row] for row in used])
        vectors = np.zeros((len(texts), encoded.shape[1]), np.float32)
        vectors[used] = encoded
        scores = self.task.score(vectors, resamples=0, seed=0)
        return next(one.value for one in scores if one.metric == self.metric)


def measure(given: argparse.Namespace, labelled: Labelled, base: str, seed: int, known: dict[str, float]) -> dict:
    """Fit once, and score every candidate with labels."""
    place = given.out / f"{labelled.name}-{short_name(base)}-{seed}"
    seen = {}

    def remember(board):
        board.config = replace(board.config, replace_strong_base=False)  # decided as without that setting
        seen["board"], seen["decision"] = board, choose(board)
        return seen["decision"]

    choose = fitting.choose
    fitting.choose = remember
    try:
        fitting.fit(
            labelled.texts,
            base=base,
            out=place,
            minutes=given.minutes,
            settings=[f"seed={seed}", "replace_strong_base=true", *given.settings],  # so that candidates are made
            resume=True,
        )
    finally:
        fitting.choose = choose
    board, decision = seen["board"], seen["decision"]
    scored = place / "labels.json"
    labels = json.loads(scored.read_text(encoding="utf-8")) if scored.is_file() else {}
    verdicts = {}
    for one in board.candidates:
        if one is not decision.base:
            verdicts[one.name] = verdict(board, one, decision.base)
        if one is decision.base and known:
            labels |= known
        if one.name not in labels:
            labels[one.name] = round(labelled.score(one.open()), 3)
            scored.write_text(json.dumps(labels), encoding="utf-8")
        if one is decision.base:
            known |= {one.name: labels[one.name]}
    best = max(labels, key=lambda name: labels[name])
    return {
        "corpus": labelled.name,
        "base": decision.base.name,
        "seed": seed,
        "kept": decision.kept.name,
        "best": best,
        "labels": labels,
        "verdicts": verdicts,
    }


def verdict(board: Scoreboard, one: Candidate, base: Candidate) -> tuple[str, float, float]:
    """Return what fit sees of a candidate: better or worse on this text, and nothing surely against it elsewhere."""
    for part in ("test", "general test"):
        one.scores.setdefault(part, board.vectors.score(one, part))
    own = difference(one.scores["test"], base.scores["test"], board.measure)
    general = difference(one.scores["general test"], base.scores["general test"], SCORE)
    said = "cannot tell"
    if own.low > 0 and general.high >= 0:
        said = "better"
    if own.high < 0 and general.low <= 0:
        said = "worse"
    return said, round(own.value, 2), round(general.value, 2)


def table(out: Path) -> str:
    """Write the rows that were measured as a table: means over seeds, regret, and verdicts against labels."""
    rows = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(out.glob("*.json"))]
    groups = defaultdict(list)
    for row in rows:
        groups[row["corpus"], row["base"]].append(row)
    lines = [
        "| corpus, base | seeds | base | each candidate less the base | fit | regret |",
        "|---|---|---|---|---|---|",
    ]
    gains, regrets = [], []
    for (corpus, base), some in groups.items():
        level = mean(row["labels"][base] for row in some)
        names = [name for name in some[0]["labels"] if name != base and all(name in row["labels"] for row in some)]
        changes = {name: mean(row["labels"][name] - row["labels"][base] for row in some) for name in names}
        own = [row["labels"][row["kept"]] - row["labels"][base] for row in some]
        gains += own
        regret = max([0.0, *changes.values()]) - mean(own)
        regrets.append(regret)
        each = ", ".join(f"{name.replace(base, 'base')} {value:+.1f}" for name, value in changes.items())
        kept = ", ".join(f"{value:+.1f}" for value in own)
        lines.append(f"| {corpus}, {base} | {len(some)} | {level:.1f} | {each} | {kept} | {regret:.1f} |")
    said = [
        (verdict[0], row["labels"][name] - row["labels"][row["base"]])
        for row in rows
        for name, verdict in row["verdicts"].items()
    ]
    sure = [(word == "better") == (change > 0) for word, change in said if word != "cannot tell" and abs(change) > NEAR]
    near = sum(word != "cannot tell" and abs(change) <= NEAR for word, change in said)
    lines += [
        "",
        f"fit against its base: mean {mean(gains):+.2f}, worst {min(gains):+.2f}; mean regret {mean(regrets):.2f}",
        f"verdicts: {len(said)}; right {sum(sure)}, wrong {len(sure) - sum(sure)}, cannot tell "
        f"{sum(word == 'cannot tell' for word, _ in said)}, sure where labels differ by {NEAR} or less: {near}",
    ]
    return "\n".join(lines)


def main() -> None:
    """Run every corpus and base, and keep what was measured after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--base", action="append", default=[])
    parser.add_argument("--corpora", default=",".join(CORPORA))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--set", action="append", default=[], dest="settings")
    parser.add_argument("--table", action="store_true", help="only write the table")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    known: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)  # labelled scores of the bases
    for seed in range(1, 1 + given.seeds * (not given.table)):
        for corpus in given.corpora.split(","):
            labelled = Labelled(corpus, given.data)
            for base in given.base:
                target = given.out / f"{corpus}-{short_name(base)}-{seed}.json"
                if not target.is_file():
                    load_encoder(base)  # a mistyped one is refused before anything is made
                    row = measure(given, labelled, base, seed, known[corpus, base])
                    target.write_text(json.dumps(row, indent=1), encoding="utf-8")
                print(target.read_text(encoding="utf-8"), flush=True)
    print(table(given.out))


if __name__ == "__main__":
    main()
