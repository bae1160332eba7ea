"""fit(): the best encoder for a text, chosen without labels, never worse than what was there.

    text -> training texts, pairs, held-out documents (material.py)
         -> candidates: bases, word vectors of the text, trained bases, weights between, two side by side (stages.py),
            and some of them partly whitened (whitened.py)
         -> the best on half of the held-out documents, compared with its base on the other half (choose.py)

Every stage leaves a file or a folder in ``out``: a selection that was killed resumes where it was.  What depends on
time, how many steps fit into the minutes, is decided once and kept in ``plan.json``.
"""

import dataclasses
import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from selfsent.config import apply_settings, build_config, list_settings
from selfsent.corpus.held_out import HeldOutPairs
from selfsent.corpus.settings import CorpusConfig
from selfsent.corpus.sources import DEMO, corpus_sources, resolve_sources
from selfsent.encoder.inspect import encoder_digest
from selfsent.encoder.load import load_encoder
from selfsent.encoder.save import save_encoder
from selfsent.errors import ConfigurationError, ResumeError
from selfsent.evaluation.label_free.material import find_trained, has_learned_from
from selfsent.objectives.registry import plan_objective
from selfsent.progress import SILENT, Progress
from selfsent.runs.card import fit_card, write_card
from selfsent.runtime import hardware
from selfsent.selection.candidates import Vectors, short_name
from selfsent.selection.choose import Decision, choose
from selfsent.selection.fit_plan import FitPlan
from selfsent.selection.held_out_tests import HeldOutTests
from selfsent.selection.material import PARTS, Material, gather_material
from selfsent.selection.page import render_selection
from selfsent.selection.settings import FitConfig
from selfsent.selection.stages import DEFAULT_BASES, TWICE, WORDS, Stages
from selfsent.selection.whitened import add_partly_whitened
from selfsent.storage import atomic, locks
from selfsent.storage.provenance import versions
from selfsent.storage.run_folder import PLAN, SELECTION

MODEL, REPORT, PAGE = "model", SELECTION, "fit.html"
GENERAL = Path(__file__).parent.parent / "builtin" / "general.jsonl.xz"
_EXAMPLES = 8  # searches on the page
_OF_CANDIDATES = (" + ", ", partly whitened", " beside ")  # what their names have behind a base's
_BYTES_A_MINUTE = 6_000_000  # of text that is read for every minute
_READ = {  # settings of corpus that a selection looks at
    *("preset", "clean", "split", "language"),
    *("text_column", "title_column", "summary_column", "positive_column"),
}


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """The encoder that was kept, and every figure behind the choice."""

    folder: Path
    model: Path
    kept: str  # name of the candidate
    base: str  # that it was compared with
    sentences: list[str]  # the first says what was kept
    rows: list[dict[str, Any]]  # of the table, one a candidate
    page: Path  # the same with figures and searches, in HTML

    def __str__(self) -> str:
        return " ".join(self.sentences)


def fit(
    texts: Iterable[str] | None = None,
    *,
    corpus: Sequence[str | Path] | str | Path | None = None,
    base: Sequence[str | Path] | str | Path = (),
    out: str | Path = "runs/fit",
    minutes: float | None = None,
    settings: Sequence[str] | Mapping[str, object] = (),
    resume: bool = False,
    progress: Progress = SILENT,
) -> Fitted:
    """Find the best encoder for a text, without labels, within a budget of time.

    Args:
        texts: the texts themselves: a list, an iterator, a column of strings.
        corpus: instead of texts: files, folders, hub names of data sets, or "pydocs".
        base: encoders to start from and to be compared with: folders, runs, or names on the hub.  Default: those that
            ship.
        out: the folder of the selection; the encoder that is kept is its ``model``.
        minutes: of this machine's time, about.
        settings: changes to ``FitConfig`` such as ``["steps=500"]`` or ``{"steps": 500}``.
        resume: resume the selection in ``out``, or return its result if it is finished; start it where there is none.

    Raises:
        UserError: something given cannot work; the message says what would.
        Interrupted: Ctrl-C or SIGTERM while training; the state is saved.
    """
    given = {} if minutes is None else {"minutes": minutes}
    settings = [one.removeprefix("fit.") for one in list_settings(settings)]  # as `selfsent settings fit` lists them
    table = apply_settings(given, settings)
    _require_read(table.get("corpus", {}))
    config = build_config(FitConfig, table, "")
    sources = _different([str(source) for source in corpus_sources(texts, corpus) or [DEMO]])
    names = _require_names(
        _different([str(find_trained(one)) for one in ([base] if isinstance(base, str | Path) else base)])
    )
    folder = Path(out)
    _begun(folder, resume)  # refused before a name is looked up
    with locks.exclusive(folder):
        command = _command(sources, names, settings, config.minutes)
        return _fit_in(folder, sources, names, config, command, resume=resume, progress=progress)


