"""Semantic textual similarity in SentEval's layout: cosine against human scores.

    STS12-16   one Spearman over the concatenated sub-files of a year ("all"); the mean over sub-files ("mean") and
               the mean weighted by size ("wmean") are reported under their own names
    STS-B      the split's rows          SICK-R   the split's relatedness

No regression on top.  A year's rows without a gold score are dropped, and the remaining rows must have the known
counts.  Texts are the tokens of the files, joined by single spaces.

Source: the convention of princeton-nlp/SimCSE @ 49fa580, SentEval/senteval/sts.py.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import Float

from selfsent.errors import DataError
from selfsent.evaluation import bootstrap
from selfsent.evaluation.score import Score, measured
from selfsent.evaluation.senteval.files import senteval_lines
from selfsent.evaluation.task import Task
from selfsent.progress import SILENT, Progress

# Rows with a gold score in every sub-file; FNWN, headlines and OnWN only in 2013, where SMT is not free.
YEARS: dict[str, dict[str, int]] = {
    "sts12": {"MSRpar": 750, "MSRvid": 750, "SMTeuroparl": 459, "surprise.OnWN": 750, "surprise.SMTnews": 399},
    "sts13": {"FNWN": 189, "headlines": 750, "OnWN": 561},
    "sts14": {"deft-forum": 450, "deft-news": 300, "headlines": 750, "images": 750, "OnWN": 750, "tweet-news": 750},
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


@dataclass(frozen=True, kw_only=True)
class SentencePairs:
    """Pairs of texts with gold scores: one sub-file."""

    name: str
    left: list[str]
    right: list[str]
    gold: list[float]


@dataclass(frozen=True, kw_only=True)
class STS(Task):
    """One test set: a year of STS, or a split of STS-B or SICK-R."""

    split: str
    parts: list[SentencePairs]
    form: str = FORM

    @property
    def texts(self) -> list[str]:
        """All left sides in the order of the parts, then all right sides."""
        left, right = ([part.left for part in self.parts], [part.right for part in self.parts])
        return [text for side in left + right for text in side]

    @property
    def gold(self) -> Float[np.ndarray, " N"]:
        """The gold scores of all parts, in order."""
        return np.array([score for part in self.parts for score in part.gold], dtype=np.float64)

    def content(self) -> Iterable[str | bytes]:
        """Yield texts and gold scores."""
        yield from super().content()
        yield self.gold.tobytes()

    def score(
        self, vectors: Float[np.ndarray, "N D"], *, resamples: int, seed: int, progress: Progress = SILENT
    ) -> list[Score]:
        """Compute Spearman and Pearson; the aggregation ``all`` comes first.

        Intervals resample all pairs for ``all``, and the pairs within each sub-file for ``mean`` and ``wmean``.
        """
        half = len(vectors) // 2
        similarity, gold = cosine(vectors[:half], vectors[half:]), self.gold

        def figures(x: Float[np.ndarray, " N"], y: Float[np.ndarray, " N"], name: str) -> Float[np.ndarray, "2 S"]:
            """Return Spearman and Pearson, each value before its replicates, in points."""
            return np.hstack([_points(x, y), resample(x, y, resamples, seed, name)])

        found = {"all": figures(similarity, gold, self.name)}
        if len(self.parts) > 1:
            sizes = [len(part.gold) for part in self.parts]
            cut = partial(np.split, indices_or_sections=np.cumsum(sizes)[:-1])
            within = zip(cut(similarity), cut(gold), self.parts, strict=True)
            each = [figures(x, y, f"{self.name}/{part.name}") for x, y, part in within]
            found |= {"mean": np.mean(each, axis=0), "wmean": np.average(each, axis=0, weights=sizes)}
        protocol = {"similarity": "cosine", "texts": self.form}
        return [
            measured(self.name, self.split, metric, float(row[0]), row[1:], half, protocol, aggregation=aggregation)
            for metric, rows in zip(("spearman", "pearson"), zip(*found.values(), strict=True), strict=True)
            for aggregation, row in zip(found, rows, strict=True)
        ]


def cosine(left: Float[np.ndarray, "N D"], right: Float[np.ndarray, "N D"]) -> Float[np.ndarray, " N"]:
    """Return the cosine of each pair of rows; 0 where one of them is the zero vector."""
    left, right = left.astype(np.float64), right.astype(np.float64)
    product = np.einsum("nd,nd->n", left, right)
    norms = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    result = np.divide(product, norms, out=np.zeros_like(product), where=norms > 0)
    # Pairs of equal texts have cosines that differ from 1 by about 1e-16: rounded, they tie.
    return np.round(result, 12)


def read_sts(name: str, folder: Path) -> STS | Path:
    """Read one task from SentEval's ``downstream`` folder, or return where it should have been.

    Raises:
        DataError: the task is there but not whole: a sub-file, its lines or its count of rows.
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
    return _table(folder / "STS" / "STSBenchmark" / f"sts-{split}.csv", STSB[split], columns=(5, 6, 4))


