"""Whether a trained encoder is better than its base, judged without labels.

    mrr@10      reciprocal rank of the answer among all passages of the test
    accuracy    share of the hard negatives that are less similar than the answer; BM25 scores 50
    auc         share of all wrong pairs, of any query, with a smaller cosine than the right pair; detailed tests only
    spearman    of cosine and degree of nearness over all pairs

The score is the plain mean of those of ``SCORED`` that the corpus allows.  They were chosen by how well they rank
encoders of known quality (``benchmarks/verdict_validation.py``).  Intervals resample documents, the same ones for every
system and test.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from selfsent.errors import CorpusError, EncoderError
from selfsent.evaluation import bootstrap, geometry
from selfsent.evaluation.labelfree import heldout_retrieval
from selfsent.evaluation.labelfree.document_tests import LEAST, DocumentTests, NearnessTest, RetrievalTest
from selfsent.evaluation.labelfree.perturbations import PERTURBATIONS
from selfsent.evaluation.score import Difference, Results, Score, compare_results, measured

Decision = Literal["better", "worse", "cannot tell"]

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
SCORE, RETRIEVAL = "score", "found"  # the mean of SCORED, and that of its mrr@10, in which BM25 can compete
_NEIGHBOURS = 10  # the k of hubness
_SAMPLE = 2000  # texts of the geometry
_DRAWS = "documents"  # one name for the resamples of all tests, because they are of the same documents


@dataclass(frozen=True)
class LabelFreeVerdict:
    """Whether a trained encoder is better than its base, and the figures behind it."""

    decision: Decision
    sentences: list[str]  # the first compares the two encoders
    results: Mapping[str, Results]  # of base and trained, and of bm25 and static where they were scored
    differences: list[Difference]  # trained less base
    left_out: Mapping[str, str]  # name of a test -> why
    facts: Mapping[str, object]  # further entries of the JSON file

    def __str__(self) -> str:
        return " ".join(self.sentences)

    def as_dict(self) -> dict[str, object]:
        """Return what belongs into a JSON file."""
        return {
            "verdict": self.decision,
            "sentences": self.sentences,
            **{name: results.as_dict() for name, results in self.results.items()},
            "differences": [vars(difference) for difference in self.differences],
            "left_out": dict(self.left_out),
            **self.facts,
        }


@dataclass(frozen=True)
class QueryScores:
    """What each query of a test scores in one metric, and the document that it is from."""

    values: Float[np.ndarray, " N"]  # 0-100
    documents: Int[np.ndarray, " N"]


def require_enough_tests(tests: DocumentTests) -> None:
    """Refuse a corpus that allows none of the tests in the score.

    Raises:
        CorpusError: it names what every test lacks.
    """
    if not {test.name for test in tests.every} & {task for task, _ in SCORED}:
        reasons = "; ".join(f"{name}: {why}" for name, why in tests.left_out.items())
        raise CorpusError(
            f"no test can be made of {tests.documents:,} documents ({reasons}): "
            "give more text, or documents of several sentences"
        )


def score_vectors(
    tests: DocumentTests,
    vectors: Float[np.ndarray, "N D"],
    *,
    name: str = "the encoder",
    resamples: int = 1000,
    seed: int = 0,
) -> Results:
    """Score an encoder by its vectors of ``tests.texts``, in their order.

    Args:
        name: of the encoder, for messages.

    Raises:
        EncoderError: vectors hold NaN or infinity; the test is named.
    """
    row = {text: number for number, text in enumerate(tests.texts)}
    finite = np.isfinite(vectors).all(axis=1)
    for test in tests.every:
        broken = [text for text in dict.fromkeys(test.texts) if not finite[row[text]]]
        if broken:
            raise EncoderError(
                f"{name} gives NaN or infinity for {len(broken)} texts of the test {test.name}, first for "
                f"{broken[0][:60]!r}: its weights are broken or its precision is too low"
            )

    def rows(texts: Sequence[str]) -> Float[np.ndarray, "N D"]:
        return vectors[[row[text] for text in texts]]

    def similarities(test: RetrievalTest) -> Float[np.ndarray, "N N"]:
        return geometry.unit(rows(test.queries)) @ geometry.unit(rows(test.passages)).T

    nearness = None
    if tests.nearness is not None:
        left, right = geometry.unit(rows(tests.nearness.queries)), geometry.unit(rows(tests.nearness.passages))
        nearness = np.einsum("nd,nd->n", left, right)
    scores = _score_tests(tests, "cosine", similarities, nearness, resamples, seed)
    sample = vectors[:: -(-len(vectors) // _SAMPLE)]
    figures = {
        "uniformity": geometry.uniformity(sample),
        "mean_cosine": geometry.mean_cosine(sample),
        "effective_rank": geometry.effective_rank(sample),
    }
    related = [test for test in tests.retrieval if test.name not in PERTURBATIONS]
    if related:
        queries = [text for test in related for text in test.queries]
        answers = [text for test in related for text in test.passages]
        figures = {"alignment": geometry.alignment(rows(queries), rows(answers)), **figures}
    if len(sample) > _NEIGHBOURS:
        figures["hubness"] = geometry.hubness(sample, k=_NEIGHBOURS)
    scores += [
        Score(task="geometry", split="structure", metric=metric, value=value, n=len(sample))
        for metric, value in figures.items()
    ]
    return Results(scores=scores, fingerprint=tests.fingerprint)


def score_bm25(tests: DocumentTests, *, resamples: int = 1000, seed: int = 0) -> Results:
    """Score BM25, which has no vectors: no nearness, and no geometry."""
    scores = _score_tests(tests, "BM25", lambda test: test.bm25, None, resamples, seed)
    return Results(scores=scores, fingerprint=tests.fingerprint)


def judge_tests(
    tests: DocumentTests,
    results: Mapping[str, Results],
    *,
    notes: Sequence[str] = (),
    facts: Mapping[str, object] | None = None,
) -> LabelFreeVerdict:
    """Compare ``results["trained"]`` with ``results["base"]`` and put it into words.

    Args:
        results: of the same tests with the same resamples; also ``static`` and ``bm25`` where they were scored.
        notes: further sentences.
        facts: go into the JSON file as they are.
    """
    base, trained = results["base"], results["trained"]
    differences = compare_results(trained, base)
    change = next(difference for difference in differences if difference.task == SCORE)
    what = f"Over {sum(map(_is_scored, trained.scores))} tests made of {tests.documents:,} documents"
    decision, sentence = word_difference(what, base.get(SCORE, "mean"), trained.get(SCORE, "mean"), change)
    sentences = [sentence, *_word_baselines(results), *notes]
    return LabelFreeVerdict(decision, sentences, results, differences, tests.left_out, facts or {})


def judge_heldout(before: Results, after: Results) -> str:
    """Say in words whether the trained encoder is better than its base on what was held out."""
    score = next((score for score in after.scores if score.metric == "mrr@10"), after.average())
    if score is None:
        return (
            "Cannot tell: too few documents could be held out to measure it on (2 for the test at least); "
            "give more text, or set corpus.held_out_share=0.2"
        )
    old = before.get(score.task, score.metric, score.aggregation)
    changes = {(one.task, one.metric, one.aggregation): one for one in compare_results(after, before)}
    of_mrr = score.metric == "mrr@10"
    what = "In finding the right text from its summary (MRR@10)" if of_mrr else f"In the {score.task}"
    return word_difference(what, old, score, changes[score.task, score.metric, score.aggregation])[1]


def word_difference(what: str, before: Score, after: Score, change: Difference) -> tuple[Decision, str]:
    """Decide by the interval of a paired difference and put it into a sentence."""
    decision: Decision = "better" if change.low > 0 else "worse" if change.high < 0 else "cannot tell"
    opening = {"better": "Better.", "worse": "Worse, do not use it.", "cannot tell": "Cannot tell."}[decision]
    return decision, (
        f"{opening} {what}: {before.value:.1f} before, {after.value:.1f} after: a change of {change.value:+.1f} "
        f"(95 % interval {change.low:+.1f} to {change.high:+.1f})."
    )


def _word_baselines(results: Mapping[str, Results]) -> list[str]:
    """Say whether words alone do as well: static vectors by the score, BM25 by the retrieval in it."""
    sentences = []
    for name, what, task, where in (
        ("static", "Averaged static word vectors of this text are", SCORE, "in the score"),
        ("bm25", "Word matching (BM25) is", RETRIEVAL, "at finding the answer among all"),
    ):
        if name not in results:
            continue
        other, trained, base = (results[system].get(task, "mean") for system in (name, "trained", "base"))
        lead, base_lead = (
            next(one for one in compare_results(results[system], results[name]) if one.task == task)
            for system in ("trained", "base")
        )
        if lead.high < 0 and base_lead.high < 0:
            comparison = f"{what} better than both here"
        elif lead.high < 0:
            comparison = f"{what} better than the trained encoder here"
        elif lead.low > 0:
            comparison = f"{what} behind the trained encoder"
        else:
            comparison = f"{what.rsplit(' ', 1)[0]} and the trained encoder cannot be told apart"
        figures = f"{other.value:.1f} against {trained.value:.1f} trained and {base.value:.1f} base"
        sentences.append(f"{comparison}, {where}: {figures}.")
    return sentences


def _score_tests(
    tests: DocumentTests,
    kind: str,
    similarities: Callable[[RetrievalTest], Float[np.ndarray, "N N"]],
    nearness: Float[np.ndarray, " N"] | None,
    resamples: int,
    seed: int,
) -> list[Score]:
    """Return every metric of every test for one system, then the means; ``kind`` names its similarity."""
    protocol = {
        "similarity": kind,
        "data": tests.fingerprint,
        "bootstrap": f"{resamples} resamples of documents, seed {seed}",
    }
    by_query = {
        (test.name, metric): scores
        for test in tests.retrieval
        for metric, scores in _score_queries(test, similarities(test), details=tests.details).items()
    }
    replicates = _bootstrap_means(list(by_query.values()), tests.documents, resamples, seed)
    scores = [
        measured(task, "structure", metric, float(one.values.mean()), drawn, len(one.values), protocol)
        for ((task, metric), one), drawn in zip(by_query.items(), replicates, strict=True)
    ]
    if tests.nearness is not None and nearness is not None:
        value, drawn = _spearman(tests.nearness, nearness, tests.documents, resamples, seed)
        scores.append(measured("nearness", "structure", "spearman", value, drawn, len(nearness), protocol))
    scored = list(filter(_is_scored, scores))
    for name, parts in ((SCORE, scored), (RETRIEVAL, [score for score in scored if score.metric == "mrr@10"])):
        if parts:
            every = [score.replicates for score in parts if score.replicates is not None]
            value, drawn = float(np.mean([score.value for score in parts])), np.mean(every, axis=0) if every else None
            names = [f"{score.task} {score.metric}" for score in parts]
            mean_of = {**protocol, "mean of": names}
            scores.append(measured(name, "structure", "mean", value, drawn, tests.documents, mean_of))
    return scores


def _score_queries(
    test: RetrievalTest, similarities: Float[np.ndarray, "N N"], *, details: bool
) -> dict[str, QueryScores]:
    """Score each query by every metric."""
    answers = similarities.diagonal()
    ranks = heldout_retrieval.expected_scores(*heldout_retrieval.count_nearer(similarities, answers))
    scores = {f"mrr@{heldout_retrieval.DEPTH}": QueryScores(100 * ranks[:, 0], test.documents)}
    if details:
        scores["auc"] = QueryScores(100 * _placements(similarities, answers), test.documents)
    rows = np.array([row for row, negatives in enumerate(test.hard_negatives) if len(negatives)], np.int64)
    if len(rows) >= LEAST:
        further = [_share_below(similarities[row, test.hard_negatives[row]], answers[row]) for row in rows]
        scores["accuracy"] = QueryScores(100 * np.array(further), test.documents[rows])
    return scores


def _share_below(values: Float[np.ndarray, " K"], answer: float) -> float:
    tied = np.abs(values - answer) <= heldout_retrieval.TIE
    return float(np.mean(np.where(tied, 0.5, values < answer)))


def _placements(similarities: Float[np.ndarray, "N N"], answers: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
    """Return, per answer, the share of all wrong pairs below it; ties count half.  Their mean is the area under ROC."""
    wrong = np.sort(similarities[~np.eye(len(similarities), dtype=bool)])
    below = np.searchsorted(wrong, answers - heldout_retrieval.TIE, side="left")
    not_above = np.searchsorted(wrong, answers + heldout_retrieval.TIE, side="right")
    return (below + not_above) / (2 * len(wrong))


def _bootstrap_means(
    scores: Sequence[QueryScores], documents: int, resamples: int, seed: int
) -> list[Float[np.ndarray, " R"] | None]:
    """Return each mean in every resample of documents: the sum over the queries drawn, divided by their number."""
    columns = [np.bincount(one.documents, one.values, documents) for one in scores]
    columns += [np.bincount(one.documents, minlength=documents).astype(np.float64) for one in scores]
    means = bootstrap.means(np.stack(columns, axis=1), resamples, seed=seed, name=_DRAWS) if scores else None
    if means is None:
        return [None] * len(scores)
    sums, numbers = means[: len(scores)], means[len(scores) :]
    return list(np.divide(sums, numbers, out=np.zeros_like(sums), where=numbers > 0))


def _spearman(
    test: NearnessTest, cosines: Float[np.ndarray, " N"], documents: int, resamples: int, seed: int
) -> tuple[float, Float[np.ndarray, " R"] | None]:
    """Return the correlation of cosines and degrees, and that in every resample of documents."""
    cosines = np.round(cosines, 9)  # those that differ by less are equal
    value = 100 * float(bootstrap.spearman(cosines, test.degrees, np.ones((len(cosines), 1)))[0])
    chunks = bootstrap.bootstrap_draws(documents, resamples, seed=seed, name=_DRAWS)
    drawn = [bootstrap.spearman(cosines, test.degrees, counts[test.documents]) for counts in chunks]
    return value, 100 * np.concatenate(drawn) if drawn else None


def _is_scored(score: Score) -> bool:
    return (score.task, score.metric) in SCORED
