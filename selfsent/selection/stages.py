"""The stages of a selection: each makes candidates and scores them on the development documents.

bases               as they are
word vectors        counted in the text, joined with the general ones, trained on pairs
bases + pairs       trained on the pairs of the text; on single lines by the published methods
weights between     a base and the best that was trained from it
side by side        the best encoder with layers and the best word vectors
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from sentence_transformers import SentenceTransformer

from selfsent.encoder.coverage import check_coverage
from selfsent.encoder.folder import SHIPPED
from selfsent.encoder.inspect import encoder_digest, transformer_of
from selfsent.encoder.load import load_encoder
from selfsent.encoder.pair_module import join_encoders
from selfsent.evaluation.comparison import Comparison
from selfsent.evaluation.label_free.scores import SCORE
from selfsent.progress import Progress
from selfsent.selection.candidates import Candidate, Vectors, short_name
from selfsent.selection.fit_plan import FitPlan
from selfsent.selection.held_out_tests import MRR, difference, figure
from selfsent.selection.interpolate import interpolate, mean_weights
from selfsent.selection.material import PARTS, Material
from selfsent.selection.settings import FitConfig
from selfsent.selection.training import (
    AGAIN,
    LINES,
    OF_METHODS,
    PAIRS,
    WORDS_BASE,
    BaseTraining,
    count_word_vectors,
    seconds_left,
    time_encoding,
    train_candidate,
    train_word_vectors,
)

WORDS = "word vectors"  # the candidate
TWICE = f"{WORDS}, two seeds"
DEFAULT_BASES = ("builtin", WORDS_BASE)
_SHARES = (0.25, 0.5, 0.75)  # of the way from a base to what was trained from it
_WEIGHTS = (0.3, 0.5, 0.7)  # of the first of two side by side
_ENOUGH = 0.75  # of the best gain on single lines
_TOLERATED = 0.25  # points lost on general text that count as none
_TRAINING_COST = 5.0  # encodings of a text that one training step on it costs
_FEWEST = 50  # steps: a shorter training is left out
_HOPED = 5.0  # points that training on pairs may bring a base; it brought 1.1 to 5.3 (decision 0016)
_RATES = (5e-4, 5e-5)  # peak rates of the encoder that ships and of others
_SLOWER = 0.2  # of these rates where texts are their own positives


class Stages:
    """The candidates made so far, and what making more of them needs."""

    english = True  # or another language that every base knows
    measure = SCORE  # of this text; of pairs and lines MRR@10, because tests of documents cannot be made of them

    def __init__(
        self,
        out: Path,
        text: Material,
        vectors: Vectors,
        config: FitConfig,
        plan: FitPlan,
        progress: Progress,
    ) -> None:
        self.out, self.text, self.vectors = out / "candidates", text, vectors
        self.config, self.plan, self.progress = config, plan, progress
        self.candidates: list[Candidate] = []
        self.bases: list[Candidate] = []
        # Single lines have none: halves of lines reward word overlap, and call word vectors better than they are.
        self.structured = text.facts.kind != "lines" and all(vectors.judges[part].structured for part in PARTS)
        self.judged = self.structured
        if not self.structured and all(vectors.judges[part].paired for part in PARTS):
            self.structured, self.judged, self.measure = text.facts.kind == "pairs", True, MRR
        self.places: dict[str, str] = {}  # of the bases, by name
        self._rates: dict[str, float] = {}  # texts a second that a base encodes
        self.out.mkdir(parents=True, exist_ok=True)

    def add_bases(self, names: Sequence[str]) -> None:
        """Score encoders as they are."""
        for place in names:
            name = short_name(place)
            self.places[name] = place
            base = Candidate(name=name, how="as it is", open=partial(load_encoder, place), base=name, share=0.0)
            with self.plan.timed(base.slug):
                encoder = base.open()
                self.plan.require_same_base(name, encoder_digest(encoder), place)
                base.layered = transformer_of(encoder) is not None
                # What is lost on general text, which is English, counts nothing for text of another language.
                if check_coverage(encoder, self.vectors.judges["dev"].texts, name, self.progress).foreign:
                    self.english = False
                self.add(base)
            if base.layered:
                source = self.text.pairs if self.structured else self.text.texts
                self._rates[name] = time_encoding(encoder, source, base.slug, self.plan)
            self.bases.append(base)

    def add_word_vectors(self) -> None:
        """Count word vectors in the text, join them with the general ones, and train them on the pairs."""
        counted, seconds = count_word_vectors(
            self.out / "word-vectors" / "counted", self.text, self.config, self.plan, self.progress
        )
        model, took = self._trained_words("trained")
        untrained = partial(load_encoder, counted)
        self._add_words(f"{WORDS}, untrained", "of this text, joined with general ones", untrained, seconds)
        self._add_words(WORDS, "the same, trained on pairs of this text", partial(load_encoder, model), took)

    def repeat_word_vectors(self) -> None:
        """Train them with a second seed, if the time is enough.

        The mean of both weights is better than either, on this text and on general text (decision 0015).
        """
        once = next(one for one in self.candidates if one.name == WORDS)
        enough = self.config.words_twice and seconds_left(self.config, self.plan) > once.seconds
        if self.plan.once("trainings", AGAIN, enough):
            model, took = self._trained_words(AGAIN)
            self._add_words(TWICE, "the mean of two trainings", partial(_mean, once, model), once.seconds + took)

    def _trained_words(self, name: str) -> tuple[Path, float]:
        folder, batch = self.out / "word-vectors", self._batch(self.config.words_batch_size)
        return train_word_vectors(
            folder / "counted", self.text, folder / name, self.config, batch, self.plan, self.progress
        )

    def _add_words(self, name: str, how: str, opened: Callable[[], SentenceTransformer], seconds: float) -> None:
        candidate = Candidate(name=name, how=how, open=opened, base=WORDS_BASE, seconds=seconds)
        candidate.eligible = self.words_named and name in (WORDS, TWICE)
        candidate.note = "" if self.words_named else "made from no base that was named"
        self.add(candidate)

    @property
    def bases_promise_more(self) -> bool:
        """Whether training may lift a base with layers above the word vectors of the text."""
        words = max(self.value(one) for one in self.candidates if one.name == WORDS)
        return any(base.layered and self.value(base) + _HOPED >= words for base in self.bases)

    def train_bases(self) -> None:
        """Train every base that has layers, as many steps as the time allows: decided once, and kept.

        Where the time is too short for all of them, by successive halving: each round has an equal share of it, and the
        better half goes on to the next, until one is left.  Source: Jamieson & Talwalkar 2016,
        https://arxiv.org/abs/1502.07943.
        """
        pairs = [("simcse", self.text.pairs, PAIRS)]
        lines = [(one, self.text.texts, (*LINES, *OF_METHODS.get(one, ()))) for one in self.config.methods]
        waiting = [
            BaseTraining(f"{base.name} + {'pairs' if self.structured else method}", base, method, texts, keys)
            for base in self.bases
            if base.layered
            for method, texts, keys in (pairs if self.structured else lines)
        ]
        fit = self.plan.once("trainings", "all fit", self._all_fit(waiting))
        rounds = self.plan.once("trainings", "rounds", 1 if fit else self._rounds(waiting))
        if rounds > 1:
            self.progress.say(
                f"{len(waiting)} trainings, and too little time for {self.config.steps} steps of each: {rounds} "
                "rounds, the better half goes on to the next"
            )
        for number in range(1, rounds + 1):
            made = [
                (self.value(candidate), training)
                for place, training in enumerate(waiting)
                if (
                    candidate := self._train_on(
                        training, number, rounds, 1 if fit else (rounds - number + 1) * len(waiting) - place
                    )
                )
            ]
            made.sort(key=lambda one: -one[0])  # of equal ones the first named
            waiting = [training for _, training in made[: math.ceil(len(made) / 2)]]

    def _all_fit(self, trainings: Sequence[BaseTraining]) -> bool:
        """Tell whether the time is enough for all steps of all trainings."""
        return sum(self.config.steps / max(1e-9, self._affordable(one)) for one in trainings) <= 1

    def _rounds(self, trainings: Sequence[BaseTraining]) -> int:
        """Return how many rounds there are: until one is left, or as many as leave enough time for the first."""
        if not trainings:
            return 1
        each = min(map(self._affordable, trainings)) / len(trainings)
        return max(1, min(math.ceil(math.log2(len(trainings))) + 1, int(each / _FEWEST)))

    def _affordable(self, training: BaseTraining) -> float:
        """Return the steps that the time left is enough for, were there nothing else to train."""
        batch = self._batch(self.config.batch_size)
        return seconds_left(self.config, self.plan) * self._rates[training.base.name] / (_TRAINING_COST * 2 * batch)

    def _train_on(self, training: BaseTraining, number: int, rounds: int, shares: int) -> Candidate | None:
        """Train in one round, from where the round before left it; None where the time is too short.

        Args:
            shares: of the time left, one of which is for this.
        """
        if training.steps >= self.config.steps:
            return training.made
        name = training.name if number == rounds else f"{training.name}, round {number}"
        affordable = self._affordable(training)
        possible = affordable / shares
        if possible < _FEWEST <= affordable:
            possible = _FEWEST  # the first in order, rather than none but the last
        possible = min(self.config.steps - training.steps, max(0, 25 * int(possible / 25)))
        steps = self.plan.once("steps", name, possible)
        if steps < min(_FEWEST, self.config.steps - training.steps):
            out = f"not trained further: {training.made.name}" if training.made else f"left out: {name}"
            self.progress.say(f"{out}: {self.config.minutes:g} minutes are too few; give more --minutes")
            return None
        base, batch = training.base, self._batch(self.config.batch_size)
        place = self.places[base.name]
        rate = self.config.learning_rate or _RATES[place not in SHIPPED] * (1 if self.structured else _SLOWER)
        settings = (
            *training.keys,
            f"train.steps={steps}",
            f"train.batch_size={batch}",
            f"train.learning_rate={rate}",
        )
        training.steps += steps
        how = f"{training.method}, {training.steps} steps"
        made = Candidate(name=name, how=how, open=base.open, base=base.name, layered=True)
        self.progress.say(f"training: {name}, {steps} steps of {batch} texts")
        with self.plan.timed(made.slug) as seconds:
            model = train_candidate(
                training.method,
                training.begun or place,
                training.texts,
                self.out / made.slug,
                self.config.seed,
                settings,
                self.progress,
            )
        made.open = partial(load_encoder, model)
        made.seconds = seconds() + (training.made.seconds if training.made else 0.0)
        training.begun, training.made = model, made
        self.add(made)
        return made

    def add_weights_between(self) -> None:
        """Add encoders between each base and the best trained from it; of word vectors, the untrained ones."""
        named = {one.name: one for one in self.candidates}
        words = named.get(TWICE) or named.get(WORDS)
        ways = [(named[f"{WORDS}, untrained"], words)] if words else []
        for base in self.bases:
            trained = [one for one in self.candidates if one.layered and one.base == base.name and one is not base]
            if not trained:
                continue
            # Where none may be kept, the one that loses least on general text is the nearest to it.
            goal = max(trained, key=lambda one: (self.value(one), self._figure(one, "general dev")))
            if not self.structured or self._may_win_between(base, goal):
                ways.append((base, goal))
        for start, goal in ways:
            for share in _SHARES:
                between = Candidate(
                    name=f"{share:g} of the way to {goal.name}",
                    how="weights between the two",
                    open=partial(_between, start, goal, share),
                    base=goal.base,
                    share=share,
                    layered=goal.layered,
                    eligible=goal.eligible,
                    note=goal.note,
                )
                self.add(between)

    def _may_win_between(self, base: Candidate, goal: Candidate) -> bool:
        """Tell whether weights between the two, which lose less on general text, are worth minutes of scoring."""
        lost = self._figure(base, "general dev") - self._figure(goal, "general dev")
        if lost <= _TOLERATED and self.value(goal) > self.value(base):
            return False
        best = max(self.value(one) for one in self.candidates if one.eligible)
        return max(self._figure(one, "dev") for one in (base, goal)) >= best

    def add_side_by_side(self) -> None:
        """Add the best encoder with layers beside the best word vectors."""
        layered = [one for one in self.candidates if one.layered]
        words = [one for one in self.candidates if not one.layered]
        if not layered or not words:
            return
        pair = max(layered, key=self.value), max(words, key=self.value)
        for weight in _WEIGHTS:
            weights = weight, 1 - weight
            candidate = Candidate(
                name=f"{pair[0].name} beside {pair[1].name}, {weight:g} : {1 - weight:g}",
                how="two encoders side by side",
                open=partial(_joined, pair, weights),
                parts=pair,
                weights=weights,
                base=pair[0].base,
            )
            candidate.eligible = self.config.side_by_side
            candidate.note = "" if candidate.eligible else "two folders in one: --set side_by_side=true allows it"
            self.add(candidate)

    @property
    def words_named(self) -> bool:
        """Whether the word vectors that ship are among the bases, and not a folder of their name."""
        return self.places.get(WORDS_BASE) == WORDS_BASE

    def _batch(self, wanted: int) -> int:
        """Return the batch size that the text has enough different rows for."""
        facts = self.text.facts
        rows = facts.different if self.structured or facts.kind == "lines" else facts.texts
        return max(2, min(wanted, rows // 2)) if facts.different else wanted

    def reference(self) -> Candidate:
        """Return the base that a candidate has to beat: the best of them."""
        part = "dev" if self.structured or not self.english else "general dev"
        return max(self.bases, key=lambda base: self._figure(base, part))

    def strength(self, part: str = "general test") -> Comparison | None:
        """Return how the base compares with the word vectors that ship, on general text, where single lines judge.

        None if it is surely below them, as a masked language model is, or if general text says nothing of this one.
        What single lines call better is better for such an encoder, and often worse for others (decision 0018).
        """
        if self.structured or not self._general_counts:
            return None
        # The name is that of its vectors on disk, too.
        name = WORDS_BASE if self.places.get(WORDS_BASE, WORDS_BASE) == WORDS_BASE else f"{WORDS_BASE}, as it ships"
        words = Candidate(name=name, how="as it is", open=partial(load_encoder, WORDS_BASE), base=WORDS_BASE)
        base = self.reference()
        change = difference(self.vectors.score(base, part), self.vectors.score(words, part), SCORE)
        return change if change.decision != "worse" else None

    @property
    def _general_counts(self) -> bool:
        return self.english and self.config.general_loss > 0

    def choose(self) -> Candidate:
        """Return the candidate that is to be compared with its base.

        On single lines, whose test shows less than those of documents, that is one of those that gain nearly as much as
        the best: from a weak base the one that went furthest from it, otherwise the one that changed least.  Labels
        agree with the first from a masked language model, with the second from sentence encoders (decision 0018).
        """
        eligible = [one for one in self.candidates if one.eligible]
        best = max(eligible, key=self.value)
        if self.structured:
            return best
        weak = self._general_counts and self.strength("general dev") is None
        level = self.value(self.reference())
        near = [one for one in eligible if self.value(one) >= level + _ENOUGH * (self.value(best) - level)]
        return max(near, key=lambda one: (one.share if weak else -one.share, self.value(one)))

    def value(self, candidate: Candidate) -> float:
        """Return what candidates are chosen by: the score on this text less what is lost on general text, weighed.

        Single lines show less than documents do, so that there nothing may be lost.
        """
        general = self._figure(candidate, "general dev")
        if not self.structured:
            fails = self.loses(candidate, "general dev") or not (self.judged or candidate in self.bases)
            return -math.inf if fails else self._figure(candidate, "dev")
        if not self.english:
            return self._figure(candidate, "dev")
        lost = max(0.0, self._figure(self.reference(), "general dev") - general)
        return self._figure(candidate, "dev") - self.config.general_loss * lost

    def loses(self, candidate: Candidate, part: str) -> bool:
        """Tell whether a candidate is surely worse than the base on general text, by more than is tolerated."""
        base = self.reference()
        if candidate is base or not self.english or not self.config.general_loss:
            return False
        high = difference(candidate.scores[part], base.scores[part], SCORE).high
        return high is not None and high < -_TOLERATED

    def _figure(self, candidate: Candidate, part: str) -> float:
        return figure(candidate.scores[part], self.measure if part == "dev" else SCORE) or 0.0

    def add(self, candidate: Candidate) -> None:
        """Score a candidate on the development documents, of this text and of general text, and say so."""
        for part in ("dev", "general dev"):
            candidate.scores[part] = self.vectors.score(candidate, part)
        self.candidates.append(candidate)
        told = [("MRR@10", "dev", MRR), ("on general text", "general dev", SCORE)]
        if self.measure == SCORE:
            told.insert(0, ("score", "dev", SCORE))
        figures = [(what, figure(candidate.scores[part], name)) for what, part, name in told]
        said = ", ".join(f"{what} {value:.1f}" for what, value in figures if value is not None)
        self.progress.say(f"{candidate.name}: {said}")


def _between(base: Candidate, goal: Candidate, share: float) -> SentenceTransformer:
    return interpolate(base.open(), goal.open(), share)


def _mean(once: Candidate, again: Path) -> SentenceTransformer:
    return mean_weights([once.open(), load_encoder(again)])


def _joined(pair: tuple[Candidate, Candidate], weights: tuple[float, float]) -> SentenceTransformer:
    return join_encoders([one.open() for one in pair], weights)
