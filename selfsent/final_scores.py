"""The scores at the end of a run: on the held-out test half, and of what needs no training on both halves."""

from sentence_transformers import SentenceTransformer

from selfsent import baselines
from selfsent.config import Recipe, build_config
from selfsent.corpus.dataset import Corpus
from selfsent.corpus.heldout import HeldOut
from selfsent.corpus.settings import CorpusConfig
from selfsent.evaluation.score import Results
from selfsent.progress import Progress
from selfsent.scoring import evaluate


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
