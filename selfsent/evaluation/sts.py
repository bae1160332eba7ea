"""Semantic textual similarity in SentEval's layout: cosine against the scores of people.

    STS12-16   one Spearman over the concatenated sub-files of a year ("all"); the mean over sub-files
               ("mean") and the mean weighted by size ("wmean") are other numbers, always labelled
    STS-B      the split's rows          SICK-R   the split's relatedness

No regression on top.  A year's rows without a gold score are dropped, and what remains must have the
known counts.  Texts are the tokens of the files, joined by single spaces.

Source: the convention of princeton-nlp/SimCSE @ 49fa580, SentEval/senteval/sts.py.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from selfsent.errors import UserError
from selfsent.evaluation import bootstrap
from selfsent.evaluation.score import Score, measured
from selfsent.evaluation.senteval.files import senteval_lines

# Rows with a gold score in every sub-file; FNWN, headlines and OnWN only in 2013, where SMT is not free.
YEARS: dict[str, dict[str, int]] = {
    "sts12": {
        "MSRpar": 750,
        "MSRvid": 750,
        "SMTeuroparl": 459,
        "surprise.OnWN": 750,
        "surprise.SMTnews": 399,
    },
    "sts13": {"FNWN": 189, "headlines": 750, "OnWN": 561},
    "sts14": {
        "deft-forum": 450,
        "deft-news": 300,
        "headlines": 750,
        "images": 750,
        "OnWN": 750,
        "tweet-news": 750,
    },
    "sts15": {"answers-forums": 375, "answers-students": 750, "belief": 375, "headlines": 750, "images": 750},
    "sts16": {
        "answer-answer": 254,
        "headlines": 249,
        "plagiarism": 230,
        "postediting": 244,
        "question-question": 209,
    },
}
STSB = {"train": 5749, "dev": 1500, "test": 1379}
SICK = {"train": 4500, "dev": 500, "test": 4927}
SICK_FILES = {"train": "SICK_train.txt", "dev": "SICK_trial.txt", "test": "SICK_test_annotated.txt"}

FORM = "SentEval tokens"  # how the files of SentEval hold their texts

Correlation = Callable[[Float[np.ndarray, " N"], Float[np.ndarray, " N"]], float]


@dataclass(frozen=True, kw_only=True)
class SentencePairs:
    """Pairs of texts with gold scores: one sub-file."""

    name: str
    left: list[str]
    right: list[str]
    gold: list[float]


@dataclass(frozen=True, kw_only=True)
class STS:
    """One test set: a year of STS, or a split of STS-B or SICK-R."""

    name: str
    split: str
    parts: list[SentencePairs]
    form: str = FORM

    @property
    def texts(self) -> list[str]:
        """All left sides in the order of the parts, then all right sides."""
        return [text for part in self.parts for text in part.left] + [
            text for part in self.parts for text in part.right
        ]

    @property
    def gold(self) -> Float[np.ndarray, " N"]:
        """The gold scores of all parts, in order."""
        return np.array([score for part in self.parts for score in part.gold], dtype=np.float64)

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits of what was read."""
        digest = hashlib.sha256()
        for text in self.texts:
            digest.update(text.encode() + b"\n")
        digest.update(self.gold.tobytes())
        return digest.hexdigest()[:16]

    def score(self, vectors: Float[np.ndarray, "N D"], *, resamples: int, seed: int) -> list[Score]:
        """Score vectors given in the order of ``texts``; the aggregation ``all`` comes first."""
        half = len(vectors) // 2
        similarity, gold = cosine(vectors[:half], vectors[half:]), self.gold
        ends = np.cumsum([len(part.gold) for part in self.parts])
        slices = [slice(end - len(part.gold), end) for end, part in zip(ends, self.parts, strict=True)]

        values = dict(aggregate(similarity, gold, slices))
        drawn = dict(self._replicates(similarity, gold, slices, resamples, seed)) if resamples else {}
        scores = []
        for (metric, aggregation), value in values.items():
            replicates = drawn.get((metric, aggregation))
            protocol = {"similarity": "cosine", "texts": self.form}
            scores.append(
                measured(self.name, self.split, metric, value, replicates, len(gold), protocol, aggregation=aggregation)
            )
        return scores

    def _replicates(
        self,
        similarity: Float[np.ndarray, " N"],
        gold: Float[np.ndarray, " N"],
        slices: list[slice],
        resamples: int,
        seed: int,
    ) -> Iterator[tuple[tuple[str, str], Float[np.ndarray, " R"]]]:
        """Yield replicates: over all pairs for ``all``, within each sub-file for ``mean`` and ``wmean``."""
        spearman, pearson = resample(similarity, gold, resamples, seed, self.name)
        yield ("spearman", "all"), spearman
        yield ("pearson", "all"), pearson
        if len(slices) == 1:
            return
        within = np.stack(
            [
                resample(similarity[rows], gold[rows], resamples, seed, f"{self.name}/{part.name}")
                for rows, part in zip(slices, self.parts, strict=True)
            ]
        )  # (parts, 2, R)
        sizes = [len(part.gold) for part in self.parts]
        for index, metric in enumerate(("spearman", "pearson")):
            yield (metric, "mean"), np.average(within[:, index], axis=0)
            yield (metric, "wmean"), np.average(within[:, index], axis=0, weights=sizes)