def _require_read(corpus: object) -> None:
    """Refuse a setting of the text that a selection does not look at: it holds out and cleans by its own rules."""
    if not isinstance(corpus, dict):
        raise ConfigurationError(f"corpus = {corpus!r} does not fit: it is a table of keys, such as corpus.split=no")
    for key in corpus:
        if key in {field.name for field in dataclasses.fields(CorpusConfig)} - _READ:
            raise ConfigurationError(
                f"corpus.{key} changes nothing in a selection, which takes only {', '.join(sorted(_READ))} of corpus: "
                "leave it out"
            )


def _different(names: Sequence[str]) -> list[str]:
    """Return every file, folder or other name once, however its path is written."""
    found: dict[str, str] = {}
    for name in names:
        found.setdefault(str(Path(name).resolve()) if Path(name).exists() else name, name)
    return list(found.values())


def _require_names(bases: list[str]) -> list[str]:
    """Return bases each of which has a name of its own in tables and in the selection's folder.

    Raises:
        ConfigurationError: two of them would be called the same, or one as a candidate is.
    """
    called: dict[str, str] = {}
    for name in bases:
        others = [short_name(other) for other in (WORDS, TWICE, *bases) if other != name]
        if short_name(name) in (WORDS, TWICE) or any(
            f"{other}{made}" in short_name(name) for other in others for made in _OF_CANDIDATES
        ):
            raise ConfigurationError(
                f"a base called {short_name(name)} would be mixed up with the candidate of that name: rename its folder"
            )
        if called.setdefault(short_name(name), name) != name:
            raise ConfigurationError(f"two bases are called {short_name(name)}: rename one of their folders")
    return bases


def _fit_in(
    folder: Path,
    sources: list[str],
    names: list[str],
    config: FitConfig,
    command: str,
    *,
    resume: bool,
    progress: Progress,
) -> Fitted:
    """Run a selection in a folder that no other process works in."""
    begun = _begun(folder, resume)
    if not begun:  # a mistyped name is refused before anything is written or read for minutes
        resolve_sources(sources)
        for method in config.methods:
            _require_sentences(method)
        for name in names:
            load_encoder(name)
    plan = _open_plan(folder, {"sources": sources, "bases": names, "settings": asdict(config)}, begun)
    identity = json.loads(json.dumps([source.identity() for source in resolve_sources(sources)]))
    if plan.once("text", "sources", identity) != identity:
        raise ResumeError(f"the text that {folder} was begun with has changed: put it back, or choose another --out")
    if (folder / REPORT).is_file() and (folder / MODEL).is_dir():
        for name in names:
            plan.require_same_base(short_name(name), encoder_digest(load_encoder(name)), name)
        atomic.verify(folder / MODEL, f"delete {folder / MODEL} and add --resume to make it again")
        progress.say(f"the selection in {folder} is finished: nothing is left to do")
        return _read(folder)
    # Before the first product: the threads decide the last bits of a factorisation, and a training sets them, too.
    progress.say(f"machine: {hardware.choose_hardware().line()}")
    limit = int(config.minutes * _BYTES_A_MINUTE)
    text = gather_material(sources, config.corpus, folder / "text", limit, progress)
    progress.say(text.facts.line())
    vectors = Vectors(folder / "vectors", _make_judges(text, config), progress)
    stages = Stages(folder, text, vectors, config, plan, progress)
    _make_candidates(stages, names)
    decision = choose(stages)
    if not atomic.cached(folder / MODEL):
        with atomic.build_folder(folder / MODEL) as scratch:
            save_encoder(decision.kept.open(), scratch)
    content = {
        "kept": decision.kept.name,
        "base": decision.base.name,
        "sentences": [*decision.sentences, *_read_before(names, sources)],
        "rows": decision.rows,
        "examples": _search(vectors, decision) if stages.structured else [],
        "read": text.facts.line(),
        "text": asdict(text.facts),
        "settings": asdict(config),
        "versions": versions(),
    }
    write_card(folder / MODEL, fit_card(content, command, name=folder.resolve().name))
    atomic.write_text(folder / PAGE, render_selection(content, command))
    atomic.write_sealed(folder / REPORT, content)  # last: it says that the selection is finished
    return _read(folder)


def _require_sentences(method: str) -> None:
    """Refuse a method that cannot learn from single lines, before minutes of scoring."""
    if plan_objective(method, {}).unit != "sentences":
        raise ConfigurationError(
            f"methods = {method!r} does not fit: it learns from whole documents, and methods are tried on single "
            "lines; choose scd, simcse, denosent or whitenedcse"
        )


