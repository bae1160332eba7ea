"""Scoreboards of candidates whose scores are made up: nothing is encoded or trained."""

from types import SimpleNamespace

import numpy as np

from selfsent.evaluation.label_free.scores import SCORE
from selfsent.evaluation.score import Results, measured
from selfsent.progress import SILENT
from selfsent.selection.material import Facts
from selfsent.selection.scoreboard import STATIC_BASE, Candidate, Scoreboard
from selfsent.selection.search_scores import MEANING, MRR
from selfsent.selection.settings import FitConfig

SPREAD = np.random.default_rng(0).normal(size=1000)  # the same draws for every candidate: differences are paired


def results(score, mrr=None, noise=0.0, seed=0):
    """A score whose resamples spread by 3 in common with others', and by ``noise`` alone."""
    own = noise * np.random.default_rng(seed).normal(size=1000)
    scores = [measured(SCORE, "structure", "mean", float(score), score + 3 * SPREAD + own, 100, {})]
    if mrr is not None:
        scores.append(measured("retrieval", "held-out", MRR, float(mrr), mrr + SPREAD + own, 100, {}))
        scores.append(measured("retrieval", "held-out", MEANING, float(mrr) / 2, mrr / 2 + SPREAD + own, 100, {}))
    return Results(scores=scores)


def candidate(name, dev, test=None, general=80.0, base="", noise=0.0, mrr=None, **given):
    """A candidate that is scored on the documents that choose, and all of its scores."""
    given = {"is_transformer": True, "open": lambda: None, **given}
    made = Candidate(name=name, how=f"how {name}", base=base, **given)
    scores = {
        "dev": results(dev, mrr),
        "test": results(dev if test is None else test, mrr, noise, seed=len(name)),
        "gate": results(dev, mrr and mrr + 6),
        "general dev": results(general, noise=noise, seed=2 + len(name)),
        "general test": results(general, noise=noise, seed=1 + len(name)),
    }
    made.scores = {split: scores[split] for split in ("dev", "general dev")}
    return made, scores


class Vectors:
    """Scores that were made up, and what was asked for; a candidate without any scores 50, or as ``values`` says."""

    def __init__(self, scores, *, paired, words=None, both=None):
        self.scores, self.values, self.asked = scores, {}, []
        words = words or results(40.0, 40.0)
        found = {
            "score_words": lambda: words,
            "score_with_words": lambda vectors, weight: (both or {}).get(vectors, words),
        }
        self.tests = {split: SimpleNamespace(paired=paired, texts=[], **found) for split in ("dev", "test", "gate")}

    def of(self, candidate, split):
        return candidate.name

    def score(self, candidate, split):
        self.asked.append((candidate.name, split))
        if candidate.name in self.scores:
            return self.scores[candidate.name][split]
        value = self.values.get(candidate.name, 50.0)
        return results(80.0) if "general" in split else results(value, value)


def scoreboard(*made, kind="documents", paired=True, bases=1, static=90.0, english=True, gate=None, **given):
    """A scoreboard of made-up candidates.

    Args:
        paired: whether there are queries and passages.
        bases: how many of the candidates are bases, from the first on.
        static: score of the static vectors that ship on general text.
        gate: signals of search.
        given: ``words`` and ``both``, the scores of word matching and of both; else settings.
    """
    matching = {key: given.pop(key) for key in ("words", "both") if key in given}
    every = {each.name: scores for each, scores in (candidate(STATIC_BASE, 0, general=static), *made)}
    vectors = Vectors(every, paired=paired, **matching)
    facts = Facts(kind=kind, documents=500, texts=400, pairs=900, held_out=100, share=1.0, different=400)
    board = Scoreboard(facts, vectors, FitConfig(**given), SILENT)
    board.candidates = [each for each, _ in made]
    board.bases, board.english = board.candidates[:bases], english
    if gate is not None:
        board.search_gate = gate
    return board
