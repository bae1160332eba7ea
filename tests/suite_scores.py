"""Read tasks, encode their texts, score them: with any function as encoder."""

from selfsent.evaluation.suite import DEFAULT_CLASSIFIER, read_suite


def score_tasks(encode, tasks, data, held_out=None, classifier=DEFAULT_CLASSIFIER, stop_on="pearson", **scoring):
    """Return the results of the tasks; ``scoring`` is what Suite.score takes."""
    suite = read_suite(tasks, data, held_out=held_out, classifier=classifier, stop_on=stop_on)
    return suite.score(encode(suite.sentences), **scoring)