def _make_candidates(stages: Stages, names: Sequence[str]) -> None:
    if stages.structured:
        stages.add_bases(names or DEFAULT_BASES)
        # In order of promise: all share one time.  Word vectors can be kept alone only where they descend from a base.
        if not stages.words_named:
            stages.train_bases()
        stages.add_word_vectors()
        if stages.words_named and stages.bases_promise_more:
            stages.train_bases()
        stages.repeat_word_vectors()
        if stages.words_named and not stages.bases_promise_more:
            stages.train_bases()
        stages.add_weights_between()
        add_partly_whitened(stages)
        stages.add_side_by_side()
    else:
        lines = stages.text.facts.kind == "lines"
        task = "lines from a third of their words" if lines else "documents from their first sentences"
        why = "single lines, or of too few documents to judge by" if lines else "documents that no test can be made of"
        stages.progress.say(
            f"this text is made of {why}: a candidate has to find {task} more often than its base does, and must not "
            "lose on general text; word vectors are no candidates"
        )
        stages.add_bases(names or DEFAULT_BASES[:1])
        if stages.config.replace_strong_base or stages.strength() is None:  # otherwise no candidate would be kept
            stages.train_bases()
            stages.add_weights_between()


def _read_before(names: Sequence[str], sources: Sequence[str]) -> list[str]:
    """Say which bases learned from this text before, whose runs held other documents out."""
    learned = [short_name(name) for name in names if has_learned_from(name, sources)]
    if not learned:
        return []
    named = " and ".join(learned)
    return [f"{named} learned from this text before: scores of it, and of what was made from it, may be too high."]


def _search(vectors: Vectors, decision: Decision) -> list[dict[str, Any]]:
    """Search with the base and with what was kept, for the page."""
    if not vectors.judges["test"].paired:
        return []
    shown = {one.name: vectors.of(one, "test") for one in (decision.base, decision.kept)}
    return vectors.judges["test"].search(shown, _EXAMPLES)


def _command(sources: Sequence[str], bases: Sequence[str], settings: Sequence[str], minutes: float) -> str:
    named = [word for base in bases for word in ("--base", base)]
    changed = [word for setting in settings for word in ("--set", setting)]
    return shlex.join(["selfsent", "fit", *sources, *named, "--minutes", f"{minutes:g}", *changed])


def _begun(folder: Path, resume: bool) -> bool:
    """Tell whether a selection is in the folder; a plan alone is what a text that was refused has left."""
    try:
        begun = folder.exists() and any(one.name != PLAN and not atomic.is_unfinished(one) for one in folder.iterdir())
    except OSError as error:
        raise ConfigurationError(f"cannot write to {folder}: {error.strerror}; choose another --out") from error
    if begun and not resume:
        raise ConfigurationError(
            f"{folder} is not empty: choose another --out, or add --resume to resume what is in it"
        )
    return begun


def _open_plan(folder: Path, asked: dict[str, Any], begun: bool) -> FitPlan:
    """Return what was planned before, or start a plan."""
    path = folder / PLAN
    asked = json.loads(json.dumps(asked))
    if begun:
        plan = atomic.read_sealed(path, "a selection cannot be resumed without it; choose another --out")
        if changed := [key for key in asked if plan["asked"][key] != asked[key]]:
            raise ResumeError(
                f"{folder} was begun with other {' and '.join(changed)}: repeat its command with --resume, or choose "
                "another --out"
            )
        return FitPlan(path, plan)
    plan = {"asked": asked, "versions": versions()}
    atomic.write_sealed(path, plan)
    return FitPlan(path, plan)


def _make_judges(text: Material, config: FitConfig) -> dict[str, HeldOutTests]:
    """Make the tests of the held-out documents, and those of general text, half to choose and half to decide by."""
    language, resamples = config.corpus.language, config.bootstrap
    judges = {}
    for part in PARTS:
        documents, owners = text.held_out(part)
        judges[str(part)] = HeldOutTests(
            documents,
            owners,
            text.queries(part),
            language=language,
            resamples=resamples,
            clusters=text.clusters(part),
        )
    columns = CorpusConfig().columns
    general = [one for source in resolve_sources([str(GENERAL)]) for one in source.documents(columns)]
    for number, part in enumerate(PARTS):
        half = general[number::2]
        none = HeldOutPairs()
        judges[f"general {part}"] = HeldOutTests(half, np.arange(len(half)), none, language="en", resamples=resamples)
    return judges


def _read(folder: Path) -> Fitted:
    content = atomic.read_sealed(folder / REPORT, "delete it and add --resume to write it again")
    known = {key: content[key] for key in ("kept", "base", "sentences", "rows")}
    return Fitted(folder=folder, model=folder / MODEL, page=folder / PAGE, **known)
