"""Candidates: the encoders made so far, their scores, and the value that they are chosen by."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import xxhash
from jaxtyping import Float
from sentence_transformers import SentenceTransformer

from selfsent.corpus.held_out import SPLITS
from selfsent.encoder.encode import encode
from selfsent.encoder.load import load_encoder
from selfsent.evaluation.comparison import Comparison
from selfsent.evaluation.label_free.scores import SCORE
from selfsent.evaluation.score import Results
from selfsent.progress import Progress
from selfsent.selection.held_out_tests import MRR, HeldOutTests, difference, figure
from selfsent.selection.material import Facts
from selfsent.selection.settings import FitConfig
from selfsent.storage import atomic

STATIC_BASE = "builtin-static"  # the static vectors that ship: the general half of the text's own
TOLERATED = 0.25  # points lost on general text that count as none

# What is made of a base has its name and one of these behind it, as "<base> + pairs" and "<base>, partly whitened", or
# as "pair of <base> and <other>, 0.3 : 0.7": no base is called like a candidate.
SEPARATORS = (" + ", ", ")
_SLUG = 60  # letters of a folder's name, at most


@dataclass(kw_only=True, eq=False)
class Candidate:
    """One encoder that may be kept."""

    name: str
    how: str  # it was made, in a few words
    open: Callable[[], SentenceTransformer] = field(repr=False)
    base: str = ""  # the base that it descends from
    source: str = ""  # of a base: the folder or name that it was opened from
    # Its vectors of some texts, from those that a function gives of other candidates; None: the texts are encoded.
    derive: Callable[[Callable[["Candidate"], Float[np.ndarray, "N D"]]], Float[np.ndarray, "N D"]] | None = None
    is_transformer: bool = False  # not static vectors, nor a pair of encoders
    is_pair: bool = False
    seconds: float = 0.0  # that making it took
    eligible: bool = True  # may be kept: one folder of stock modules that descends from a base
    fraction: float = 1.0  # of the way from the base to trained weights
    scores: dict[str, Results] = field(default_factory=dict)  # by split of the held-out documents
    note: str = ""  # why it is out, for the table

    @property
    def slug(self) -> str:
        """A folder's name: of the candidate's own, and of no other's."""
        plain = "".join(letter if letter.isalnum() or letter in "-." else "-" for letter in self.name)
        if plain == self.name and len(plain) <= _SLUG:
            return plain
        return f"{plain[-_SLUG:]}-{xxhash.xxh3_64_hexdigest(self.name.encode(errors='replace'))[:8]}".lstrip("-.")


def short_name(source: str) -> str:
    """Return what a base is called in tables: a folder by its own name, or that of the folder around ``model``."""
    folder = Path(source)
    if not folder.is_dir():
        return source
    folder = folder.resolve()
    return folder.parent.name if folder.name == "model" else folder.name


class Vectors:
    """The vectors of candidates for the held-out texts: computed once, read from disk after that."""

    def __init__(self, folder: Path, tests: dict[str, HeldOutTests], progress: Progress) -> None:
        """Keep the vectors in a folder.

        Args:
            tests: by split: "dev" and "test" of this text, "general dev" and "general test".
        """
        self.folder, self.tests, self._progress = folder, tests, progress

    def of(self, candidate: Candidate, split: str) -> Float[np.ndarray, "N D"]:
        """Return the vectors of a candidate for the texts of one split."""
        if candidate.derive is not None:
            return candidate.derive(lambda source: self.of(source, split))
        if not self.tests[split].texts:
            return np.zeros((0, 1), np.float32)
        path = self.folder / f"{candidate.slug}.{split}.npy"
        if path.is_file():
            atomic.verify(path, f"delete {path} and add --resume to compute it again")
        else:
            vectors = encode(candidate.open(), self.tests[split].texts, progress=self._progress)
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic.sealed_file(path) as file:
                np.save(file, vectors)
        return np.load(path)

    def score(self, candidate: Candidate, split: str) -> Results:
        """Score a candidate."""
        return self.tests[split].score(self.of(candidate, split), candidate.name)


