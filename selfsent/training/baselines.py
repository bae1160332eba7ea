"""BM25, and word vectors counted in the training text, on the held-out pairs of a run."""

from pathlib import Path

import numpy as np

from selfsent.corpus.dataset import Corpus
from selfsent.corpus.held_out import HeldOutPairs
from selfsent.corpus.settings import CorpusConfig
from selfsent.corpus.sources import spool_texts
from selfsent.errors import UserError
from selfsent.evaluation.evaluate import evaluate
from selfsent.evaluation.label_free.held_out_retrieval import score_bm25_retrieval
from selfsent.evaluation.score import Results
from selfsent.progress import SILENT, Progress
from selfsent.word_vectors.static_vectors import COUNTED, cached_static_vectors

_PIECES = 3_000_000  # tokens of the texts that word vectors are counted in: about a minute
_SEED = 0  # of the factorisation: runs that differ in the seed alone are compared with the same vectors


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
        spooled = spool_texts(one for row in rows for one in text.texts(row[None]))
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
    found = {"bm25": score_bm25_retrieval(held_out)}
    if vectors is not None:
        found["static"] = evaluate(vectors, ["retrieval"], held_out=held_out)["model"]
    return found
