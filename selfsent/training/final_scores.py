"""The scores at the end of a run: on the held-out test half, and of what needs no training on both halves."""

import math

from sentence_transformers import SentenceTransformer

from selfsent.config import Recipe, build_config
from selfsent.corpus.dataset import Corpus
from selfsent.corpus.held_out import HeldOut
from selfsent.corpus.settings import CorpusConfig
from selfsent.errors import ResumeError
from selfsent.evaluation.evaluate import evaluate
from selfsent.evaluation.score import Results
from selfsent.progress import Progress
from selfsent.training import baselines
from selfsent.training.trainer import TrainingOutcome, Validate


def final_baselines(recipe: Recipe, text: Corpus, progress: Progress) -> tuple[dict[str, Results], dict[str, Results]]:
    """Score BM25 and word vectors on the held-out test half, and on the dev half, where the curves are measured."""
    test, dev = text.held_out.test, text.held_out.dev
    if not recipe.train.baselines or len(test) < 2:
        return {}, {}
    language = build_config(CorpusConfig, recipe.corpus, "corpus").language
    vectors = baselines.count_training_vectors(text, language, progress)
    return baselines.score_baselines(test, vectors), baselines.score_baselines(dev, vectors)


def final_scores(encoder: SentenceTransformer, held_out: HeldOut, data: str | None, progress: Progress) -> Results:
    """Score an encoder on the held-out test half, and on labelled tasks where there is data."""
    pairs = held_out.test
    tasks = [*(["retrieval"] if len(pairs.queries) > 1 else []), *(["sts", "geometry"] if data else [])]
    if not tasks:
        return Results(scores=[])
    return evaluate(encoder, tasks, data=data, held_out=(pairs.queries, pairs.passages), progress=progress)["model"]


def require_same_score(
    saved: SentenceTransformer,
    selected: SentenceTransformer,
    validator: Validate,
    outcome: TrainingOutcome,
    progress: Progress,
) -> None:
    """Refuse a saved model that is not the one that was selected.

    Its score may have been measured before a kill, on a machine of other arithmetic: what decides is whether the saved
    model and the selected weights, which are in memory, score the same here.

    Raises:
        ResumeError: they do not.
    """
    if outcome.best_score is None:
        return
    name, before = outcome.selected_by, outcome.best_score
    again = validator(saved)[name]
    if math.isclose(again, before, rel_tol=0, abs_tol=1e-6):
        return
    now = validator(selected)[name]
    if not math.isclose(again, now, rel_tol=0, abs_tol=1e-6):
        raise ResumeError(
            f"the saved model scores {again:.4f} in {name}, and the weights that it was saved from {now:.4f}: the disk "
            "may be damaged, or the folder was changed meanwhile"
        )
    progress.say(
        f"warning: the selected weights scored {before:.4f} in {name} in training and score {now:.4f} here: "
        "the run was resumed on another machine, or with another precision"
    )
