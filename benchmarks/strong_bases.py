"""What do the methods give from a strong base?  Each method, trained on a text, judged by people and by labels.

    python benchmarks/strong_bases.py DATA OUT --base all-MiniLM-L6-v2 --texts cranfield,banking77 --seeds 1,2
    python benchmarks/strong_bases.py DATA OUT --table

DATA holds ``ir/<collection>`` in BEIR's layout and what ``judged_grouping.py`` reads.  Every method is trained with its
own rate, batch and schedule in 100 steps, and milder: 50 steps at a lower rate.  The pooling stays the base's.
Judged: nDCG@10 of a collection, one vector a document; of lines the mean of few-shot accuracy, v-measure, MAP and
nearest neighbours.  Written to OUT/<text>-<base>-<method>-<setting>-<seed>.json; what is there is not made again, so
several processes may share a folder.  Two methods that others know from sentence-transformers stand beside ours.
"""

import argparse
import json
import tempfile
from collections import defaultdict
from functools import partial
from itertools import product
from pathlib import Path
from statistics import mean, stdev

import harness
import numpy as np
from judged_grouping import TESTED, judge, read
from judged_search import Collection
from peer_losses import PEERS, train_peer

import selfsent
from selfsent.encoder.quantize import unit
from selfsent.selection.scoreboard import short_name

METHODS = ("simcse", "scd", "denosent", "whitenedcse", "declutr", *PEERS)
OF_DOCUMENTS = ("declutr", "gpl", "gpl-lora")  # several spans or sentences of one text
OWN, MILD = "own", "3e-6"
STEPS = {OWN: 100, MILD: 50}
PEER_RATES = {"tsdae": 3e-5, "gpl": 2e-5, "gpl-lora": 2e-5}  # as published; with LoRA ten times as much
COLLECTIONS = ("cranfield", "cacm", "med")
LINES = ("banking77", "clinc150", "stackoverflow")


class Text:
    """What a text trains on, and what judges an encoder of it."""

    def __init__(self, name: str, data: Path, folder: Path, precision: str) -> None:
        self.precision = precision
        self.documents = name in COLLECTIONS
        self.path = folder / "lines.txt"
        if self.documents:
            self.collection = Collection(data / "ir" / name)
            self.path = self.collection.corpus
            self.texts = [text.opening or text.passages[0] for text in self.collection.texts["document"]]
        else:
            train, test = read(name, data)
            kept = np.random.default_rng(0).permutation(len(test))[:TESTED]
            self.train, self.test = list(dict.fromkeys(train)), [test[row] for row in kept]
            self.texts = [" ".join(text.split()) for text, _ in self.train]
            self.path.write_text("\n".join(self.texts) + "\n", encoding="utf-8")

    def score(self, model: str | Path) -> float:
        """Return what people or labels give an encoder."""
        encode = partial(selfsent.encode, selfsent.load(model), precision=self.precision)
        if self.documents:
            sides = (self.collection.queries.values(), self.texts)
            asked, found = (unit(encode([*each])) for each in sides)
            best = np.argsort(-asked @ found.T, axis=1, kind="stable")[:, :10]
            names = [[self.collection.names[row] for row in rows] for rows in best]
            return self.collection.judge(dict(zip(self.collection.queries, names, strict=True)))
        sides = [encode([text for text, _ in side]) for side in (self.train, self.test)]
        labels, answers = ([label for _, label in side] for side in (self.train, self.test))
        return mean(judge(*sides, labels, answers))


def measure(text: Text, base: str, method: str, setting: str, seed: int, steps: int, folder: Path) -> float:
    """Train a method, and judge what it gives."""
    if method in PEERS:
        rate = PEER_RATES[method] if setting == OWN else float(MILD)
        return text.score(train_peer(method, text.texts, base, steps, rate, seed, folder / "model"))
    settings = [
        *("train.select=last", "train.evaluate_every=0", "train.baselines=false", "encoder.pooling=mean"),
        f"train.steps={steps}",
    ]
    if setting == MILD:
        settings += [f"train.learning_rate={MILD}", "train.warmup_steps=0"]
    if not text.documents:
        settings.append("corpus.split=no")
    if method == "declutr":  # abstracts are shorter than the 2,048 tokens of the published spans
        settings.append("objective.max_length=40")
    if (method, setting) == ("denosent", OWN):  # published with 500 steps of warm-up, more than there are here
        settings.append(f"train.warmup_steps={steps // 5}")
    run = selfsent.train(method, corpus=text.path, base=base, out=folder / "run", seed=seed, settings=settings)
    return text.score(run.model)


def table(out: Path) -> None:
    """Print, for every base and text, what each method changes in each setting: mean and spread over seeds."""
    before: dict[tuple[str, str], float] = {}
    change: dict[tuple[str, str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    rows = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(out.glob("*.json"))]
    for row in rows:
        if row["method"] is None:
            before[row["base"], row["text"]] = row["score"]
    for row in rows:
        if row["method"] is not None:
            gained = row["score"] - before[row["base"], row["text"]]
            change[row["base"], row["method"], row["setting"]][row["text"]].append(gained)
    names = (*COLLECTIONS, *LINES)
    harness.head("base", "method", "setting", *names)
    for base in dict.fromkeys(base for base, _ in before):
        harness.row(base, "", "", *(f"{before[base, text]:.1f}" if (base, text) in before else "" for text in names))
    for (base, method, setting), texts in change.items():
        spreads = {text: f" ({stdev(some):.2f})" if some[1:] else "" for text, some in texts.items()}
        cells = (f"{mean(texts[text]):+.2f}{spreads[text]}" if text in texts else "" for text in names)
        harness.row(base, method, setting, *cells)


def main() -> None:
    """Train and judge what is not there yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--base", action="append", default=[])
    parser.add_argument("--texts", default=",".join((*COLLECTIONS, *LINES)))
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--settings", default=",".join(STEPS))
    parser.add_argument("--seeds", default="1,2")
    parser.add_argument("--steps", type=int, help="train so many instead, in every setting (then of another OUT)")
    parser.add_argument("--precision", default="auto", help="of the vectors that are judged")
    parser.add_argument("--table", action="store_true", help="only print the table")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for name in given.texts.split(",") if not given.table else ():
        with tempfile.TemporaryDirectory() as scratch:
            text = Text(name, given.data, Path(scratch), given.precision)
            for base in given.base:
                jobs = [
                    job
                    for job in product(given.methods.split(","), given.settings.split(","), given.seeds.split(","))
                    if text.documents or job[0] not in OF_DOCUMENTS
                ]
                for method, setting, seed in [(None, None, "0"), *jobs]:
                    label = "as-it-is" if method is None else f"{method}-{setting}-{seed}"
                    target = given.out / f"{name}-{short_name(base)}-{label}.json"
                    if target.is_file():
                        continue
                    row = {"base": short_name(base), "text": name, "method": method, "setting": setting, "seed": seed}
                    if method is None:
                        row["score"] = text.score(base)
                    else:
                        steps = given.steps or STEPS[setting]
                        with tempfile.TemporaryDirectory() as folder:
                            row["score"] = measure(text, base, method, setting, int(seed), steps, Path(folder))
                    target.write_text(json.dumps(row), encoding="utf-8")
                    print(json.dumps(row), flush=True)
    table(given.out)


if __name__ == "__main__":
    main()