def read_sick(folder: Path, split: str) -> SentencePairs | Path:
    """Read a split of SICK (a header, then number, texts, relatedness, entailment), or return its place."""
    return _table(folder / "SICK" / SICK_FILES[split], SICK[split], columns=(1, 2, 3), header=1)


def resample(
    x: Float[np.ndarray, " N"], y: Float[np.ndarray, " N"], resamples: int, seed: int, name: str
) -> Float[np.ndarray, "2 R"]:
    """Return Spearman and Pearson of the same resamples, in points."""
    chunks = [
        np.stack([bootstrap.spearman(x, y, counts), bootstrap.pearson(x, y, counts)])
        for counts in bootstrap.bootstrap_draws(len(x), resamples, seed=seed, name=name)
    ]
    return 100 * np.concatenate(chunks, axis=1)


def _points(x: Float[np.ndarray, " N"], y: Float[np.ndarray, " N"]) -> Float[np.ndarray, "2 1"]:
    """Return Spearman and Pearson, in points."""
    from scipy import stats

    # A collapsed encoder gives every pair the same cosine, which ranks nothing: 0 points, not NaN.
    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return np.zeros((2, 1))
    return 100 * np.array([[stats.spearmanr(x, y).statistic], [stats.pearsonr(x, y).statistic]])


def _sub_file(place: Path, part: str, rows: int) -> SentencePairs:
    texts, scores = place / f"STS.input.{part}.txt", place / f"STS.gs.{part}.txt"
    for path in (texts, scores):
        if not path.is_file():
            raise DataError(f"{place.name} is incomplete: {path} is missing; unpack the whole set again")
    pairs, gold = senteval_lines(texts), senteval_lines(scores)
    if len(pairs) != len(gold):
        raise DataError(
            f"{texts} has {len(pairs)} lines and {scores.name} beside it has {len(gold)}: "
            "line k of the second must be the score of line k of the first"
        )
    joined = [f"{score}\t{line}" for score, line in zip(gold, pairs, strict=True)]
    return _pairs(texts, joined, rows, (1, 2, 0), part)


def _table(path: Path, rows: int, columns: tuple[int, int, int], header: int = 0) -> SentencePairs | Path:
    return _pairs(path, senteval_lines(path)[header:], rows, columns, path.stem) if path.is_file() else path


def _pairs(path: Path, lines: list[str], rows: int, columns: tuple[int, int, int], name: str) -> SentencePairs:
    """Take two texts and a score from these columns of tab-separated lines; lines without a score are dropped."""
    pairs = SentencePairs(name=name, left=[], right=[], gold=[])
    for line in lines:
        try:
            cells = line.split("\t")
            left, right, gold = (" ".join(cells[column].split()) for column in columns)
            if gold:
                pairs.gold.append(float(gold))
                pairs.left.append(left)
                pairs.right.append(right)
        except (ValueError, IndexError):
            raise DataError(
                f"{path} has a line that is not two texts and a score between tabs: {line[:80]!r}"
            ) from None
    if len(pairs.gold) != rows:
        raise DataError(
            f"{path} has {len(pairs.gold)} scored rows where {rows} are known: a score on other rows "
            "cannot be compared with others; get the data again"
        )
    return pairs
