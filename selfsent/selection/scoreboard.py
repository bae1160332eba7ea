"""Candidates: the encoders made so far, their scores, and the value that they are chosen by."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from jaxtyping import Float
from sentence_transformers import SentenceTransformer

from selfsent.corpus.held_out import SPLITS
from selfsent.encoder.load import load_encoder
from selfsent.evaluation.comparison import Comparison
from selfsent.evaluation.label_free.scores import SCORE
from selfsent.evaluation.score import Results
from selfsent.progress import Progress
from selfsent.selection.gates import SearchGate
from selfsent.selection.held_out_tests import difference, figure
from selfsent.selection.material import GATE, Facts
from selfsent.selection.search_scores import MEANING, MRR
from selfsent.selection.settings import FitConfig
from selfsent.storage import atomic

STATIC_BASE = "builtin-static"  # the static vectors that ship: the general half of the text's own
TOLERATED = 0.25  # points lost on general text that count as none

# What is made of a base has its name and one of these behind it, as "<base>, trained" and "<base> beside static vectors
# of your text": no base is called like a candidate.
SEPARATORS = (", ", " beside ")
_SLUG = 60  # letters of a folder's name, at most


@dataclass(kw_only=True, eq=False)
class Candidate:
    """One encoder that may be kept."""

    name: str
    how: str  # it was made, in a few words
    open: Callable[[], SentenceTransformer] = field(repr=False)
    base: str = ""  # the base that it descends from
    source: str = ""  # of a base: the folder or name that it was opened from
    # Its vectors of some texts, from those of its parts; None: the texts are encoded.
    derive: Callable[..., Float[np.ndarray, "N D"]] | None = None
    parts: Sequence["Candidate"] = ()
    is_transformer: bool = False  # not static vectors, nor a pair of encoders
    is_static: bool = False  # static vectors
    is_pair: bool = False  # made here
    groups: bool = False  # made for grouping
    seconds: float = 0.0  # that making it took
    eligible: bool = True  # may be kept by itself: it descends from a base
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

    def __init__(self, folder: Path, tests: dict[str, Any], progress: Progress) -> None:
        """Keep the vectors in a folder.

        Args:
            tests: by split: "dev" and "test" of this text, "general dev" and "general test".
        """
        self.folder, self.tests, self._progress = folder, tests, progress

    def of(self, candidate: Candidate, split: str) -> Float[np.ndarray, "N D"]:
        """Return the vectors of a candidate for the texts of one split."""
        if candidate.derive is not None:
            return candidate.derive(*(self.of(part, split) for part in candidate.parts))
        if not self.tests[split].texts:
            return np.zeros((0, 1), np.float32)
        path = self.folder / f"{candidate.slug}.{split}.npy"
        if path.is_file():
            atomic.verify(path, f"delete {path} and add --resume to compute it again")
        else:
            vectors = self.tests[split].embed(candidate.open(), progress=self._progress)
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

        Documents and pairs are judged by ``search_scores``.  Single lines have no structure to judge by: halves of
        lines reward word overlap, and call static vectors better than they are.
        """
        self.facts, self.vectors, self.config, self.progress = facts, vectors, config, progress
        self.candidates: list[Candidate] = []
        self.bases: list[Candidate] = []
        self.left_out: list[Candidate] = []  # that could not be opened, trained or scored
        self.english = True  # or another language that every base knows
        self.judged = all(vectors.tests[split].paired for split in SPLITS)  # whether anything may replace a base
        self.structured = self.judged and facts.kind != "lines"  # what can be searched
        self.measure = SCORE if self.structured else MRR  # of this text
        self.agreement = 0.0  # of the best base's neighbours with those by words

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

    def leave_out(self, candidate: Candidate, why: str) -> None:
        """Leave a candidate out that cannot be made, and say why."""
        candidate.note = f"left out: {why}"
        self.candidates = [each for each in self.candidates if each is not candidate]
        self.left_out.append(candidate)
        self.progress.say(f"left out: {candidate.name}: {why}")

    def score_on_test(self, candidate: Candidate) -> None:
        """Score a candidate on the documents that decide, once."""
        for split in ("test", "general test"):
            if split not in candidate.scores:
                candidate.scores[split] = self.vectors.score(candidate, split)

    def best(self, fits: Callable[[Candidate], bool]) -> Candidate | None:
        """Return the candidate with the highest value of those that fit, of equal ones the first; None of none."""
        return max(filter(fits, self.candidates), key=self.value, default=None)

    @property
    def eligible(self) -> list[Candidate]:
        """The candidates that may be kept."""
        return [candidate for candidate in self.candidates if candidate.eligible]

    @property
    def reference(self) -> Candidate:
        """The base that a candidate has to beat: the best of them."""
        return max(self.bases, key=self._strength_of)

    @property
    def transformer(self) -> Candidate | None:
        """The best base that is a transformer, if there is one."""
        return max((base for base in self.bases if base.is_transformer), key=self._strength_of, default=None)

    def _strength_of(self, base: Candidate) -> float:
        """Return what bases are compared by: this text and general text alike, of single lines the latter alone."""
        general = self.figure(base, "general dev") if self.english else 0.0
        return general + (self.figure(base, "dev") if self.structured or not self.english else 0.0)

    @cached_property
    def search_gate(self) -> SearchGate:
        """What the best base that is a transformer finds, and what words do."""
        base = self.transformer
        assert base is not None
        own = self.vectors.score(base, GATE)
        return SearchGate(
            words=figure(self.vectors.tests[GATE].score_words(), MRR) or 0.0,
            base=figure(own, MRR) or 0.0,
            meaning=figure(own, MEANING) or 0.0,
            weak=self.weak,
        )

    @cached_property
    def weak(self) -> bool:
        """Whether the best transformer is not surely above the static vectors that ship, on general text."""
        base = self.transformer
        assert base is not None
        return self.english and self.difference_to_shipped(base, "general dev").decision != "better"

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
        change = self.difference_to_shipped(self.reference, split)
        return change if change.decision != "worse" else None

    def difference_to_shipped(self, base: Candidate, split: str) -> Comparison:
        """Return how a base compares with the static vectors that ship."""
        # The name is that of its vectors on disk, too.
        taken = any(base.name == STATIC_BASE != base.source for base in self.bases)
        name = f"{STATIC_BASE}, as it ships" if taken else STATIC_BASE
        shipped = Candidate(name=name, how="as it is", open=lambda: load_encoder(STATIC_BASE), base=STATIC_BASE)
        return difference(self.vectors.score(base, split), self.vectors.score(shipped, split), SCORE)
