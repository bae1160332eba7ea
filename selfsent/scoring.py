"""evaluate() and compare(): from models to scores with their protocols and intervals."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer

from selfsent import atomic
from selfsent.encoder.encode import encode, encode_poolings
from selfsent.encoder.inspect import max_length_of
from selfsent.encoder.load import load_encoder
from selfsent.encoder.pooling import pooling_name
from selfsent.errors import ConfigurationError
from selfsent.evaluation import mteb
from selfsent.evaluation.score import Difference, Results, compare_results, over_seeds
from selfsent.evaluation.senteval.declutr_averages import averages
from selfsent.evaluation.senteval.relatedness import StopOn
from selfsent.evaluation.suite import DEFAULT_CLASSIFIER, HeldOut, read_suite
from selfsent.evaluation.whitening import Whitening, whiten_target
from selfsent.progress import SILENT, Progress
from selfsent.run import versions


def evaluate(
    model: str | Path | SentenceTransformer,
    tasks: Sequence[str] = ("sts",),
    *,
    data: str | Path | None = None,
    held_out: HeldOut | None = None,
    pooling: str | None = None,
    poolings: Sequence[str] = (),
    whitening: Sequence[str] = (),
    classifier: str = DEFAULT_CLASSIFIER,
    stop_on: StopOn = "pearson",
    precision: str = "auto",
    bootstrap: int = 1000,
    progress: Progress = SILENT,
) -> dict[str, Results]:
    """Score a model, and training-free baselines of the same encoder beside it, from one reading of the data.

    Args:
        data: a folder in SentEval's layout, or ``hub`` for the copies that are there.
        poolings: also score these poolings of the same encoder, without any head.
        whitening: also score the model's vectors whitened: "pca", "zca" or "group", fitted to each task's texts.
        tasks: groups and tasks by name, own files such as "classification:intents.csv", "mteb:NAME" of that package.
        classifier: trained on the vectors of labelled tasks: "senteval_full", "senteval_fast", "senteval_mlp" or
            "sklearn".
        stop_on: the development correlation that stops the regressions of relatedness: "pearson" or "spearman".

    Raises:
        UserError: an unknown task, pooling or classifier, data that is not whole, labels that cannot be learned, or
            vectors that are not finite.
    """
    public = [name for name in tasks if name.startswith(mteb.PREFIX)]
    own = [name for name in tasks if name not in public]
    foreign = mteb.mteb_tasks(public) if public else []
    encoder = model if isinstance(model, SentenceTransformer) else load_encoder(model, pooling=pooling)
    found = []
    if foreign:
        progress.say(f"mteb runs {len(foreign)} task{'s' if len(foreign) != 1 else ''}")
        cache = atomic.cache_folder("mteb", "")
        found = mteb.score_mteb(encoder, foreign, cache, precision=precision, progress=progress)
        if not own:
            return {"model": Results(scores=found)}
    folder = None if data is None else Path(data)
    suite = read_suite(own, folder, held_out=held_out, classifier=classifier, stop_on=stop_on)
    for line in suite.notes:
        progress.say(line)
    plural = "s" if len(suite.tasks) != 1 else ""
    progress.say(f"encoding {len(suite.sentences):,} different texts of {len(suite.tasks)} task{plural}")
    vectors = encode(encoder, suite.sentences, precision=precision, progress=progress)
    protocol = {"pooling": pooling_name(encoder), "max_length": max_length_of(encoder)}

    def scored(vectors: Any, transform: Any = None, **changes: str) -> Results:  # noqa: ANN401
        known = {**protocol, **changes}
        return suite.score(vectors, bootstrap=bootstrap, protocol=known, transform=transform, progress=progress)

    results = {"model": scored(vectors)}
    results["model"] = replace(results["model"], scores=[*results["model"].scores, *found])
    for kind in whitening:
        whiten = whiten_target(Whitening(kind=kind))
        results[f"{kind} whitening"] = scored(vectors, whiten, whitening=f"{kind}, target")
    if poolings:
        free = encode_poolings(encoder, suite.sentences, poolings, precision=precision, progress=progress)
        results |= {name: scored(pooled, pooling=name) for name, pooled in free.items()}
    return results


def compare(
    first: Sequence[str | Path | SentenceTransformer],
    second: Sequence[str | Path | SentenceTransformer],
    tasks: Sequence[str] = ("sts",),
    **options: Any,  # noqa: ANN401  what evaluate takes
) -> tuple[Results, Results, list[Difference]]:
    """Score two recipes, each by its seeds, and return how much the first lies above the second on the same rows.

    Args:
        first, second: the models of one recipe each, one for a seed; the intervals then include the seeds, too.
        options: as for ``evaluate``.

    Raises:
        UserError: as for ``evaluate``, or nothing was measured in both that has an interval.
    """
    one, two = (
        over_seeds([evaluate(model, tasks, **options)["model"] for model in models]) for models in (first, second)
    )
    return one, two, compare_results(one, two)


def write_scores(path: Path, results: Mapping[str, Results], model: str) -> None:
    """Write what ``evaluate`` returned as JSON: the model's own scores first, each of its baselines beside them."""
    content = {
        **results["model"].as_dict(),
        "model": model,
        "versions": versions(),
        "baselines": {name: other.as_dict() for name, other in results.items() if name != "model"},
    }
    if any("classifier" in score.protocol for score in results["model"].scores):
        content["declutr_averages"] = asdict(averages(results["model"].scores))
    try:
        atomic.write_json(path, content)
    except OSError as error:
        raise ConfigurationError(f"cannot write {path}: {error.strerror}") from error
