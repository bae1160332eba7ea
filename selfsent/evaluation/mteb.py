"""MTEB tasks by name, through its own package: ``mteb:Banking77Classification``.

The package brings data (from the hub) and protocols; the encoder and the cache are ours.  Results are cached by
encoder, precision and version of the package, so that only tasks without a result are run.
"""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from sentence_transformers import SentenceTransformer

from selfsent.encoder.encode import encode, task_prompt
from selfsent.encoder.inspect import encoder_digest
from selfsent.errors import ConfigurationError, DataError, UserError
from selfsent.evaluation.score import Score, measured
from selfsent.progress import SILENT, Progress

if TYPE_CHECKING:
    from mteb.abstasks.abstask import AbsTask
    from mteb.models import EncoderProtocol
    from mteb.results import TaskResult
    from mteb.types import PromptType

PREFIX = "mteb:"


def mteb_tasks(names: Sequence[str]) -> "list[AbsTask]":
    """Look up tasks by name, each with all of its languages.

    Raises:
        ConfigurationError: the package is not installed, or it has no such task.
    """
    if not names:
        return []
    try:
        import mteb
    except ImportError:
        raise ConfigurationError(f"{names[0]} needs the package mteb: pip install 'selfsent[mteb]'") from None
    tasks = []
    for name in names:
        try:
            tasks.append(mteb.get_task(name.removeprefix(PREFIX)))
        except KeyError:
            raise ConfigurationError(
                f"mteb has no task {name.removeprefix(PREFIX)!r}: its names are those of the leaderboard, such as "
                "Banking77Classification"
            ) from None
    return tasks


def score_mteb(
    encoder: SentenceTransformer,
    tasks: "Sequence[AbsTask]",
    cache: Path,
    *,
    precision: str = "auto",
    progress: Progress = SILENT,
) -> list[Score]:
    """Run the tasks without a cached result; return the main score of every split and subset, without intervals.

    A subset is a language, or a pair of languages, where a task has several.

    Args:
        cache: a folder; it gets a folder for each encoder, precision and version.

    Raises:
        DataError: a task's data cannot be loaded, or the task cannot be run.
    """
    import mteb

    digest = encoder_digest(encoder)[:16]
    results = mteb.ResultCache(cache / f"{digest}-{precision}-{version('mteb')}")
    scores = []
    for task in tasks:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the package warns about its own internals
                outcome = mteb.evaluate(
                    _wrapped(encoder, digest, precision),
                    task,
                    cache=results,
                    show_progress_bar=progress is not SILENT,
                    overwrite_strategy="only-missing",
                )
        except UserError:
            raise
        except Exception as error:  # whatever a data set, its loader or the network may raise
            reason = str(error).strip().strip("\"'") or type(error).__name__
            raise DataError(f"mteb could not run {task.metadata.name}: {reason.splitlines()[0]}") from error
        for result in outcome.task_results:
            scores += _scores(task, result)
    return scores


def _scores(task: "AbsTask", result: "TaskResult") -> list[Score]:
    protocol = {"mteb": result.mteb_version, "data": f"{task.metadata.name} @ {result.dataset_revision}"}
    return [
        measured(
            PREFIX + task.metadata.name,
            f"{split} {scores['hf_subset']}" if len(subsets) > 1 else split,
            task.metadata.main_score,
            100 * float(scores["main_score"]),
            None,
            (task.metadata.n_samples or {}).get(split, 0),  # 0 where the package does not say
            {**protocol, "subset": scores["hf_subset"]},
        )
        for split, subsets in result.scores.items()
        for scores in subsets
    ]


def _wrapped(encoder: SentenceTransformer, digest: str, precision: str) -> "EncoderProtocol":
    """Return what mteb calls an encoder: batches of texts in, vectors out."""
    from mteb.models import ModelMeta
    from mteb.models.abs_encoder import AbsEncoder

    class Wrapped(AbsEncoder):
        def __init__(self) -> None:
            name = {"name": "selfsent/encoder", "revision": digest}
            self.mteb_model_meta: ModelMeta = ModelMeta.create_empty(overwrites=name)

        def encode(
            self, inputs: Iterable[Mapping[str, list[str]]], prompt_type: "PromptType | None" = None, **_: object
        ) -> np.ndarray:
            texts = [text for batch in inputs for text in batch["text"]]
            prompt = None if prompt_type is None else task_prompt(encoder, prompt_type.value)
            return encode(encoder, texts, prompt=prompt, precision=precision)

    return Wrapped()
