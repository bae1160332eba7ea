"""The verdict without labels: from two encoders and raw text to better, worse, or cannot tell.

``differences`` measures and judges; this module chooses the documents and the baselines.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from selfsent.config import build_config, resolve_recipe
from selfsent.corpus import sample
from selfsent.corpus.dataset import Corpus
from selfsent.corpus.settings import CorpusConfig
from selfsent.corpus.sources import Document, resolve_sources
from selfsent.encoder.base import Encoder
from selfsent.encoder.coverage import check_coverage
from selfsent.encoder.folder import find_model, one_sentence, read_modules
from selfsent.encoder.open import open_encoder
from selfsent.errors import ConfigurationError, CorpusError, EncoderError, UserError
from selfsent.evaluation import geometry
from selfsent.evaluation.label_free.differences import (
    LabelFreeVerdict,
    judge_tests,
    require_enough_tests,
    score_bm25,
    score_vectors,
)
from selfsent.evaluation.label_free.document_tests import LEAST, DocumentTests, build_tests
from selfsent.evaluation.label_free.documents import parse_documents
from selfsent.evaluation.score import Results
from selfsent.progress import SILENT, Progress
from selfsent.storage import atomic
from selfsent.storage.run_folder import PLAN, SELECTION, Run, versions

DOCUMENTS = 1000  # for the tests, at most


def verdict(
    base: str | Path,
    trained: str | Path,
    texts: Sequence[str | Path] | str | Path,
    *,
    documents: int = DOCUMENTS,
    static: bool = True,
    language: str = "en",
    text_column: str = CorpusConfig.text_column,
    precision: str = "auto",
    bootstrap: int = 1000,
    seed: int = 0,
    details: bool = False,
    progress: Progress = SILENT,
) -> LabelFreeVerdict:
    """Decide on text without labels whether a trained encoder is better than its base.

    Args:
        base: "builtin", a folder, the folder of a run, or a name on the hub.
        trained: likewise; of a run that was trained on the same sources, the held-out documents are used.
        texts: files, folders, hub names of data sets, or "pydocs".
        documents: that tests are made of, at most.
        static: also score static word vectors of the same text, which take a minute or two the first time.
        language: of the sentence-splitting rules.
        text_column: of tables.
        bootstrap: resamples of documents behind each interval.
        details: also run the tests and metrics that enter no score: titles, perturbed sentences, areas under ROC.

    Raises:
        UserError: something given does not fit, or the text allows no test; the message says what would.
    """
    if bootstrap < 1:
        raise ConfigurationError(f"bootstrap = {bootstrap} does not fit: a verdict needs resamples, 100 or more")
    models = _find_both(base, trained)
    sources = [str(text) for text in ([texts] if isinstance(texts, str | Path) else texts)]
    config = CorpusConfig(language=language, text_column=text_column)
    material = choose_tests(
        models["trained"],
        sources,
        documents=documents,
        reading=config,
        seed=seed,
        details=details,
        progress=progress,
    )
    tests, note = material.tests, material.note
    facts: dict[str, object] = {"text": note, "documents": tests.documents, "versions": versions()}
    results: dict[str, Results] = {}

    def score(encoder: Encoder, name: str) -> Results:
        prompt = encoder.resolve_prompt()
        vectors = encoder.embed(tests.texts, prompt=prompt, precision=precision, progress=progress)
        return score_vectors(tests, vectors, name=name, resamples=bootstrap, seed=seed)

    for system, model in models.items():
        encoder = open_encoder(model, fastest=True, progress=progress)
        shape = f"pooling {encoder.pooling}, {encoder.width} wide"
        progress.say(f"{system}: {model}, {shape}; {len(tests.texts):,} texts are encoded")
        check_coverage(encoder, tests.texts, f"the {system} encoder {model}", progress)
        facts[f"{system} encoder"] = str(model)
        results[system] = score(encoder, f"the {system} encoder {model}")
    if static:
        from selfsent.word_vectors.static_vectors import cached_static_vectors

        try:
            folder = cached_static_vectors(sources, config, seed, progress)
        except UserError as error:
            progress.say(f"left out: static vectors, because {error}")
            facts["static left out"] = str(error)
        else:
            results["static"] = score(open_encoder(folder), "static")
    results["bm25"] = score_bm25(tests, resamples=bootstrap, seed=seed)
    figures = [{one.metric: one.value for one in results[name].scores if one.task == "geometry"} for name in models]
    alarms = [f"Beware: {alarm}." for alarm in geometry.collapse_alarms(figures[1], figures[0])]
    notes = [*(alarms or ["No sign of a collapse."]), f"{note[:1].upper()}{note[1:]}."]
    return judge_tests(tests, results, notes=notes, facts=facts, read=note if material.read else "")


def _find_both(base: str | Path, trained: str | Path) -> dict[str, str | Path]:
    models = {"base": find_trained(base), "trained": find_trained(trained)}
    if Path(models["base"]).resolve() == Path(models["trained"]).resolve():
        raise ConfigurationError(f"base and trained are the same encoder, {base}: give those before and after training")
    for model in models.values():
        with one_sentence(str(model)):  # one that is not there, or damaged, is refused before any text is read
            read_modules(find_model(model))
    return models


@dataclass(frozen=True)
class VerdictMaterial:
    """The tests that a text gives for an encoder."""

    tests: DocumentTests
    documents: list[Document]  # that they were drawn from
    note: str  # whether the encoder learned from them
    read: bool  # that it did, from some of them at least


def choose_tests(
    trained: str | Path,
    sources: Sequence[str],
    *,
    documents: int = DOCUMENTS,
    reading: CorpusConfig,
    seed: int = 0,
    details: bool = False,
    progress: Progress = SILENT,
) -> VerdictMaterial:
    """Make the verdict's tests of documents that ``trained``, a folder, was not trained on if possible.

    Args:
        reading: columns, language and splitting of the text.

    Raises:
        UserError: a source cannot be read, or the text allows no test.
    """
    chosen, note, learned = _choose_documents(trained, sources, reading, documents, progress)
    progress.say(note)
    tests = build_tests(parse_documents(chosen, reading.language, documents), seed=seed, details=details)
    require_enough_tests(tests)
    return VerdictMaterial(tests, chosen, note, learned)


def find_trained(name: str | Path) -> str | Path:
    """Return the model of a run or selection where its folder was given, and otherwise what was given."""
    folder = Path(name)
    if (folder / SELECTION).is_file() and (folder / "model").is_dir():
        return folder / "model"
    run = folder.parent if folder.name == "model" and not folder.exists() else folder
    if not (run / "config.json").is_file() or (run / "modules.json").is_file() or "recipe" not in Run(run).config():
        return name
    if not (run / "model").is_dir():
        raise EncoderError(f"the run {run} has no model yet: wait until its training ends, or resume it with --resume")
    return run / "model"


def _choose_documents(
    trained: str | Path, sources: Sequence[str], config: CorpusConfig, size: int, progress: Progress
) -> tuple[list[Document], str, bool]:
    """Return documents for the tests, held-out ones if possible, and whether the trained encoder learned from them.

    The last is in words, and True where it is known to have read some of these documents.
    """
    run = Run(Path(trained).parent)
    learned = _learned(trained)
    given = _content_of(sources) if learned is None or learned.known else _locations(sources)
    read = set() if learned is None else learned.sources
    moved = learned is not None and not given & read and bool(_locations(sources) & learned.places)
    has_read = bool(given & read) or moved
    if learned is None:
        note = "it is not known whether the trained encoder learned from this text"
    elif moved:
        note = "the trained encoder learned from this text as it was before it changed"
    elif not given & read:
        note = "the trained encoder learned from other files than these"
    elif not given <= read:
        note = "the trained encoder learned from a part of this text"
    elif given != read or (corpus := _training_corpus(run, progress)) is None:
        note = "the trained encoder learned from this text"
    else:
        dev, test = corpus.held_out_documents("dev"), corpus.held_out_documents("test")
        note = "the tests are made of documents that training held out"
        if len(test) >= 2 * LEAST:
            return test, note, False
        held_out = [*dev, *test]
        if len(held_out) >= 2 * LEAST:
            return held_out, f"{note}, half of which chose its weights", False
        note = (
            f"the trained encoder learned from this text, and only {len(held_out)} documents of it were held out, "
            "too few for tests"
        )
    return sample.draw_documents(sources, config, size, progress), note, has_read


def has_learned_from(model: str | Path, sources: Sequence[str]) -> bool:
    """Tell whether a model is that of a run or selection which read one of these sources."""
    learned = _learned(model)
    if learned is None:
        return False
    return bool(learned.places & _locations(sources) or (learned.known and learned.sources & _content_of(sources)))


@dataclass(frozen=True)
class _Learned:
    """What a run or selection read."""

    sources: set[Hashable]
    known: bool  # by content; False: by place, in a run from before the content was written down
    places: set[Hashable]  # where the sources were


def _learned(model: str | Path) -> _Learned | None:
    """Return what the run or selection that a model lies in has read; None where it lies in none that can be read."""
    folder = Path(model).parent
    if Path(model).name != "model":
        return None
    try:
        if (folder / "config.json").is_file():
            content = Run(folder).config()
            found, texts = content.get("sources"), content.get("recipe", {}).get("texts")
        elif (folder / PLAN).is_file():
            content = atomic.read_sealed(folder / PLAN, "")
            found, texts = content.get("text", {}).get("sources"), content["asked"]["sources"]
        else:
            return None
        places = _locations([str(one) for one in texts])
        return _Learned({_content(one) for one in found} if found else places, known=bool(found), places=places)
    except (UserError, AttributeError, KeyError, TypeError):  # the folder of something else
        return None


def _content_of(sources: Sequence[str]) -> set[Hashable]:
    """Return what tells sources from others, and the names of those that cannot be read."""
    found: set[Hashable] = set()
    for name in sources:
        try:
            found |= {_content(source.identity()) for source in resolve_sources([name])}
        except UserError:
            found.add(name)
    return found


def _content(identity: Sequence[object]) -> Hashable:
    """Return what an identity says of the content alone: a copy of a file under another name is the same text."""
    return tuple(map(str, identity[1:] if len(identity) == 3 else identity))


def _locations(sources: Sequence[str]) -> set[Hashable]:
    """Return the absolute paths of files, and the names of other sources and of what no longer exists."""
    locations: set[Hashable] = set()
    for name in sources:
        try:
            locations |= {str(one.path.resolve()) if one.path else one.name for one in resolve_sources([name])}
        except UserError:
            locations.add(name)
    return locations


def _training_corpus(run: Run, progress: Progress) -> Corpus | None:
    """Open the corpus of a run; prepare it again if it is no longer in the cache.

    None for a selection, and where the texts of a run are no longer at their place.
    """
    if (run.folder / SELECTION).is_file():
        return None
    config = run.config()
    folder = atomic.cache_folder("corpora", config["corpus"]["fingerprint"])
    if atomic.cached(folder):
        return Corpus(folder)
    from selfsent.corpus.prepare import prepare_corpus
    from selfsent.encoder.inspect import template_length, tokenizer_of
    from selfsent.encoder.load import load_encoder
    from selfsent.objectives import registry

    recipe, encoder = resolve_recipe(config["recipe"]), load_encoder(run.model)
    settings = build_config(CorpusConfig, recipe.corpus, "corpus")
    settings = replace(settings, max_length=settings.max_length + template_length(encoder))
    unit = registry.plan_objective(recipe.method, recipe.objective).unit
    try:
        corpus = prepare_corpus(recipe.texts, settings, tokenizer_of(encoder), unit=unit, progress=progress)
    except CorpusError:
        return None
    return corpus if corpus.fingerprint == config["corpus"]["fingerprint"] else None
