"""MTEB tasks by name, through its own package: ``mteb:Banking77Classification``.

The package brings data (from the hub) and protocols; the encoder and the cache are ours.  Results are cached by
encoder, precision and version of the package, so that only tasks without a result are run.  ``ResultFiles`` writes
them in the layout of the package's own results: ``results/OWNER__NAME/REVISION/TASK.json``, with a model_meta.json.
"""

import json
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from selfsent.encoder.base import Encoder
from selfsent.errors import ConfigurationError, DataError, UserError
from selfsent.evaluation.score import Score, measured
from selfsent.progress import SILENT, Progress
from selfsent.storage import atomic

if TYPE_CHECKING:
    from mteb.abstasks.abstask import AbsTask
    from mteb.models import EncoderProtocol
    from mteb.types import PromptType
    from sentence_transformers import SentenceTransformer

PREFIX = "mteb:"
RANKING = ("map_at_1", "map_at_1000", "mrr_at_1", "mrr_at_10", "ndcg_at_10")  # also given of tasks that rank
_SUBQUERIES = "max_over_subqueries_"  # before the metrics of a task whose users have several queries each
_NAME = "selfsent/encoder"  # of every model in the cache, where the revision tells them apart


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
        raise ConfigurationError(f"{names[0]} needs the package mteb: pip install '.[mteb]' in the checkout") from None
    except KeyError as error:
        raise ConfigurationError(f"mteb has no such task: {error.args[0].removeprefix('KeyError: ')}") from None


def score_mteb(
    encoder: Encoder,
    tasks: "Sequence[AbsTask]",
    cache: Path,
    output: "ResultFiles | None" = None,
    *,
    precision: str = "auto",
    progress: Progress = SILENT,
) -> list[Score]:
    """Run the tasks without a cached result; return the scores of every split and subset, without intervals.

    A subset is a language, or a pair of languages, where a task has several.  Of each the main score, and behind all
    main scores of a task those of ``RANKING`` that it has, of its sub-queries where its main score is of them.

    Args:
        cache: a folder; it gets a folder for each encoder, precision and version.
        output: gets the result of each task, as soon as there is one.

    Raises:
        DataError: a task's data cannot be loaded, or the task cannot be run.
    """
    if not tasks:
        return []
    import mteb

    progress.say(f"mteb runs {len(tasks)} of its tasks")
    digest = encoder.digest[:16]
    results = mteb.ResultCache(cache / f"{digest}-{precision}-{version('mteb')}")
    scores = []
    for task in tasks:
        facts = task.metadata
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
            raise DataError(f"mteb could not run {facts.name}: {reason.splitlines()[0]}") from error
        if output is not None:
            kept = results.get_task_result_path(facts.name, _NAME, digest)
            output.write_result(encoder, kept)
        for result in outcome.task_results:
            protocol = {"mteb": result.mteb_version, "data": f"{facts.name} @ {result.dataset_revision}"}
            scores += [
                measured(
                    PREFIX + facts.name,
                    f"{split} {subset['hf_subset']}" if len(subsets) > 1 else split,
                    metric,
                    100 * float(subset["main_score" if metric == facts.main_score else metric]),
                    None,
                    (facts.n_samples or {}).get(split, 0),  # 0 where the package does not say
                    {**protocol, "subset": subset["hf_subset"]},
                )
                for metric in dict.fromkeys((facts.main_score, *_ranking(facts.main_score)))
                for split, subsets in result.scores.items()
                for subset in subsets
                if metric == facts.main_score or metric in subset
            ]
    return scores


def _ranking(main_score: str) -> list[str]:
    """Return the names of ``RANKING`` in a task, which ranks by sub-queries if its main score does."""
    prefix = _SUBQUERIES if main_score.startswith(_SUBQUERIES) else ""
    return [prefix + metric for metric in RANKING]


class ResultFiles:
    """The folder that gets the result files of tasks."""

    def __init__(self, folder: Path, name: str, tasks: "Sequence[AbsTask]") -> None:
        """Make sure, before anything is run, that there will be results, and that they can be written.

        Raises:
            ConfigurationError: no task of mteb is among the tasks, or nothing can be written there.
        """
        self._folder, self._name = folder / "results" / name.replace("/", "__").replace(" ", "_"), name
        if not tasks:
            raise ConfigurationError("result files of mteb are written for its own tasks alone: add --tasks mteb:NAME")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(f"cannot write {self._folder}: {error.strerror}; name another folder") from error

    def write_result(self, encoder: Encoder, kept: Path) -> Path:
        """Write the result of a task, and what is known of the encoder, and return where the result is.

        The revision is a digest of the encoder: folders of models have no other.

        Args:
            kept: the result in the cache.
        """
        from mteb.models import ModelMeta

        place = self._folder / encoder.digest[:16]
        facts = {
            "name": self._name,
            "revision": place.name,
            "embed_dim": encoder.width,
            "max_tokens": encoder.max_length,
            "n_parameters": encoder.parameters,
            "framework": ["Sentence Transformers", "PyTorch"],
            "similarity_fn_name": "cosine",
        }
        meta = ModelMeta.create_empty().to_dict() | facts
        atomic.write_json(place / "model_meta.json", json.loads(json.dumps(meta, default=str)))
        atomic.write_bytes(place / kept.name, kept.read_bytes())
        return place / kept.name


def public_name(model: "str | Path | SentenceTransformer") -> str:
    """Return the name that results get: that on the hub, or ``selfsent/`` and that of the folder or its run."""
    if not isinstance(model, str | Path):
        return _NAME
    if re.fullmatch(r"[\w.-]*\w[\w.-]*/[\w.-]+", str(model)) and not Path(model).exists():
        return str(model)
    path = Path(model)
    return f"selfsent/{path.resolve().parent.name if path.name == 'model' else path.resolve().name}"


def _wrapped(encoder: Encoder, digest: str, precision: str) -> "EncoderProtocol":
    """Return what mteb calls an encoder: batches of texts in, vectors out."""
    from mteb.models import ModelMeta
    from mteb.models.abs_encoder import AbsEncoder

    class Wrapped(AbsEncoder):
        mteb_model_meta = ModelMeta.create_empty(overwrites={"name": _NAME, "revision": digest})

        def encode(
            self, inputs: Iterable[Mapping[str, list[str]]], prompt_type: "PromptType | None" = None, **_: object
        ) -> np.ndarray:
            texts = [text for batch in inputs for text in batch["text"]]
            prompt = encoder.resolve_prompt() if prompt_type is None else encoder.task_prompt(prompt_type.value)
            return encoder.embed(texts, prompt=prompt, precision=precision)

    return Wrapped()
