"""Tasks of MTEB by name, through its own package: ``mteb:Banking77Classification``.

The package brings data (from the hub) and protocols; ours are the encoder and the cache.  Results are kept by encoder,
precision and version of the package, so that a task that was interrupted or a second one is run alone, and two encoders
are never taken for one another.
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
from selfsent.errors import UserError
from selfsent.evaluation.score import Score, measured
from selfsent.progress import SILENT, Progress

if TYPE_CHECKING:
    from mteb.abstasks.abstask import AbsTask
    from mteb.models import EncoderProtocol
    from mteb.results import TaskResult
    from mteb.types import PromptType

PREFIX = "mteb:"


def mteb_tasks(names: Sequence[str]) -> "list[AbsTask]":
    """Look the tasks up, in the order asked for.

    Raises:
        UserError: the package is not installed, or it has no such task.
    """
    try:
        import mteb
    except ImportError:
        raise UserError(f"{names[0]} needs the package mteb: pip install 'selfsent[mteb]'") from None
    found = []
    for name in names:
        try:
            found += list(mteb.get_tasks(tasks=[name.removeprefix(PREFIX)], languages=["eng"]))
        except KeyError:
            raise UserError(
                f"mteb has no task {name.removeprefix(PREFIX)!r}: its names are those of the leaderboard, such as "
                "Banking77Classification"
            ) from None
    return found


def score_mteb(
    encoder: SentenceTransformer,
    chosen: "Sequence[AbsTask]",
    cache: Path,
    *,
    precision: str = "auto",
    progress: Progress = SILENT,
) -> list[Score]:
    """Run the tasks that the cache does not hold; return the main score of every split and subset, without intervals.

    Args:
        cache: a folder; what belongs to one encoder lies in a folder of its own in it.

    Raises:
        UserError: a task's data cannot be had, or it cannot be run.
    """
    import mteb

    results = mteb.ResultCache(cache / f"{encoder_digest(encoder)[:16]}-{precision}-{version('mteb')}")
    scores = []
    for task in chosen:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of the package about its own insides
                outcome = mteb.evaluate(
                    _wrapped(encoder, precision),
                    task,
                    cache=results,
                    show_progress_bar=progress is not SILENT,
                    overwrite_strategy="only-missing",
                )
        except UserError:
            raise
        except Exception as error:  # whatever a data set, its loader or the network may raise
            raise UserError(f"mteb could not run {task.metadata.name}: {_plain(error)}") from error
        for result in outcome.task_results:
            scores += _scores(task, result)
    return scores


def _scores(task: "AbsTask", result: "TaskResult") -> list[Score]:
    protocol = {"mteb": result.mteb_version, "data": f"{task.metadata.name} @ {result.dataset_revision}"}
    return [
        measured(
            PREFIX + task.metadata.name,
            split,
            task.metadata.main_score,
            100 * float(found["main_score"]),
            None,
            (task.metadata.n_samples or {}).get(split, 0),  # 0 where the package does not say
            {**protocol, "subset": found["hf_subset"]},
        )
        for split, subsets in result.scores.items()
        for found in subsets
    ]


def _wrapped(encoder: SentenceTransformer, precision: str) -> "EncoderProtocol":
    """Return what mteb calls an encoder: batches of texts in, vectors out."""
    from mteb.models import ModelMeta
    from mteb.models.abs_encoder import AbsEncoder

    class Ours(AbsEncoder):
        def __init__(self) -> None:
            name = {"name": "selfsent/encoder", "revision": encoder_digest(encoder)[:16]}
            self.mteb_model_meta: ModelMeta = ModelMeta.create_empty(overwrites=name)

        def encode(
            self, inputs: Iterable[Mapping[str, list[str]]], prompt_type: "PromptType | None" = None, **_: object
        ) -> np.ndarray:
            texts = [text for batch in inputs for text in batch["text"]]
            prompt = None if prompt_type is None else task_prompt(encoder, prompt_type.value)
            return encode(encoder, texts, prompt=prompt, precision=precision)

    return Ours()


def _plain(error: BaseException) -> str:
    said = str(error).strip().strip("\"'")
    return said.splitlines()[0] if said else type(error).__name__
