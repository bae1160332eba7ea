"""Classifiers and topics of one labelled set, by several encoders.

    python benchmarks/classify_topics.py FOLDER builtin-static all-MiniLM-L6-v2 --json figures.json

FOLDER holds a train and a test table of texts with labels, as Banking77 has them.  Classifiers: few-shot as MTEB does
it, cross-validated on the training texts, and fitted on all of them for the test texts.  Topics: v-measure against the
labels of the test texts, with as many topics as labels and with the number that ``topics`` chooses; HDBSCAN beside it.
"""

import time
from pathlib import Path

import harness
import numpy as np
from sklearn.cluster import HDBSCAN
from sklearn.metrics import accuracy_score, f1_score, v_measure_score

import selfsent
from selfsent.encoder.open import open_encoder
from selfsent.evaluation.own_files.tasks import classification_task
from selfsent.labels.vectors import unit_vectors


def measure(model: str, folder: Path) -> dict[str, object]:
    """Return the figures of one encoder."""
    texts, labels = zip(*classification_task("own", folder).test, strict=True)
    scored = selfsent.evaluate(model, [f"classification:{folder}"], bootstrap=0)["model"]
    figures = {"few-shot": {score.metric: score.value for score in scored.scores}}
    start = time.perf_counter()
    kept = selfsent.classify(model, next(folder.glob("train.*")))
    figures |= {"scores": kept.scores, "kept": kept.kept, "notes": kept.notes, "seconds": time.perf_counter() - start}
    found = kept.classifier.predict(texts)
    figures["test"] = accuracy_score(labels, found), f1_score(labels, found, average="macro")
    for number in (len({*labels}), None):
        start = time.perf_counter()
        groups = selfsent.topics(model, texts, number=number)
        figures[f"topics {number}"] = {
            "number": len(groups.topics),
            "v-measure": v_measure_score(labels, groups.labels),
            "seconds": time.perf_counter() - start,
        }
    clusters = HDBSCAN(min_cluster_size=5, copy=True).fit_predict(unit_vectors(open_encoder(model), [*texts]))
    figures["hdbscan"] = {"v-measure": v_measure_score(labels, clusters), "without": float(np.mean(clusters < 0))}
    return figures


def main() -> None:
    """Measure every encoder and keep the figures."""
    parser = harness.options(__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("models", nargs="+")
    arguments = parser.parse_args()
    figures = {}
    for model in arguments.models:
        figures[model] = measure(model, arguments.data)
        print(model, figures[model], flush=True)
        harness.keep_figures(arguments, figures)


if __name__ == "__main__":
    main()
