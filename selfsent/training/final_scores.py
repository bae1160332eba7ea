"""The scores at the end of a run: on the held-out test half, and of what needs no training on both halves."""

import math
from pathlib import Path

import numpy as np
from sentence_transformers import SentenceTransformer

from selfsent.config import Recipe, build_config
from selfsent.corpus.dataset import Corpus
from selfsent.corpus.held_out import HeldOut, HeldOutPairs
from selfsent.corpus.in_memory import spool_texts
from selfsent.corpus.settings import CorpusConfig
from selfsent.errors import ResumeError, UserError
from selfsent.evaluation.evaluate import evaluate
from selfsent.evaluation.label_free.held_out_retrieval import score_bm25_retrieval
from selfsent.evaluation.score import Results
from selfsent.progress import SILENT, Progress
from selfsent.training.trainer import TrainingOutcome, Validate
from selfsent.word_vectors.static_vectors import COUNTED, cached_static_vectors

_PIECES = 3_000_000  # tokens of the texts that word vectors are counted in: about a minute
_SEED = 0  # of the factorisation: runs that differ in the seed alone are compared with the same vectors


def final_baselines(recipe: Recipe, text: Corpus, progress: Progress) -> tuple[dict[str, Results], dict[str, Results]]:
    """Score BM25 and word vectors on the held-out test half, and on the dev half, where the curves are measured."""
    test, dev = text.held_out.test, text.held_out.dev
    if not recipe.train.baselines or len(test) < 2:
        return {}, {}
    language = build_config(CorpusConfig, recipe.corpus, "corpus").language
    vectors = count_training_vectors(text, language, progress)
    return score_baselines(test, vectors), score_baselines(dev, vectors)


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


def count_training_vectors(text: Corpus, language: str, progress: Progress = SILENT) -> Path | None:
    """Return the folder of word vectors counted in at most ``COUNTED`` training texts, drawn evenly from all of them.

    Of long documents fewer are counted, so that it takes about a minute.  What is held out is not among the texts of a
    corpus.  Of pairs only the text is read, not its positive.

    Returns:
        None if the text is too small, or the memory for the counts; the reason is said.
    """
    most = min(len(text), COUNTED, max(1, _PIECES * len(text) // text.tokens))
    rows = np.linspace(0, len(text) - 1, most).astype(np.int64)
    config = CorpusConfig(language=language, split="no", deduplicate="none", held_out=0)
    try:
        spooled = spool_texts(string for row in rows for string in text.texts(row[None]))
        return cached_static_vectors([str(spooled)], config, _SEED, progress)
    except UserError as error:
        progress.say(f"left out: word vectors of the training text, because {error}")
        return None


def score_baselines(pairs: HeldOutPairs, vectors: Path | None) -> dict[str, Results]:
    """Score BM25 and, if there are any, word vectors on held-out pairs, with the resamples that encoders get.

    Returns:
        Results by ``bm25`` and ``static``; none for fewer than two pairs, which cannot be ranked.
    """
    if len(pairs) < 2:
        return {}
    held_out = pairs.queries, pairs.passages
    results = {"bm25": score_bm25_retrieval(held_out)}
    if vectors is not None:
        results["static"] = evaluate(vectors, ["retrieval"], held_out=held_out)["model"]
    return results
