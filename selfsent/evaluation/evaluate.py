"""evaluate() and compare(): from models to scores with their protocols and intervals."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from selfsent.corpus.in_memory import source_names
from selfsent.corpus.prepare import corpus_texts, prepare_corpus
from selfsent.corpus.settings import CorpusConfig
from selfsent.encoder.base import Encoder
from selfsent.encoder.coverage import check_coverage
from selfsent.encoder.open import as_encoder, open_encoder
from selfsent.errors import ConfigurationError
from selfsent.evaluation import mteb
from selfsent.evaluation.comparison import Compared, average_seeds, compare_results, require_seeds
from selfsent.evaluation.score import Results, Scored
from selfsent.evaluation.senteval.declutr_averages import averages
from selfsent.evaluation.senteval.relatedness import StopOn
from selfsent.evaluation.suite import DEFAULT_CLASSIFIER, HeldOut, read_suite, resolve_tasks
from selfsent.evaluation.whitening_baseline import Whitening, whiten_target
from selfsent.progress import SILENT, Progress
from selfsent.storage import atomic
from selfsent.storage.provenance import versions

SCORES_BY = "selfsent evaluate"  # by which its own file is known

if TYPE_CHECKING:
    from mteb.abstasks.abstask import AbsTask
    from sentence_transformers import SentenceTransformer


def evaluate(
    model: "str | Path | SentenceTransformer",
    tasks: Sequence[str] = ("sts",),
    *,
    data: str | Path | None = None,
    held_out: HeldOut | None = None,
    corpus: Sequence[str | Path] | str | Path = (),
    pooling: str | None = None,
    max_length: int | None = None,
    poolings: Sequence[str] = (),
    whitening: Sequence[str] = (),
    whiten_on: Sequence[str | Path] = (),
    classifier: str = DEFAULT_CLASSIFIER,
    stop_on: StopOn = "pearson",
    precision: str = "auto",
    bootstrap: int = 1000,
    mteb_results: str | Path | None = None,
    progress: Progress = SILENT,
) -> Scored:
    """Score a model, and training-free baselines of the same encoder beside it, from one reading of the data.

    Args:
        tasks: groups and tasks by name, own files such as "classification:intents.csv", "mteb:NAME" of that package.
        data: a folder in SentEval's layout, or ``hub`` for the hub's copies.
        held_out: queries and the passage that answers each, for the task "retrieval".
        corpus: documents to take queries and passages from where ``held_out`` is None.
        pooling: in place of the model's own.
        max_length: tokens read of a text, special tokens included and a prompt's own not, in place of the model's.
        poolings: also score these poolings of the same encoder, without any head.
        whitening: also score the model's vectors whitened: "pca", "zca" or "group", fitted to each task's texts.
        whiten_on: files, folders or hub names of texts, a line each, that whitening is fitted to instead.
        classifier: for labelled tasks: "senteval_full", "senteval_fast", "senteval_mlp" or "sklearn".
        stop_on: the development correlation that stops the regressions of relatedness: "pearson" or "spearman".
        mteb_results: a folder for the result files of tasks of mteb, in the layout that its ``ResultCache`` reads.

    Raises:
        UserError: an unknown task, pooling or classifier, incomplete data, labels that no classifier can be trained
            on, or vectors that are not finite.

    Examples:
        >>> results = selfsent.evaluate("runs/tickets/model", ["stsb"], data="evaluation-data")
        >>> for name, scores in results.items():
        ...     print(name, scores.get("stsb").value)
    """
    own, public = split_tasks(tasks)
    prepared = held_out is not None
    searched = "retrieval" in own and not prepared and bool(corpus)
    encoder = _open(model, pooling, max_length, layers=bool(public or poolings or searched))
    output = None if mteb_results is None else mteb.ResultFiles(Path(mteb_results), mteb.public_name(model), public)
    cache = atomic.cache_folder("mteb", "")
    public_scores = mteb.score_mteb(encoder, public, cache, output, precision=precision, progress=progress)
    if public and not own:
        return Scored(model=Results(scores=public_scores))
    if searched:
        held_out = _held_out_part(encoder, corpus, progress)
    embed = partial(encoder.before_unit().embed, precision=precision, progress=progress)
    plain = partial(embed, prompt=encoder.task_prompt("default"))
    other = _whitened_on(whiten_on, whitening, plain, progress) if whitening and whiten_on else None
    suite = read_suite(own, data, held_out=held_out, classifier=classifier, stop_on=stop_on)
    for line in suite.notes:
        progress.say(line)
    if not prepared:  # pairs that a run held out are of the text that it was trained on, which was checked
        check_coverage(encoder, suite.sentences, "this encoder", progress)
    progress.say(f"encoding {len(suite.sentences):,} different texts (tasks: {len(suite.tasks)})")
    vectors = suite.prompted.encode(embed, encoder.task_prompt)
    score = partial(suite.score, bootstrap=bootstrap, progress=progress)
    protocol = {"pooling": encoder.pooling, "max_length": encoder.max_length}
    scored = score(vectors, protocol=protocol, encoder=encoder)
    results = Scored(model=replace(scored, scores=scored.scores + public_scores))
    for kind in whitening:
        transform = partial(whiten_target, kind) if other is None else Whitening(kind=kind).fit(other).transform
        on = "target" if other is None else f"{len(other):,} texts of {', '.join(Path(n).name for n in whiten_on)}"
        how = {**protocol, "whitening": f"{kind}, {on}"}
        results[f"{kind} whitening"] = score(vectors, protocol=how, transform=transform, encoder=encoder)
        for task in sorted(results[f"{kind} whitening"].missing.keys() - results["model"].missing.keys()):
            progress.say(f"{kind} whitening of {task} is left out: {results[f'{kind} whitening'].missing[task]}")
    pooled = _pooled(encoder, suite.sentences, poolings, precision, progress) if poolings else {}
    results |= {name: score(pooled[name], protocol={**protocol, "pooling": name}) for name in pooled}
    return results


def _whitened_on(
    names: Sequence[str | Path],
    kinds: Sequence[str],
    embed: Callable[[list[str]], NDArray[np.float32]],
    progress: Progress,
) -> NDArray[np.float32]:
    """Return the vectors of texts that whitening is fitted to; too few are refused before anything is scored."""
    progress.say("encoding the texts that whitening is fitted to")
    vectors = embed(list(corpus_texts([str(name) for name in names], CorpusConfig(preset="as_is", min_words=1))))
    for kind in kinds:
        Whitening(kind=kind).fit(vectors)
    return vectors


def _pooled(
    encoder: Encoder, sentences: Sequence[str], poolings: Sequence[str], precision: str, progress: Progress
) -> dict[str, NDArray[np.float32]]:
    """Return the vectors of each pooling; nothing of an encoder without layers."""
    pooled = encoder.embed_poolings(sentences, poolings, precision=precision, progress=progress)
    if not pooled:
        progress.say("poolings are left out: these are static vectors, which have no layers to pool")
    return pooled


def _open(
    model: "str | Path | SentenceTransformer", pooling: str | None, max_length: int | None, *, layers: bool
) -> Encoder:
    """Open a model as fast as its kind allows, or as a SentenceTransformer where something needs its ``layers``."""
    if not isinstance(model, str | Path):
        return as_encoder(model)
    if not layers and pooling is None and max_length is None:
        return open_encoder(model)
    from selfsent.encoder.load import load_encoder

    return as_encoder(load_encoder(model, pooling=pooling, max_length=max_length))


def _held_out_part(encoder: Encoder, corpus: Sequence[str | Path] | str | Path, progress: Progress) -> HeldOut:
    """Prepare documents as training does, and return the pairs that it would hold out for the test."""
    sources, tokenizer = source_names(corpus), encoder.tokenizer
    pairs = prepare_corpus(sources, CorpusConfig(), tokenizer, progress=progress).held_out.test
    return pairs.queries, pairs.passages


def split_tasks(tasks: Sequence[str]) -> tuple[list[str], "list[AbsTask]"]:
    """Check the names of tasks, and split them into tasks of this package, groups expanded, and those of MTEB."""
    public = [name for name in tasks if name.startswith(mteb.PREFIX)]
    return resolve_tasks([name for name in tasks if name not in public]), mteb.mteb_tasks(public)


def compare(
    first: "Sequence[str | Path | SentenceTransformer]",
    second: "Sequence[str | Path | SentenceTransformer]",
    tasks: Sequence[str] = ("sts",),
    **options: Any,  # noqa: ANN401  what evaluate takes
) -> Compared:
    """Score two recipes by the models of their seeds, and return how much the first lies above the second.

    Args:
        first: the models of one recipe, one for each seed, three or more; the intervals are then over seeds and rows.
            One model alone is compared over the rows.
        second: as many of the other recipe, or one model.
        options: as for ``evaluate``.

    Raises:
        UserError: as for ``evaluate``, a task of MTEB, or no score of both has resamples.

    Examples:
        >>> _, _, differences = selfsent.compare(
        ...     ["runs/tickets/model"], ["bert-base-uncased"], ["stsb"], data="evaluation-data"
        ... )
        >>> print(differences[0].sentence())
    """
    if split_tasks(tasks)[1]:
        raise ConfigurationError("tasks of mteb cannot be compared: their scores have no resamples; leave them out")
    require_seeds(len(first), len(second))
    one, two = ([evaluate(seed, tasks, **options)["model"] for seed in seeds] for seeds in (first, second))
    return Compared(average_seeds(one), average_seeds(two), compare_results(one, two))


def write_scores(path: Path, results: Mapping[str, Results], model: str) -> None:
    """Write the result of ``evaluate`` as JSON: the scores of the model, and those of its baselines by name."""
    content = {
        "written_by": SCORES_BY,
        **results["model"].as_dict(),
        "model": model,
        "versions": versions(),
        "baselines": {name: other.as_dict() for name, other in results.items() if name != "model"},
    }
    if any("classifier" in score.protocol for score in results["model"].scores):
        content["declutr_averages"] = asdict(averages(results["model"].scores))
    atomic.write_json(path, content)
