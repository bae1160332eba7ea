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

from selfsent.encoder.encode import encode
from selfsent.encoder.inspect import encoder_digest
from selfsent.encoder.task_prompts import task_prompt
from selfsent.errors import ConfigurationError, DataError, UserError
from selfsent.evaluation.score import Score, measured
from selfsent.progress import SILENT, Progress

if TYPE_CHECKING:
    from mteb.abstasks.abstask import AbsTask
    from mteb.models import EncoderProtocol
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

        return [mteb.get_task(name.removeprefix(PREFIX)) for name in names]
    except ImportError:
        raise ConfigurationError(f"{names[0]} needs the package mteb: pip install 'selfsent[mteb]'") from None
    except KeyError as error:
        raise ConfigurationError(f"mteb has no such task: {error.args[0].removeprefix('KeyError: ')}") from None


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

    progress.say(f"mteb runs {len(tasks)} of its tasks")
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
        facts = task.metadata
        for result in outcome.task_results:
            protocol = {"mteb": result.mteb_version, "data": f"{facts.name} @ {result.dataset_revision}"}
            scores += [
                measured(
                    PREFIX + facts.name,
                    f"{split} {subset['hf_subset']}" if len(subsets) > 1 else split,
                    facts.main_score,
                    100 * float(subset["main_score"]),
                    None,
                    (facts.n_samples or {}).get(split, 0),  # 0 where the package does not say
                    {**protocol, "subset": subset["hf_subset"]},
                )
                for split, subsets in result.scores.items()
                for subset in subsets
            ]
    return scores


def _wrapped(encoder: SentenceTransformer, digest: str, precision: str) -> "EncoderProtocol":
    """Return what mteb calls an encoder: batches of texts in, vectors out."""
    from mteb.models import ModelMeta
    from mteb.models.abs_encoder import AbsEncoder

    class Wrapped(AbsEncoder):
        mteb_model_meta = ModelMeta.create_empty(overwrites={"name": "selfsent/encoder", "revision": digest})

        def encode(
            self, inputs: Iterable[Mapping[str, list[str]]], prompt_type: "PromptType | None" = None, **_: object
        ) -> np.ndarray:
            texts = [text for batch in inputs for text in batch["text"]]
            prompt = None if prompt_type is None else task_prompt(encoder, prompt_type.value)
            return encode(encoder, texts, prompt=prompt, precision=precision)

    return Wrapped()
