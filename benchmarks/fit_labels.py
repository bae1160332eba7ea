"""What `selfsent fit` keeps on unlabelled texts, judged by labels that it never saw.

    python benchmarks/fit_labels.py DATA OUT --base builtin --base all-MiniLM-L6-v2 --corpora banking77 --seeds 1

For every corpus and base: fit on the training texts of the set, then the labelled score of every candidate.  Written to
OUT/labels.json after each: the base, what was kept, the best single candidate, the regret, and whether the sign of each
difference that fit saw is that of the labels.
"""

import argparse
import json
from pathlib import Path

from selfsent import scoring
from selfsent.evaluation.custom.public_datasets import find_public_dataset, read_public_dataset
from selfsent.evaluation.labelfree.verdict import SCORE
from selfsent.selection import fit as fitting
from selfsent.selection.candidates import short_name
from selfsent.selection.judge import difference

CORPORA = {  # name -> task, metric
    "banking77": ("banking77", "accuracy"),
    "clinc150": ("clinc150", "accuracy"),
    "emotion": ("emotion", "accuracy"),
    "stackoverflow": ("stackoverflow", "v_measure"),
}


def texts_of(name: str, data: Path) -> list[str]:
    """Return the unlabelled texts of a set: those that its classifier trains on, or all titles."""
    task = read_public_dataset(name, find_public_dataset(name, data))
    rows = [text for text, _ in task.train] if hasattr(task, "train") else task.documents
    return list(dict.fromkeys(rows))


def main() -> None:
    """Run every corpus and base, and keep what was measured after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--base", action="append", required=True)
    parser.add_argument("--corpora", default=",".join(CORPORA))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--set", action="append", default=[], dest="settings")
    given = parser.parse_args()
    rows = []
    for seed in range(1, given.seeds + 1):
        for corpus in given.corpora.split(","):
            for base in given.base:
                rows.append(measure(given, corpus, base, seed))
                (given.out / "labels.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
                print(json.dumps(rows[-1]), flush=True)


def measure(given: argparse.Namespace, corpus: str, base: str, seed: int) -> dict[str, object]:
    """Fit once, and score every candidate with labels."""
    place = given.out / f"{corpus}-{short_name(base)}-{seed}"
    place.parent.mkdir(parents=True, exist_ok=True)
    seen = {}

    def remember(stages):
        seen["stages"], seen["decision"] = stages, decide(stages)
        return seen["decision"]

    decide = fitting.decide
    fitting.decide = remember
    try:
        fitting.fit(
            texts_of(corpus, given.data),
            base=base,
            out=place,
            minutes=given.minutes,
            settings=[f"seed={seed}", *given.settings],
            resume=True,
        )
    finally:
        fitting.decide = decide
    stages, decision = seen["stages"], seen["decision"]
    task, metric = CORPORA[corpus]
    labels, verdicts = {}, {}
    for one in stages.candidates:
        results = scoring.evaluate(one.open(), [task], data=given.data, bootstrap=0)["model"]
        labels[one.name] = results.get(task, metric).value
        if one is not decision.base:
            part = "test" if stages.structured else "general test"
            one.scores.setdefault(part, stages.vectors.score(one, part))
            change = difference(one.scores[part], decision.base.scores[part], SCORE)
            said = "better" if change.low > 0 else "worse" if change.high < 0 else "cannot tell"
            verdicts[one.name] = [said, round(change.value, 2), round(change.low, 2), round(change.high, 2)]
    best = max(labels, key=lambda name: labels[name])
    return {
        "corpus": corpus,
        "base": base,
        "seed": seed,
        "kept": decision.kept.name,
        "base score": labels[decision.base.name],
        "kept score": labels[decision.kept.name],
        "best": best,
        "best score": labels[best],
        "labels": labels,
        "verdicts": verdicts,
    }


if __name__ == "__main__":
    main()
