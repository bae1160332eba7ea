"""The documents that a verdict is made of: those that the trained encoder has not learned from, if possible."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from selfsent.config import build_config, resolve_recipe
from selfsent.corpus.dataset import Corpus
from selfsent.corpus.prepare import draw_documents, prepare_corpus
from selfsent.corpus.settings import CorpusConfig
from selfsent.corpus.sources import Document, resolve_sources
from selfsent.errors import CorpusError, EncoderError, UserError
from selfsent.evaluation.label_free.document_tests import LEAST, DocumentTests, build_tests
from selfsent.evaluation.label_free.documents import parse_documents
from selfsent.evaluation.label_free.scores import require_enough_tests
from selfsent.progress import SILENT, Progress
from selfsent.storage import atomic
from selfsent.storage.run_folder import PLAN, SELECTION, Run, holds_run

DOCUMENTS = 1000  # for the tests, at most


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
    if not holds_run(run) or (run / "modules.json").is_file() or "recipe" not in Run(run).config():
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
    given = _content_of(sources)
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
    return draw_documents(sources, config, size, progress), note, has_read


def has_learned_from(model: str | Path, sources: Sequence[str]) -> bool:
    """Tell whether a model is that of a run or selection which read one of these sources."""
    learned = _learned(model)
    if learned is None:
        return False
    return bool(learned.places & _locations(sources) or learned.sources & _content_of(sources))


@dataclass(frozen=True)
class _Learned:
    """What a run or selection read."""

    sources: set[Hashable]  # by content
    places: set[Hashable]  # where the sources were


def _learned(model: str | Path) -> _Learned | None:
    """Return what the run or selection that a model lies in has read; None where it lies in none that can be read."""
    folder = Path(model).parent
    if Path(model).name != "model":
        return None
    try:
        if (folder / "config.json").is_file():
            content = Run(folder).config()
            identities, texts = content["sources"], content["recipe"]["texts"]
        elif (folder / PLAN).is_file():
            content = atomic.read_sealed(folder / PLAN, "")
            identities, texts = content["text"]["sources"], content["asked"]["sources"]
        else:
            return None
        return _Learned({_content(identity) for identity in identities}, _locations([str(text) for text in texts]))
    except (UserError, AttributeError, KeyError, TypeError):  # the folder of something else
        return None


def _content_of(sources: Sequence[str]) -> set[Hashable]:
    """Return what tells sources from others, and the names of those that cannot be read."""
    contents: set[Hashable] = set()
    for name in sources:
        try:
            contents |= {_content(source.identity()) for source in resolve_sources([name])}
        except UserError:
            contents.add(name)
    return contents


def _content(identity: Sequence[object]) -> Hashable:
    """Return what an identity says of the content alone: a copy of a file under another name is the same text."""
    return tuple(map(str, identity[1:] if len(identity) == 3 else identity))


def _locations(sources: Sequence[str]) -> set[Hashable]:
    """Return the absolute paths of files, and the names of other sources and of what no longer exists."""
    locations: set[Hashable] = set()
    for name in sources:
        try:
            locations |= {
                str(source.path.resolve()) if source.path else source.name for source in resolve_sources([name])
            }
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
