"""A model in, named numbers out: people's judgement of similarity, what classifiers learn, geometry, retrieval.

    results = run(encode, ["sts", "geometry"], Path("data/senteval"))
    results.get("stsb").value, results.average, results.missing

``baselines`` scores an encoder's poolings and their whitening; it is imported by name.
"""

from selfsent.evaluation.score import Difference, Results, Score, compare, over_seeds
from selfsent.evaluation.suite import Suite, names, read, resolve, run

__all__ = ["Difference", "Results", "Score", "Suite", "compare", "names", "over_seeds", "read", "resolve", "run"]