def aggregate(
    similarity: Float[np.ndarray, " N"], gold: Float[np.ndarray, " N"], slices: Sequence[slice]
) -> Iterator[tuple[tuple[str, str], float]]:
    """Yield ((metric, aggregation), points): ``all``, and for several sub-files ``mean`` and ``wmean``."""
    from scipy import stats

    metrics: dict[str, Correlation] = {
        "spearman": lambda x, y: float(stats.spearmanr(x, y).statistic),
        "pearson": lambda x, y: float(stats.pearsonr(x, y).statistic),
    }
    for metric, correlate in metrics.items():
        yield (metric, "all"), _points(similarity, gold, correlate)
        if len(slices) > 1:
            each = [_points(similarity[rows], gold[rows], correlate) for rows in slices]
            yield (metric, "mean"), float(np.mean(each))
            sizes = [rows.stop - rows.start for rows in slices]
            yield (metric, "wmean"), float(np.average(each, weights=sizes))


def cosine(left: Float[np.ndarray, "N D"], right: Float[np.ndarray, "N D"]) -> Float[np.ndarray, " N"]:
    """Return the cosine of each pair of rows; 0 where one of them is the zero vector."""
    left, right = left.astype(np.float64), right.astype(np.float64)
    product = np.einsum("nd,nd->n", left, right)
    norms = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    result = np.divide(product, norms, out=np.zeros_like(product), where=norms > 0)
    # Pairs of one and the same text come out as 1 give or take 1e-16: they must tie, not be ranked.
    return np.round(result, 12)


def read_sts(name: str, folder: Path) -> STS | Path:
    """Read one task from SentEval's ``downstream`` folder, or return where it should have been.

    Raises:
        UserError: the task is there but not whole: a sub-file, its lines or its count of rows.
    """
    if name in YEARS:
        place = folder / "STS" / f"STS{name[3:]}-en-test"
        if not place.is_dir():
            return place
        parts = [_sub_file(place, part, rows) for part, rows in YEARS[name].items()]
        return STS(name=name, split="test", parts=parts)
    base, split = name.removesuffix("-dev"), "dev" if name.endswith("-dev") else "test"
    part = read_stsb(folder, split) if base == "stsb" else read_sick(folder, split)
    return part if isinstance(part, Path) else STS(name=name, split=split, parts=[part])


def read_stsb(folder: Path, split: str) -> SentencePairs | Path:
    """Read a split of STS-B (columns 5: score, 6 and 7: texts), or return where it should have been."""
    path = folder / "STS" / "STSBenchmark" / f"sts-{split}.csv"
    if not path.is_file():
        return path
    return _table(path, senteval_lines(path), STSB[split], left=5, right=6, gold=4)


def read_sick(folder: Path, split: str) -> SentencePairs | Path:
    """Read a split of SICK (a header, then number, texts, relatedness, entailment), or return its place."""
    path = folder / "SICK" / SICK_FILES[split]
    if not path.is_file():
        return path
    return _table(path, senteval_lines(path)[1:], SICK[split], left=1, right=2, gold=3)


def resample(
    x: Float[np.ndarray, " N"], y: Float[np.ndarray, " N"], resamples: int, seed: int, name: str
) -> Float[np.ndarray, "2 R"]:
    """Return Spearman and Pearson of the same resamples, in points."""
    chunks = [
        np.stack([bootstrap.spearman(x, y, counts), bootstrap.pearson(x, y, counts)])
        for counts in bootstrap.bootstrap_draws(len(x), resamples, seed=seed, name=name)
    ]
    return 100 * np.concatenate(chunks, axis=1)


def _points(x: Float[np.ndarray, " N"], y: Float[np.ndarray, " N"], correlate: Correlation) -> float:
    # A collapsed encoder gives every pair the same cosine, which ranks nothing: 0 points, not NaN.
    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return 0.0
    return 100 * correlate(x, y)


def _sub_file(place: Path, part: str, rows: int) -> SentencePairs:
    texts, scores = place / f"STS.input.{part}.txt", place / f"STS.gs.{part}.txt"
    for path in (texts, scores):
        if not path.is_file():
            raise UserError(f"{place.name} is incomplete: {path} is missing; unpack the whole set again")
    pairs, gold = senteval_lines(texts), senteval_lines(scores)
    if len(pairs) != len(gold):
        raise UserError(
            f"{texts} has {len(pairs)} lines and {scores.name} beside it has {len(gold)}: "
            "line k of the second must be the score of line k of the first"
        )
    joined = [f"{score}\t{line}" for score, line in zip(gold, pairs, strict=True)]
    return _table(texts, joined, rows, left=1, right=2, gold=0, name=part)


def _table(
    path: Path, table: list[str], rows: int, *, left: int, right: int, gold: int, name: str | None = None
) -> SentencePairs:
    """Take two texts and a score from tab-separated lines; lines without a score are dropped."""
    pairs = SentencePairs(name=name or path.stem, left=[], right=[], gold=[])
    for line in table:
        cells = line.split("\t")
        try:
            if cells[gold].strip():
                score, texts = float(cells[gold]), (cells[left], cells[right])
                pairs.gold.append(score)
                pairs.left.append(" ".join(texts[0].split()))
                pairs.right.append(" ".join(texts[1].split()))
        except (ValueError, IndexError):
            raise UserError(
                f"{path} has a line that is not two texts and a score between tabs: {line[:80]!r}"
            ) from None
    if len(pairs.gold) != rows:
        raise UserError(
            f"{path} has {len(pairs.gold)} scored rows where {rows} are known: a score on other rows "
            "cannot be compared with anybody's; get the data again"
        )
    return pairs
