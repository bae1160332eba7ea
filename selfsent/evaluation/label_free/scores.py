"""An encoder scored on tests that are made of raw text, without labels.

    mrr@10      reciprocal rank of the answer among all passages of the test
    accuracy    share of the hard negatives that are less similar than the answer; BM25 scores 50
    auc         share of all wrong pairs, of any query, with a smaller cosine than the right pair; detailed tests only
    spearman    of cosine and degree of nearness over all pairs

The score is the plain mean of those of ``SCORED`` that the corpus allows.  They were chosen by how well they rank
encoders of known quality (``benchmarks/verdict_validation.py``).  Intervals resample documents, the same ones for every
system and test.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from jaxtyping import Float, Int

from selfsent.encoder.base import TextEncoder, require_finite
from selfsent.encoder.quantize import unit
from selfsent.errors import CorpusError
from selfsent.evaluation import bootstrap, geometry
from selfsent.evaluation.label_free.document_tests import LEAST, DocumentTests, PairTest
from selfsent.evaluation.label_free.documents import PERTURBATIONS
from selfsent.evaluation.label_free.held_out_retrieval import TIE, count_nearer, expected_scores
from selfsent.evaluation.score import Results, Score, measured
from selfsent.evaluation.task import used_prompts

SCORED: tuple[tuple[str, str], ...] = (
    ("summary", "mrr@10"),
    ("halves", "mrr@10"),
    ("neighbours", "mrr@10"),
    ("summary", "accuracy"),
    ("halves", "accuracy"),
    ("neighbours", "accuracy"),
    ("nearness", "spearman"),
)
# Not in it, by their rank correlation with STS over 40 encoders on Wikipedia: titles (0.63: names, which word matching
# finds) and perturbed sentences (0.27 to 0.76: nearly every encoder finds them all).  Areas under ROC (0.88 to 0.92)
# add nothing to the others.
STRUCTURE = ("summary", "neighbours", "nearness")  # tests that need documents of several sentences
SCORE, RETRIEVAL = "score", "found"  # the mean of SCORED, and that of its mrr@10, in which BM25 can compete
BASELINES = {"bm25": "BM25", "static": "word vectors"}  # systems without training, and what tables call them
_NEIGHBOURS = 10  # the k of hubness
_SAMPLE = 2000  # texts of the geometry
_DRAWS = "documents"  # one name for the resamples of all tests, because they are of the same documents
QueryScores = tuple[Float[np.ndarray, " N"], Int[np.ndarray, " N"]]  # 0-100 for each query, and its document


def require_enough_tests(tests: DocumentTests) -> None:
    """Refuse a corpus that allows none of the tests in the score."""
    if not {test.name for test in tests.every} & {task for task, _ in SCORED}:
        reasons = "; ".join(f"{name}: {why}" for name, why in tests.left_out.items())
        raise CorpusError(
            f"no test can be made of {tests.documents:,} documents ({reasons}): "
            "give more text, or documents of several sentences"
        )


def has_structure(tests: DocumentTests) -> bool:
    """Tell whether a text allows a test of more than single lines: one of ``STRUCTURE``.

    The halves of a line share words and topic whatever the encoder is good for, so they alone decide nothing.
    """
    return any(test.name in STRUCTURE for test in tests.every)


def score_vectors(
    tests: DocumentTests,
    vectors: Float[np.ndarray, "N D"],
    *,
    name: str = "the encoder",
    resamples: int = 1000,
    seed: int = 0,
    with_geometry: bool = True,
    encoder: TextEncoder | None = None,
) -> Results:
    """Score an encoder by its vectors of ``tests.texts``, in their order.

    Args:
        name: of the encoder, for messages.
        encoder: whose prompts the texts were encoded behind, for the protocol; None: without any.
        with_geometry: add alignment, uniformity and the like, which no score depends on.

    Raises:
        EncoderError: vectors hold NaN or infinity; the test is named.
    """
    for test in tests.every:
        rows = tests.prompted.rows(test.prompted)
        require_finite(vectors[rows], [tests.texts[row] for row in rows], name, f" of the test {test.name}")

    def sides(test: PairTest) -> list[Float[np.ndarray, "N D"]]:
        return np.split(vectors[tests.prompted.rows(test.prompted)], 2)

    def similarities(test: PairTest) -> Float[np.ndarray, "N N"]:
        queries, passages = map(unit, sides(test))
        found: np.ndarray = queries @ passages.T
        return found

    cosines = None
    if tests.nearness is not None:
        left, right = map(unit, sides(tests.nearness))
        cosines = np.round(np.einsum("nd,nd->n", left, right), 9)  # those that differ by less are equal
    scores = _score_tests(tests, "cosine", similarities, cosines, resamples, seed)
    if encoder is not None and (used := used_prompts(encoder, tests.prompted.parts)):
        scores = [replace(score, protocol={**score.protocol, **used}) for score in scores]
    if not with_geometry:
        return Results(scores=scores, fingerprint=tests.fingerprint)
    different = [*{text: row for row, text in reversed([*enumerate(tests.texts)])}.values()][::-1]
    sample = vectors[different[:: -(-len(different) // _SAMPLE)]]
    figures = {}
    if related := [test for test in tests.retrieval if test.name not in PERTURBATIONS]:
        queries, answers = map(np.vstack, zip(*map(sides, related), strict=True))
        figures["alignment"] = geometry.alignment(queries, answers)
    for measure in (geometry.uniformity, geometry.mean_cosine, geometry.effective_rank):
        figures[measure.__name__] = measure(sample)
    if len(sample) > _NEIGHBOURS:
        figures["hubness"] = geometry.hubness(sample, k=_NEIGHBOURS)
    scores += [
        Score(task="geometry", split="structure", metric=metric, value=value, n=len(sample))
        for metric, value in figures.items()
    ]
    return Results(scores=scores, fingerprint=tests.fingerprint)


def score_bm25(tests: DocumentTests, *, resamples: int, seed: int = 0) -> Results:
    """Score BM25, which has no vectors: no nearness, and no geometry."""
    scores = _score_tests(tests, "BM25", lambda test: test.bm25, None, resamples, seed)
    return Results(scores=scores, fingerprint=tests.fingerprint)


def _score_tests(
    tests: DocumentTests,
    kind: str,
    similarities: Callable[[PairTest], Float[np.ndarray, "N N"]],
    cosines: Float[np.ndarray, " N"] | None,
    resamples: int,
    seed: int,
) -> list[Score]:
    """Return every metric of every test for one system, then the means.

    Args:
        kind: of similarity.
        cosines: of the pairs of the nearness test; None: it is not scored.
    """
    protocol = {
        "similarity": kind,
        "data": tests.fingerprint,
        "bootstrap": f"{resamples} resamples of documents, seed {seed}",
    }
    scores = []
    for test in tests.retrieval:
        metrics = _score_queries(test, similarities(test), details=tests.details)
        for metric, (values, documents) in metrics.items():
            # In a resample the mean is the sum over the queries of the documents drawn, divided by their number.
            columns = [np.bincount(documents, weights, tests.documents) for weights in (values, np.ones(len(values)))]
            sums, numbers = bootstrap.means(np.stack(columns, axis=1), resamples, seed=seed, name=_DRAWS)
            drawn = np.divide(sums, numbers, out=np.zeros_like(sums), where=numbers > 0)
            scores.append(measured(test.name, "structure", metric, float(values.mean()), drawn, len(values), protocol))
    if tests.nearness is not None and cosines is not None:
        test, degrees = tests.nearness, tests.nearness.degrees
        value = 100 * float(bootstrap.spearman(cosines, degrees, np.ones((len(cosines), 1)))[0])
        chunks = bootstrap.bootstrap_draws(tests.documents, resamples, seed=seed, name=_DRAWS)
        resampled = [bootstrap.spearman(cosines, degrees, counts[test.documents]) for counts in chunks]
        drawn = 100 * np.concatenate(resampled)
        scores.append(measured(test.name, "structure", "spearman", value, drawn, len(cosines), protocol))
    scored = [score for score in scores if (score.task, score.metric) in SCORED]
    for name, parts in ((SCORE, scored), (RETRIEVAL, [score for score in scored if score.metric == "mrr@10"])):
        if parts:
            value = float(np.mean([score.value for score in parts]))
            replicates = [score.replicates for score in parts if score.replicates is not None]
            drawn = np.mean(replicates, axis=0) if replicates else None
            mean_of = {**protocol, "mean of": [f"{score.task} {score.metric}" for score in parts]}
            scores.append(measured(name, "structure", "mean", value, drawn, tests.documents, mean_of))
    return scores


def _score_queries(test: PairTest, similarities: Float[np.ndarray, "N N"], *, details: bool) -> dict[str, QueryScores]:
    """Score each query by every metric."""
    answers = similarities.diagonal()
    ranks = expected_scores(*count_nearer(similarities, answers))
    scores = {"mrr@10": (100 * ranks[:, 0], test.documents)}
    if details:  # the share of all wrong pairs below each answer; ties count half
        wrong = np.sort(similarities[~np.eye(len(similarities), dtype=bool)])
        below = np.searchsorted(wrong, answers - TIE, side="left")
        not_above = np.searchsorted(wrong, answers + TIE, side="right")
        scores["auc"] = 100 * ((below + not_above) / (2 * len(wrong))), test.documents
    rows = np.array([row for row, negatives in enumerate(test.hard_negatives) if len(negatives)], np.int64)
    if len(rows) >= LEAST:
        shares = []
        for row in rows:
            values, answer = similarities[row, test.hard_negatives[row]], answers[row]
            shares.append(np.mean(np.where(np.abs(values - answer) <= TIE, 0.5, values < answer)))
        scores["accuracy"] = 100 * np.array(shares), test.documents[rows]
    return scores
