"""The verdict without labels: from two encoders and raw text to better, worse, or cannot tell.

What is measured and how it is judged stands in ``evaluation.verdict``; here it is decided on which text, and which
systems stand beside the two.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from safetensors import SafetensorError
from sentence_transformers import SentenceTransformer

from selfsent import atomic, hardware, methods
from selfsent.config import build_config, resolve_recipe
from selfsent.corpus import read, sample
from selfsent.corpus.dataset import HELD_OUT_DOCUMENTS, Corpus
from selfsent.corpus.prepare import CorpusConfig, prepare_corpus
from selfsent.corpus.read import Document
from selfsent.encoder.encode import encode
from selfsent.encoder.inspect import embedding_width, template_length, tokenizer_of
from selfsent.encoder.load import load_encoder
from selfsent.encoder.pooling import pooling_name
from selfsent.errors import UserError
from selfsent.evaluation import geometry
from selfsent.evaluation.labelfree import document_tests
from selfsent.evaluation.labelfree.verdict import (
    Encode,
    Verdict,
    embed_tests,
    judge_tests,
    require_enough_tests,
    score_bm25,
    score_vectors,
)
from selfsent.evaluation.score import Results
from selfsent.pretraining import static_vectors
from selfsent.progress import SILENT, Progress
from selfsent.run import Run, versions

DOCUMENTS = 1000  # tests are made of so many at most
_WORDS = 8192  # vocabulary of the static vectors: their table of neighbours takes 0.8 GB
_READ = 50_000  # documents that they are counted in, at most


@dataclass(frozen=True, kw_only=True)
class Text:
    """The documents that tests are made of, and what is known of whether the trained encoder saw them."""

    documents: list[Document]
    note: str


def verdict(
    base: str | Path,
    trained: str | Path,
    texts: Sequence[str | Path],
    *,
    documents: int = DOCUMENTS,
    static: bool = True,
    language: str = "en",
    precision: str = "auto",
    bootstrap: int = 1000,
    seed: int = 0,
    progress: Progress = SILENT,
) -> Verdict:
    """Say whether a trained encoder is better than its base on text that nobody labelled.

    Args:
        base: "builtin", a folder, the folder of a run, or a name on the hub.
        trained: likewise; of a run, text that it held out is used where it was trained on the same sources.
        texts: files, folders, hub names of data sets, or "pydocs".
        documents: that tests are made of, at most.
        static: also score static word vectors of the same text, which takes a minute or two the first time.
        language: whose rules of sentence splitting apply.
        bootstrap: resamples of documents behind each interval.

    Raises:
        UserError: something given cannot work, or the text allows no test; the message says what would.
    """
    if bootstrap < 1:
        raise UserError(f"bootstrap = {bootstrap} does not fit: a verdict rests on its resamples, so give 100 or more")
    models = {"base": _model(base), "trained": _model(trained)}
    if _place(models["base"]) == _place(models["trained"]):
        raise UserError(
            f"base and trained are the same encoder, {base}: give the one that training began with, "
            "and the one that it made"
        )
    sources = [str(text) for text in texts]
    config = CorpusConfig(language=language)
    text = _text(models["trained"], sources, config, documents, progress)
    progress.say(text.note)
    tests = document_tests.build_tests(sample.structured_documents(text.documents, language, documents), seed=seed)
    require_enough_tests(tests)

    machine = hardware.choose_hardware()
    found: dict[str, dict[str, NDArray[Any]]] = {}
    facts: dict[str, object] = {"text": text.note, "documents": tests.documents, "versions": versions()}
    for name, where in models.items():
        encoder = _opened(where).to(machine.device)
        how = f"pooling {pooling_name(encoder)}, {embedding_width(encoder)} wide"
        progress.say(f"{name}: {where}, {how}; {len(tests.texts):,} texts are encoded")
        facts[f"{name} encoder"] = str(where)
        found[name] = embed_tests(f"the {name} encoder {where}", _encode(encoder, precision, progress), tests)
    if static:
        folder = _static(sources, config, seed, progress)
        if isinstance(folder, Path):
            found["static"] = embed_tests("static", _encode(load_encoder(folder), precision, progress), tests)
        else:
            progress.say(f"left out: static vectors, because {folder}")
            facts["static left out"] = folder
    results = {name: score_vectors(tests, of_texts, resamples=bootstrap, seed=seed) for name, of_texts in found.items()}
    results["bm25"] = score_bm25(tests, resamples=bootstrap, seed=seed)
    alarms = geometry.collapse_alarms(_geometry(results["trained"]), _geometry(results["base"]))
    notes = [f"Beware: {alarm}." for alarm in alarms] or ["No sign of a collapse."]
    return judge_tests(tests, results, notes=[*notes, f"{text.note[:1].upper()}{text.note[1:]}."], facts=facts)


def _model(name: str | Path) -> str | Path:
    """Find the model of a run where the run's folder was given.

    Raises:
        UserError: the run has no model yet.
    """
    folder = Path(name)
    run = folder.parent if folder.name == "model" and not folder.exists() else folder
    if not (run / "config.json").is_file() or (run / "modules.json").is_file() or "recipe" not in _config(run):
        return name
    if not (run / "model").is_dir():
        raise UserError(
            f"the run {run} has no model yet: wait until its training ends, or end it with the command that began it "
            "and --resume"
        )
    return run / "model"


def _config(run: Path) -> dict[str, Any]:
    config = Run(run).config()
    return config if isinstance(config, dict) else {}


def _place(name: str | Path) -> str:
    return str(Path(name).resolve()) if Path(name).exists() else str(name)


def _opened(where: str | Path) -> SentenceTransformer:
    try:
        return load_encoder(where)
    except SafetensorError as error:
        raise UserError(
            f"the weights in {where} are cut short or damaged ({error}): wait if they are still being written, or copy "
            "them again"
        ) from error


def _encode(encoder: SentenceTransformer, precision: str, progress: Progress) -> Encode:
    return lambda texts: encode(encoder, texts, precision=precision, progress=progress)


def _text(trained: str | Path, sources: Sequence[str], config: CorpusConfig, size: int, progress: Progress) -> Text:
    """Take what the run of the trained encoder held out, if it was trained on these sources; else all there is."""
    run = Path(trained).parent
    known = Path(trained).name == "model" and (run / "config.json").is_file()
    recipe = _config(run).get("recipe", {}) if known else {}
    if not {"method", "texts", "corpus"} <= set(recipe):
        return Text(
            documents=sample.draw_documents(sources, config, size, progress),
            note="it is not known whether the trained encoder learned from this text",
        )
    shared = _places(sources) & _places(recipe["texts"])
    if not shared:
        note = "the trained encoder did not learn from this text"
    elif _places(sources) != _places(recipe["texts"]):
        note = "the trained encoder learned from a part of this text"
    else:
        corpus = _training_corpus(Run(run), progress)
        dev, test = corpus.held_out_documents("dev"), corpus.held_out_documents("test")
        for chosen, what in (
            (test, "the tests are made of documents that training held out"),
            (
                [*dev, *test],
                "the tests are made of documents that training held out, half of which chose its weights",
            ),
        ):
            if len(chosen) >= 2 * document_tests.LEAST:
                return Text(documents=chosen, note=what)
        note = (
            f"the trained encoder learned from this text, and held out only {len(dev) + len(test)} "
            "documents of it, too few for tests"
        )
    return Text(documents=sample.draw_documents(sources, config, size, progress), note=note)


def _training_corpus(run: Run, progress: Progress) -> Corpus:
    """Open the corpus of a run; prepare it again if it is no longer in the cache."""
    config = run.config()
    folder = atomic.cache_folder("corpora", config["corpus"]["fingerprint"])
    if (folder / HELD_OUT_DOCUMENTS).is_file():
        return Corpus(folder)
    recipe, encoder = resolve_recipe(config["recipe"]), _opened(run.model)
    settings = build_config(CorpusConfig, recipe.corpus, "corpus")
    settings = replace(settings, max_length=settings.max_length + template_length(encoder))
    unit = methods.plan_objective(recipe.method, recipe.objective).unit
    return prepare_corpus(recipe.texts, settings, tokenizer_of(encoder), unit=unit, progress=progress)


def _places(sources: Sequence[str]) -> set[str]:
    """Name sources so that equal names are equal text; a source that is gone stands for itself."""
    places = set()
    for name in sources:
        try:
            places |= {str(one.path.resolve()) if one.path else one.name for one in read.resolve_sources([name])}
        except UserError:
            places.add(name)
    return places


def _static(sources: Sequence[str], config: CorpusConfig, seed: int, progress: Progress) -> Path | str:
    """Return the folder of static vectors of the text, built once, or in words why there are none."""
    settings = static_vectors.StaticConfig(vocabulary=_WORDS, corpus=replace(config, max_texts=_READ), seed=seed)
    identity = [[source.identity() for source in read.resolve_sources(sources)], repr(settings)]
    fingerprint = hashlib.sha256(json.dumps(identity, default=str).encode()).hexdigest()[:24]
    folder = atomic.cache_folder("static", fingerprint)
    if folder.is_dir():
        return folder / "run" / "model"
    progress.say("static word vectors of this text are being counted, once")
    why = ""
    for size in (_WORDS, None):  # None: as many as the text gives, for one that gives fewer
        try:
            with atomic.build_folder(folder) as scratch:
                static_vectors.build_static_vectors(sources, scratch / "run", replace(settings, vocabulary=size))
            return folder / "run" / "model"
        except UserError as error:
            why = str(error)
    return why


def _geometry(results: Results) -> dict[str, float]:
    return {score.metric: score.value for score in results.scores if score.task == "geometry"}
