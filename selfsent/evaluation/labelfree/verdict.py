"""Whether a trained encoder is better than its base, judged by text that nobody labelled.

    mrr@10      reciprocal rank of the answer among all passages of the test
    accuracy    share of the hard negatives that lie further away than the answer; word matching scores 50
    auc         share of all wrong pairs, of whichever queries, with a smaller cosine than the right pair
    spearman    of cosine and degree of nearness over all pairs

The score is the plain mean of ``SCORED``, those of them that the corpus allows.  Which are in it was decided by how
well they rank encoders of known quality (``benchmarks/verdict_validation.py``); the others are measured and shown
beside it.  Intervals resample documents, the same ones for every system and test.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from selfsent.errors import UserError
from selfsent.evaluation import bootstrap, geometry
from selfsent.evaluation.labelfree import heldout_retrieval
from selfsent.evaluation.labelfree.document_tests import LEAST, DocumentTests, Graded, Matching
from selfsent.evaluation.labelfree.perturbations import VARIANTS
from selfsent.evaluation.score import Difference, Results, Score, compare_results, measured

Encode = Callable[[list[str]], Float[np.ndarray, "N D"]]
Similarity = Callable[[Matching], Float[np.ndarray, "N N"]]
Word = Literal["better", "worse", "cannot tell"]

SCORED: tuple[tuple[str, str], ...] = (
    ("summary", "mrr@10"),
    ("halves", "mrr@10"),
    ("neighbours", "mrr@10"),
    ("summary", "accuracy"),
    ("halves", "accuracy"),
    ("neighbours", "accuracy"),
    ("nearness", "spearman"),
)
# Left out, by their rank correlation with STS over 40 encoders on Wikipedia: titles (0.63: names, which words find) and
# a sentence's own variants (0.27 to 0.76: nearly every encoder finds them all).  Areas under ROC (0.88 to 0.92) add
# nothing to the others.
SCORE, FOUND = "score", "found"  # the mean of SCORED, and that of the mrr@10 which word matching may win
_NEIGHBOURS = 10  # the k of hubness
_SAMPLE = 2000  # texts of the geometry


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What is said of a trained encoder, and what it rests on."""

    word: Word
    sentences: list[str]  # the verdict in words, the first of them about the encoder and its base
    results: Mapping[str, Results]  # base, trained, and those beside them
    differences: list[Difference]  # trained less base
    left_out: Mapping[str, str]  # test -> why
    facts: Mapping[str, object] = field(default_factory=dict)  # what only the caller knows

    def __str__(self) -> str:
        return " ".join(self.sentences)

    def as_dict(self) -> dict[str, object]:
        """Return what belongs into a JSON file."""
        return {
            "verdict": self.word,
            "sentences": self.sentences,
            **{name: results.as_dict() for name, results in self.results.items()},
            "differences": [vars(difference) for difference in self.differences],
            "left_out": dict(self.left_out),
            **self.facts,
        }


@dataclass(frozen=True)
class Points:
    """What each query of a test scores in one metric, and the document it is of."""

    values: Float[np.ndarray, " N"]  # 0-100
    documents: Int[np.ndarray, " N"]


def require_enough_tests(tests: DocumentTests) -> None:
    """Refuse a corpus that allows none of the tests in the score.

    Raises:
        UserError: it names what every test lacks.
    """
    possible = {test.name for test in tests.every}
    if not possible & {task for task, _ in SCORED}:
        reasons = "; ".join(f"{name}: {why}" for name, why in tests.left_out.items())
        raise UserError(
            f"no test can be made of {tests.documents:,} documents ({reasons}): "
            "give more text, or documents of several sentences"
        )


