"""Folders of runs as train writes them, without training."""

import json

from selfsent.storage import atomic


def score(task, value, metric="spearman", aggregation="all", data="d1", width=2.0, n=100, split="test", **protocol):
    return {
        "task": task,
        "split": split,
        "metric": metric,
        "aggregation": aggregation,
        "value": value,
        "low": None if width is None else value - width,
        "high": None if width is None else value + width,
        "n": n,
        "protocol": {"data": data, "bootstrap": "1000 resamples, seed 0", "pooling": "mean", **protocol},
    }


def retrieval(value, data="held1"):
    return score("retrieval", value, "mrr@10", "", data=data, width=4.0, n=393, split="held-out")


def log_lines(steps=40, shift=0.0):
    lines = [{"step": 0, "scores": {"retrieval": 30.0 + shift, "uniformity": -1.5, "alignment": 0.5}, "best": False}]
    for step in range(10, steps + 1, 10):
        terms = {"contrast": 1 / step + shift, "masked_lm": 5.0 - step / 100}
        lines.append({"step": step, "loss": sum(terms.values()), "terms": terms, "figures": {"view_cosine": 0.9}})
        if step % 20 == 0:
            scores = {
                "retrieval": 30.0 + shift + step / 10,
                "uniformity": -1.5 - step / 50,
                "alignment": 0.5 + step / 99,
            }
            lines.append({"step": step, "scores": scores, "best": True})
    return lines


def write_run(folder, *, seed=1, lines=None, scored=True, before=None, after=None, more=None, **recipe):
    """Write the folder of a run; ``recipe`` changes the recipe's table, ``more`` goes into scores.json."""
    folder.mkdir(parents=True)
    table = {"method": "simcse", "base": "builtin", "texts": ["texts.jsonl"], "data": None, "seed": seed}
    table |= {"train": {"steps": 40, "batch_size": 8, "evaluate_every": 20, "learning_rate": 1e-4}} | recipe
    config = {
        "recipe": table,
        "objective": {"temperature": 0.05},
        "corpus": {"fingerprint": "0" * 32, "texts": 1234},
        "hardware": {"device": "cpu", "precision": "fp32", "threads": 1, "processor": "a processor"},
        "versions": {"selfsent": "0.1.0", "commit": "abc1234"},
    }
    atomic.write_sealed(folder / "config.json", config)
    lines = log_lines() if lines is None else lines
    (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if scored:
        content = {
            "base": {"scores": before or [retrieval(30.123)], "missing": {}, "fingerprint": "f"},
            "trained": {"scores": after or [retrieval(34.567 + seed)], "missing": {}, "fingerprint": "f"},
            "verdict": "Better. In finding the right text: 35.6 after against 30.1 before, a difference of +5.4 "
            "(95 % interval +2.1 to +8.8).",
            "outcome": {
                "steps": 40,
                "best_step": 40,
                "best_score": 34.0,
                "selected_by": "retrieval",
                "start": {"retrieval": 30.0},
                "seconds": 75.4,
                "texts_per_second": 123.4,
            },
            "versions": {},
            **(more or {}),
        }
        atomic.seal_file(folder / "log.jsonl")
        atomic.write_sealed(folder / "scores.json", content)
    return folder