class Scoreboard:
    """Every candidate with its scores on the documents that choose, and the base that one has to beat."""

    def __init__(self, facts: Facts, vectors: Vectors, config: FitConfig, progress: Progress) -> None:
        """Start without candidates.

        Single lines have no structure to judge by: halves of lines reward word overlap, and call static vectors better
        than they are.  They and pairs are judged by MRR@10, because no tests of documents can be made of them.
        """
        self.facts, self.vectors, self.config, self.progress = facts, vectors, config, progress
        self.candidates: list[Candidate] = []
        self.bases: list[Candidate] = []
        self.english = True  # or another language that every base knows
        documents = facts.kind != "lines" and all(vectors.tests[split].structured for split in SPLITS)
        paired = all(vectors.tests[split].paired for split in SPLITS)
        self.measure = MRR if paired and not documents else SCORE  # of this text
        self.structured = documents or (paired and facts.kind == "pairs")
        self.judged = documents or paired  # whether anything here may replace a base

    def add(self, candidate: Candidate) -> None:
        """Score a candidate on the documents that choose, of this text and of general text, and say so."""
        for split in ("dev", "general dev"):
            candidate.scores[split] = self.vectors.score(candidate, split)
        self.candidates.append(candidate)
        told = [("MRR@10", "dev", MRR), ("on general text", "general dev", SCORE)]
        if self.measure == SCORE:
            told.insert(0, ("score", "dev", SCORE))
        figures = [(what, figure(candidate.scores[split], name)) for what, split, name in told]
        said = ", ".join(f"{what} {value:.1f}" for what, value in figures if value is not None)
        self.progress.say(f"{candidate.name}: {said}")

    def find(self, name: str) -> Candidate | None:
        """Return the candidate of a name, if there is one."""
        return next((candidate for candidate in self.candidates if candidate.name == name), None)

    def best(self, candidates: Iterable[Candidate]) -> Candidate | None:
        """Return the candidate with the highest value, of equal ones the first; None of none."""
        return max(candidates, key=self.value, default=None)

    @property
    def eligible(self) -> list[Candidate]:
        """The candidates that may be kept."""
        return [candidate for candidate in self.candidates if candidate.eligible]

    @property
    def static_named(self) -> bool:
        """Whether the static vectors that ship are among the bases, and not a folder of their name."""
        return any(base.name == base.source == STATIC_BASE for base in self.bases)

    @property
    def reference(self) -> Candidate:
        """The base that a candidate has to beat: the best of them."""
        split = "dev" if self.structured or not self.english else "general dev"
        return max(self.bases, key=lambda base: self.figure(base, split))

    @property
    def general_counts(self) -> bool:
        """Whether general text, which is English, says anything of this one."""
        return self.english and self.config.general_loss > 0

    def figure(self, candidate: Candidate, split: str) -> float:
        """Return the points of a candidate in what counts for a split; 0 where nothing is measured."""
        return figure(candidate.scores[split], self.measure if split == "dev" else SCORE) or 0.0

    def value(self, candidate: Candidate) -> float:
        """Return what candidates are chosen by: the score on this text less what is lost on general text, weighed.

        Single lines show less than documents do, so that there nothing may be lost.
        """
        if not self.structured:
            fails = self.loses(candidate, "general dev") or not (self.judged or candidate in self.bases)
            return -math.inf if fails else self.figure(candidate, "dev")
        if not self.english:
            return self.figure(candidate, "dev")
        lost = self.figure(self.reference, "general dev") - self.figure(candidate, "general dev")
        return self.figure(candidate, "dev") - self.config.general_loss * max(0.0, lost)

    def loses(self, candidate: Candidate, split: str) -> bool:
        """Tell whether a candidate is surely worse than the base on general text, by more than is tolerated."""
        base = self.reference
        if candidate is base or not self.general_counts:
            return False
        high = difference(candidate.scores[split], base.scores[split], SCORE).high
        return high is not None and high < -TOLERATED

    def strength(self, split: str = "general test") -> Comparison | None:
        """Return how the base compares with the static vectors that ship, on general text, where single lines judge.

        None if it is surely below them, as a masked language model is, or if general text says nothing of this one.
        What single lines call better is better for such an encoder, and often worse for others (decision 0018).
        """
        if self.structured or not self.general_counts:
            return None
        # The name is that of its vectors on disk, too.
        taken = any(base.name == STATIC_BASE != base.source for base in self.bases)
        name = f"{STATIC_BASE}, as it ships" if taken else STATIC_BASE
        shipped = Candidate(name=name, how="as it is", open=lambda: load_encoder(STATIC_BASE), base=STATIC_BASE)
        change = difference(self.vectors.score(self.reference, split), self.vectors.score(shipped, split), SCORE)
        return change if change.decision != "worse" else None