def embed_tests(name: str, encode: Encode, tests: DocumentTests) -> dict[str, Float[np.ndarray, " D"]]:
    """Encode every different text of the tests once.

    Args:
        name: of the encoder, for messages.

    Raises:
        UserError: vectors are not one for each text, differ in width, or hold NaN or infinity; the test is named.
    """
    vectors = list(encode(tests.texts))
    if len(vectors) != len(tests.texts):
        raise UserError(
            f"{name} gives {len(vectors):,} vectors for {len(tests.texts):,} texts: it must give one for each"
        )
    widths = sorted({len(vector) for vector in vectors})
    if len(widths) > 1:
        raise UserError(
            f"{name} gives vectors of different widths ({widths[0]} and {widths[-1]}): "
            "every text must get a vector of the same width"
        )
    found = dict(zip(tests.texts, vectors, strict=True))
    for test in tests.every:
        broken = [text for text in dict.fromkeys(test.texts) if not np.isfinite(found[text]).all()]
        if broken:
            raise UserError(
                f"{name} gives NaN or infinity for {len(broken)} texts of the test {test.name}, first for "
                f"{broken[0][:60]!r}: its weights are broken or its precision is too low"
            )
    return found


def score_vectors(
    tests: DocumentTests, vectors: Mapping[str, Float[np.ndarray, " D"]], *, resamples: int = 1000, seed: int = 0
) -> Results:
    """Score an encoder by its vectors of ``tests.texts``."""

    def rows(texts: Sequence[str]) -> Float[np.ndarray, "N D"]:
        return np.stack([vectors[text] for text in texts])

    def similarity(test: Matching) -> Float[np.ndarray, "N N"]:
        return geometry.unit(rows(test.queries)) @ geometry.unit(rows(test.passages)).T

    near = {
        test.name: np.einsum("nd,nd->n", geometry.unit(rows(test.left)), geometry.unit(rows(test.right)))
        for test in tests.graded
    }
    results = _results(tests, similarity, near, "cosine", resamples, seed)
    right = [test for test in tests.matchings if test.name not in VARIANTS]
    shown = rows(tests.texts[:: -(-len(tests.texts) // _SAMPLE)])
    figures = {
        "uniformity": geometry.uniformity(shown),
        "mean_cosine": geometry.mean_cosine(shown),
        "effective_rank": geometry.effective_rank(shown),
    }
    if right:
        queries, answers = (
            [text for test in right for text in getattr(test, side)] for side in ("queries", "passages")
        )
        figures = {"alignment": geometry.alignment(rows(queries), rows(answers)), **figures}
    if len(shown) > _NEIGHBOURS:
        figures["hubness"] = geometry.hubness(shown, k=_NEIGHBOURS)
    return Results(
        scores=results.scores + [_figure(metric, value, len(shown)) for metric, value in figures.items()],
        fingerprint=results.fingerprint,
    )


def score_bm25(tests: DocumentTests, *, resamples: int = 1000, seed: int = 0) -> Results:
    """Score BM25, which has no vectors: no nearness, and no geometry."""
    return _results(tests, lambda test: test.words_shared, {}, "BM25", resamples, seed)


def judge_tests(
    tests: DocumentTests,
    results: Mapping[str, Results],
    *,
    notes: Sequence[str] = (),
    facts: Mapping[str, object] | None = None,
) -> Verdict:
    """Compare ``results["trained"]`` with ``results["base"]`` and put it into words.

    Args:
        results: of the same tests with the same resamples; ``static`` and ``bm25`` beside them where there are any.
        notes: further sentences: what shows a collapse, where the text is from.
        facts: go into the JSON file as they are.
    """
    base, trained = results["base"], results["trained"]
    differences = compare_results(trained, base)
    change = next(difference for difference in differences if difference.task == SCORE)
    old, new = base.get(SCORE, "mean"), trained.get(SCORE, "mean")
    word: Word = "better" if change.low > 0 else "worse" if change.high < 0 else "cannot tell"
    opening = {"better": "Better.", "worse": "Worse, do not use it.", "cannot tell": "Cannot tell."}[word]
    counted = sum(map(_is_scored, trained.scores))
    sentences = [
        f"{opening} Over {counted} tests made of {tests.documents:,} documents: {old.value:.1f} before, "
        f"{new.value:.1f} after: a change of {change.value:+.1f} "
        f"(95 % interval {change.low:+.1f} to {change.high:+.1f})."
    ]
    sentences += [*_of_others(results), *notes]
    return Verdict(
        word=word,
        sentences=sentences,
        results=results,
        differences=differences,
        left_out=tests.left_out,
        facts=facts or {},
    )


def _of_others(results: Mapping[str, Results]) -> list[str]:
    """Say whether words alone do as well: static vectors by the score, BM25 by what it may win."""
    sentences = []
    for name, what, task in (
        ("static", "Averaged static word vectors of this text", SCORE),
        ("bm25", "Word matching (BM25)", FOUND),
    ):
        if name not in results:
            continue
        other = results[name].get(task, "mean")
        ours = {system: results[system].get(task, "mean") for system in ("base", "trained")}
        # Intervals of the paired difference, not of each alone.
        gaps = {system: _gap(score, other) for system, score in ours.items()}
        in_what = "in the score" if task == SCORE else "at finding the answer among all"
        figures = f"{other.value:.1f} against {ours['trained'].value:.1f} trained and {ours['base'].value:.1f} base"
        if all(high < 0 for _, high in gaps.values()):
            sentences.append(f"{what} are better than both here, {in_what}: {figures}.")
        elif gaps["trained"][1] < 0:
            sentences.append(f"{what} are better than the trained encoder here, {in_what}: {figures}.")
        elif gaps["trained"][0] > 0:
            sentences.append(f"{what} are behind the trained encoder, {in_what}: {figures}.")
        else:
            sentences.append(f"{what} and the trained encoder cannot be told apart, {in_what}: {figures}.")
    return [sentence.replace("(BM25) are", "(BM25) is") for sentence in sentences]


def _gap(one: Score, other: Score) -> tuple[float, float]:
    assert one.replicates is not None
    assert other.replicates is not None
    low, high = np.quantile(one.replicates - other.replicates, (0.025, 0.975))
    return float(low), float(high)


def _results(
    tests: DocumentTests,
    similarity: Similarity,
    near: Mapping[str, Float[np.ndarray, " N"]],
    kind: str,
    resamples: int,
    seed: int,
) -> Results:
    measured: dict[tuple[str, str], Points] = {}
    for test in tests.matchings:
        for metric, points in _measure(test, similarity(test)).items():
            measured[test.name, metric] = points
    drawn = _replicates(list(measured.values()), tests.documents, resamples, seed)
    protocol = {
        "similarity": kind,
        "data": tests.fingerprint,
        "bootstrap": f"{resamples} resamples of documents, seed {seed}",
    }
    scores = [
        _score(key, float(points.values.mean()), len(points.values), replicates, protocol)
        for (key, points), replicates in zip(measured.items(), drawn, strict=True)
    ]
    for graded in tests.graded:
        if graded.name in near:
            scores.append(_graded(graded, near[graded.name], tests.documents, resamples, seed, protocol))
    for name, parts in (
        (SCORE, [score for score in scores if _is_scored(score)]),
        (FOUND, [score for score in scores if score.metric == "mrr@10" and _is_scored(score)]),
    ):
        if parts:
            every = [score.replicates for score in parts if score.replicates is not None]
            mean = np.mean(every, axis=0) if len(every) == len(parts) else None
            of = [f"{score.task} {score.metric}" for score in parts]
            value = float(np.mean([score.value for score in parts]))
            scores.append(_score((name, "mean"), value, tests.documents, mean, {**protocol, "mean of": of}))
    return Results(scores=scores, fingerprint=tests.fingerprint)


def _measure(test: Matching, similarity: Float[np.ndarray, "N N"]) -> dict[str, Points]:
    """Score each query by every metric."""
    every = np.arange(len(similarity))
    answers = similarity[every, every]
    ranks = heldout_retrieval.expected_scores(*heldout_retrieval.count_nearer(similarity, answers))
    found = {
        f"mrr@{heldout_retrieval.DEPTH}": Points(100 * ranks[:, 0], test.documents),
        "auc": Points(100 * _placements(similarity, answers), test.documents),
    }
    rows = np.array([row for row, negatives in enumerate(test.hard) if len(negatives)], np.int64)
    if len(rows) >= LEAST:
        further = [_share_below(similarity[row, test.hard[row]], answers[row]) for row in rows]
        found["accuracy"] = Points(100 * np.array(further), test.documents[rows])
    return found


def _share_below(values: Float[np.ndarray, " K"], answer: float) -> float:
    tied = np.abs(values - answer) <= heldout_retrieval.TIE
    return float(np.mean(np.where(tied, 0.5, values < answer)))


def _placements(similarity: Float[np.ndarray, "N N"], answers: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
    """Return, per answer, the share of all wrong pairs below it; ties count half.  Their mean is the area under ROC."""
    wrong = np.sort(similarity[~np.eye(len(similarity), dtype=bool)])
    below = np.searchsorted(wrong, answers - heldout_retrieval.TIE, side="left")
    not_above = np.searchsorted(wrong, answers + heldout_retrieval.TIE, side="right")
    return (below + not_above) / (2 * len(wrong))


def _replicates(
    measured: Sequence[Points], documents: int, resamples: int, seed: int
) -> list[Float[np.ndarray, " R"] | None]:
    """Return each mean in every resample of documents: the sum of what is drawn over its number."""
    columns = [np.bincount(points.documents, points.values, documents) for points in measured]
    columns += [np.bincount(points.documents, minlength=documents).astype(np.float64) for points in measured]
    means = bootstrap.means(np.stack(columns, axis=1), resamples, seed=seed, name=_DRAWS) if measured else None
    if means is None:
        return [None] * len(measured)
    sums, numbers = means[: len(measured)], means[len(measured) :]
    return list(np.divide(sums, numbers, out=np.zeros_like(sums), where=numbers > 0))


_DRAWS = "documents"  # the name of the resamples, one for all tests: they are of the same documents


def _graded(
    test: Graded,
    similarity: Float[np.ndarray, " N"],
    documents: int,
    resamples: int,
    seed: int,
    protocol: Mapping[str, object],
) -> Score:
    similarity = np.round(similarity, 9)  # cosines closer than that are one and the same
    once = np.ones((len(similarity), 1))
    value = 100 * float(bootstrap.spearman(similarity, test.degrees, once)[0])
    chunks = bootstrap.bootstrap_draws(documents, resamples, seed=seed, name=_DRAWS)
    drawn = [bootstrap.spearman(similarity, test.degrees, counts[test.documents]) for counts in chunks]
    replicates = 100 * np.concatenate(drawn) if drawn else None
    return _score((test.name, "spearman"), value, len(similarity), replicates, protocol)


def _score(
    key: tuple[str, str],
    value: float,
    n: int,
    replicates: Float[np.ndarray, " R"] | None,
    protocol: Mapping[str, object],
) -> Score:
    task, metric = key
    return measured(task, "structure", metric, value, replicates, n, protocol)


def _figure(metric: str, value: float, n: int) -> Score:
    return Score(task="geometry", split="structure", metric=metric, value=value, n=n)


def _is_scored(score: Score) -> bool:
    return (score.task, score.metric) in SCORED


def judge_heldout(before: Results, after: Results) -> str:
    """Say in words whether the trained encoder is better than its base on what was held out."""
    key = next((s.key for s in after.scores if s.metric == "mrr@10"), None)
    if key is None:
        if after.average is None or before.average is None:
            return (
                "Cannot tell: too few documents could be held out to measure it on (2 for the test at least); "
                "give more text, or set corpus.held_out_share=0.2"
            )
        key = after.average.key
    old = next(score for score in before.scores if score.key == key)
    new = next(score for score in after.scores if score.key == key)
    change = next(d for d in compare_results(after, before) if (d.task, d.split, d.metric, d.aggregation) == key)
    what = "finding the right text from its summary (MRR@10)" if key[2] == "mrr@10" else f"the {old.task}"
    figures = (
        f"{old.value:.1f} before, {new.value:.1f} after: a change of {change.value:+.1f} "
        f"(95 % interval {change.low:+.1f} to {change.high:+.1f})"
    )
    if change.low > 0:
        return f"Better. In {what}: {figures}."
    if change.high < 0:
        return f"Worse, do not use it. In {what}: {figures}."
    return f"Cannot tell. In {what}: {figures}."
