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
from types import MappingProxyType
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from selfsent.errors import CorpusError, EncoderError
from selfsent.evaluation import bootstrap, geometry
from selfsent.evaluation.label_free.document_tests import LEAST, DocumentTests, PairTest
from selfsent.evaluation.label_free.held_out_retrieval import TIE, count_nearer, expected_scores
from selfsent.evaluation.label_free.perturbations import PERTURBATIONS
from selfsent.evaluation.score import Difference, Results, Score, compare_results, measured

LEAST_HELD_OUT = 20  # queries, below which intervals of a bootstrap are too short: equal encoders seem to differ

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
STRUCTURE = ("summary", "neighbours", "nearness")  # tests that need documents of several sentences
SCORE, RETRIEVAL = "score", "found"  # the mean of SCORED, and that of its mrr@10, in which BM25 can compete
SINGLE_LINES = "Single lines have no structure to judge by: their halves share words, so that a higher MRR@10"
BASELINES = {"bm25": "BM25", "static": "word vectors"}  # systems without training, and what tables call them
_NEIGHBOURS = 10  # the k of hubness
_SAMPLE = 2000  # texts of the geometry
_DRAWS = "documents"  # one name for the resamples of all tests, because they are of the same documents


class _Comparison(NamedTuple):
    """A baseline without training: what it is compared by, and the words for it."""

    system: str
    subject: str  # with its verb
    task: str
    metric: str
    where: str
    advice: str = ""  # where it is better than the trained encoder


_OF_TESTS = (
    _Comparison("static", "Averaged static word vectors of this text are", SCORE, "mean", "in the score"),
    _Comparison("bm25", "Word matching (BM25) is", RETRIEVAL, "mean", "at finding the answer among all"),
)
_OF_HELD_OUT = (
    _Comparison(
        *(
            "static",
            "Word vectors counted in the training text are",
            "retrieval",
            "mrr@10",
            "at finding the right text (MRR@10)",
        ),
        advice=" `selfsent fit` starts from them.",
    ),
    _Comparison(
        *("bm25", "Word matching (BM25) is", "retrieval", "mrr@10", "at finding the right text (MRR@10)"),
        advice=" Use it where you search.",
    ),
)
QueryScores = tuple[Float[np.ndarray, " N"], Int[np.ndarray, " N"]]  # 0-100 for each query, and its document


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
        if broken := [text for text in dict.fromkeys(test.texts) if not finite[row[text]]]:
            raise EncoderError(
                f"{name} gives NaN or infinity for {len(broken)} texts of the test {test.name}, first for "
                f"{broken[0][:60]!r}: its weights are broken or its precision is too low"
            )

    def rows(texts: Sequence[str]) -> Float[np.ndarray, "N D"]:
        return vectors[[row[text] for text in texts]]

    def similarities(test: PairTest) -> Float[np.ndarray, "N N"]:
        return geometry.unit(rows(test.queries)) @ geometry.unit(rows(test.passages)).T

    cosines = None
    if tests.nearness is not None:
        left, right = geometry.unit(rows(tests.nearness.queries)), geometry.unit(rows(tests.nearness.passages))
        cosines = np.round(np.einsum("nd,nd->n", left, right), 9)  # those that differ by less are equal
    scores = _score_tests(tests, "cosine", similarities, cosines, resamples, seed)
    sample = vectors[:: -(-len(vectors) // _SAMPLE)]
    figures = {}
    if related := [test for test in tests.retrieval if test.name not in PERTURBATIONS]:
        queries = [text for test in related for text in test.queries]
        answers = [text for test in related for text in test.passages]
        figures["alignment"] = geometry.alignment(rows(queries), rows(answers))
    for measure in (geometry.uniformity, geometry.mean_cosine, geometry.effective_rank):
        figures[measure.__name__] = measure(sample)
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
    read: str = "",
) -> LabelFreeVerdict:
    """Compare ``results["trained"]`` with ``results["base"]`` and put it into words.

    Of a text without structure (``has_structure``) the decision is always "cannot tell", and of documents that the
    trained encoder has read never "better".

    Args:
        results: of the same tests with the same resamples; also ``static`` and ``bm25`` where they were scored.
        notes: further sentences.
        facts: further entries of the JSON file.
        read: how much of these documents the trained encoder learned from; empty: none that is known.
    """
    base, trained = results["base"], results["trained"]
    parts = [score for score in trained.scores if (score.task, score.metric) in SCORED]
    what = f"Over {len(parts)} tests made of {tests.documents:,} documents"
    decision, sentence = word_difference(what, base, trained, trained.get(SCORE, "mean"))
    if not has_structure(tests):
        decision, sentence = "cannot tell", _without_structure(tests)
    elif read and decision == "better":  # one that is worse even there is worse
        _, _, figures = sentence.partition(". ")
        decision = "cannot tell"
        sentence = (
            f"Cannot tell: {read}, and scores on what an encoder has read are too high. {figures} Give other "
            "documents, or train with more held out (corpus.held_out_share)."
        )
    sentences = [sentence, *_word_baselines(results, _OF_TESTS), *notes]
    return LabelFreeVerdict(decision, sentences, results, compare_results(trained, base), tests.left_out, facts or {})


def _without_structure(tests: DocumentTests) -> str:
    names = ", ".join(test.name for test in tests.retrieval)
    return (
        f"Cannot tell. This text has no structure to judge by: of its {tests.documents:,} lines or rows fewer than "
        f"{LEAST} have several sentences to test, and tests made of single lines ({names}) decide nothing. Give whole "
        "documents of several sentences, or labels: `selfsent evaluate --tasks classification:FILE`."
    )


def judge_heldout(
    before: Results,
    after: Results,
    baselines: Mapping[str, Results] = MappingProxyType({}),
    *,
    structured: bool = True,
) -> str:
    """Say in words whether the trained encoder is better than its base on what was held out.

    Args:
        structured: False where single lines were held out, whose halves can show that an encoder was damaged, and
            nothing else.
        baselines: ``static`` and ``bm25`` on the same pairs, if they were scored; a sentence says how each compares.
    """
    score = next((score for score in after.scores if score.metric == "mrr@10"), after.average())
    if score is None:
        return (
            "Cannot tell: too few documents could be held out to measure it on (2 for the test at least); "
            "give more text, or set corpus.held_out_share=0.2"
        )
    of_mrr = score.metric == "mrr@10"
    if of_mrr and score.n < LEAST_HELD_OUT:
        return (
            f"Cannot tell: only {score.n} queries were held out to test it on, and {LEAST_HELD_OUT} are needed; give "
            "more text, or set corpus.held_out_share=0.2"
        )
    what = "In finding the text that belongs to each held-out query" if of_mrr else f"In the {score.task}"
    what += f" (MRR@10 of {score.n:,})" if of_mrr else ""
    decision, sentence = word_difference(what, before, after, score)
    if of_mrr and not structured and decision != "worse":
        return (
            f"Cannot tell. {SINGLE_LINES} ({before.get(score.task, score.metric).value:.1f} before, {score.value:.1f} "
            "after) decides nothing. Give whole documents of several sentences, or labels: `selfsent evaluate --tasks "
            "classification:FILE`."
        )
    results = {**baselines, "base": before, "trained": after}
    return " ".join([sentence, *_word_baselines(results, _OF_HELD_OUT)])


def _difference(first: Results, second: Results, of: Score) -> Difference:
    key = of.task, of.metric, of.aggregation
    return next(one for one in compare_results(first, second) if (one.task, one.metric, one.aggregation) == key)


def word_difference(what: str, base: Results, trained: Results, after: Score) -> tuple[Decision, str]:
    """Decide by the interval of the paired difference in one score, and put it into a sentence."""
    before, change = base.get(after.task, after.metric, after.aggregation), _difference(trained, base, after)
    decision: Decision = "better" if change.low > 0 else "worse" if change.high < 0 else "cannot tell"
    opening = "Worse, do not use it" if decision == "worse" else decision.capitalize()
    return decision, (
        f"{opening}. {what}: {before.value:.1f} before, {after.value:.1f} after: a change of {change.value:+.1f} "
        f"(95 % interval {change.low:+.1f} to {change.high:+.1f})."
    )


def _word_baselines(results: Mapping[str, Results], comparisons: Sequence[_Comparison]) -> list[str]:
    """Say of every baseline that was scored whether words alone do as well as the trained encoder."""
    sentences = []
    for name, subject, task, metric, where, advice in comparisons:
        if name not in results:
            continue
        other, trained, base = (results[system].get(task, metric) for system in (name, "trained", "base"))
        lead, base_lead = (_difference(results[system], results[name], other) for system in ("trained", "base"))
        figures = f"{where}: {other.value:.1f} against {trained.value:.1f} trained and {base.value:.1f} base"
        if lead.low > 0:
            sentences.append(f"{subject} behind the trained encoder {where}.")
        elif lead.high < 0:
            those = "both" if base_lead.high < 0 else "the trained encoder"
            sentences.append(f"{subject} better than {those} here, {figures}.{advice}")
        else:
            sentences.append(f"{subject.rsplit(' ', 1)[0]} and the trained encoder cannot be told apart, {figures}.")
    return sentences


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
