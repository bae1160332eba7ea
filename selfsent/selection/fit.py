"""fit(): the best encoder for a text, chosen without labels, never worse than what was there.

    text -> training texts, pairs, held-out documents (material.py)
         -> candidates: bases, static vectors of the text, trained bases, and what is made of these (candidates/)
         -> their scores on half of the held-out documents (scoreboard.py)
         -> the best of them, compared with its base on the other half (choose.py)

Every step leaves a file or a folder in ``out``: a selection that was killed resumes where it was.  What depends on
time, how many steps fit into the minutes, is decided once and kept in ``plan.json`` (budget.py).
"""

import dataclasses
import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from selfsent.config import apply_settings, build_config
from selfsent.corpus.held_out import SPLITS
from selfsent.corpus.in_memory import corpus_sources
from selfsent.corpus.settings import CorpusConfig, with_column
from selfsent.corpus.sources import DEMO, resolve_sources
from selfsent.encoder.base import Role
from selfsent.encoder.load import load_encoder
from selfsent.encoder.open import encoder_digest
from selfsent.errors import ConfigurationError, EncoderError, ResumeError, UserError
from selfsent.evaluation.label_free.material import find_trained, has_learned_from
from selfsent.evaluation.task import PromptedTexts, said_prompts, used_prompts
from selfsent.objectives.registry import plan_objective
from selfsent.progress import SILENT, Progress
from selfsent.runs.card import fit_card, write_card
from selfsent.runtime import hardware
from selfsent.runtime.printed import Printed, Shown
from selfsent.selection.budget import Budget
from selfsent.selection.candidates import make_candidates
from selfsent.selection.candidates.bases import no_base, open_base
from selfsent.selection.candidates.static_vectors import LATENT, STATIC
from selfsent.selection.candidates.workspace import Workspace
from selfsent.selection.choose import Choice, candidate_rows, choose
from selfsent.selection.groups import MOST, map_groups
from selfsent.selection.held_out_tests import make_tests
from selfsent.selection.judging import Ask, Searches, read_queries
from selfsent.selection.keep import MODEL, ask_person, save_kept, say_widths
from selfsent.selection.material import Material, gather_material
from selfsent.selection.page import render_selection
from selfsent.selection.scoreboard import SEPARATORS, Scoreboard, Vectors, short_name
from selfsent.selection.settings import FitConfig
from selfsent.selection.update import Before
from selfsent.storage import atomic, locks
from selfsent.storage.provenance import versions
from selfsent.storage.run_folder import PLAN, SELECTION

REPORT, PAGE = SELECTION, "fit.html"
_WRITE_AGAIN = "delete it and add --resume to write it again"
_BYTES_A_MINUTE = 6_000_000  # of text that is read for every minute
_READ = {  # settings of corpus that a selection looks at
    *("preset", "clean", "split", "language"),
    *("column", "encoding", "title_column", "summary_column", "positive_column"),
}


@dataclass(frozen=True, kw_only=True, repr=False)
class Fitted(Printed):
    """The encoder that was kept, and every figure behind the choice."""

    folder: Path
    model: Path
    kept: str  # name of the candidate
    base: str  # that it was compared with
    sentences: list[str]  # the first says what was kept
    rows: list[dict[str, Any]]  # of the table, one a candidate
    widths: dict[int, float]  # what the first so many dimensions find, where a number of dimensions was asked for
    page: Path  # the same with figures and searches, in HTML
    jobs: dict[str, Path]  # of "search" and "grouping", those that were asked for: the encoder that is best

    def shown(self) -> Shown:
        """Return what was kept and why, and the candidates, the best first."""
        heads, rows = candidate_rows(self.rows)  # of which those of the documents that chose nothing are on the page
        said = [*self.sentences[:2], self.places()]
        return Shown(said, [*heads[:4], heads[-1]], [[*row[:4], row[-1]] for row in rows])

    def places(self) -> str:
        """Say which folder is for which job, and where the page is."""
        of = {at: " and ".join(job for job in self.jobs if self.jobs[job] == at) for at in self.jobs.values()}
        return "; ".join((*(f"for {jobs}: {at}" for at, jobs in of.items()), f"a page with the figures: {self.page}"))


def fit(
    texts: Iterable[str] | None = None,
    *,
    corpus: Sequence[str | Path] | str | Path | None = None,
    column: str | None = None,
    base: Sequence[str | Path] | str | Path = (),
    out: str | Path = "runs/fit",
    minutes: float | None = None,
    purpose: Literal["search", "grouping", "both"] | None = None,
    queries: str | Path | None = None,
    ask: Ask | None = None,
    dimensions: int | None = None,
    update: str | Path | None = None,
    settings: Sequence[str] | Mapping[str, object] = (),
    resume: bool = False,
    progress: Progress = SILENT,
) -> Fitted:
    """Find the best encoder for a text, without labels, within a budget of time.

    Args:
        texts: the texts themselves: a list, an iterator, a column of strings.
        corpus: instead of texts: files, folders, hub names of data sets, or "pydocs".
        column: that holds the text of a table.  Default: "text", or the one that reads like prose.
        base: encoders to start from and to be compared with: folders, runs, or names on the hub.  Default: those that
            ship.
        out: the folder of the selection; the encoder that is kept is its ``model``.
        minutes: of this machine's time, about.
        purpose: what the encoder is for: "search", "grouping" (clusters, topics, intents, classes) or "both".
        queries: a file of queries as people ask them, without answers: the page shows what they find, and ``ask`` has
            them judged.  Default: sentences of held-out documents.
        ask: told a query and two passages, one found by the base and one by what is kept, and returns which answers
            better: 1 or 2, 0 for neither, None to ask no more.  Where that surely is the base, it is kept.
        dimensions: of what is kept, on the principal axes of the text, of which the first so many serve alone, too.
            Default: all that it has.
        update: the folder of an earlier selection: what it kept is made again of its text and this one, with its
            bases and settings, and kept unless the earlier one is surely better on held-out documents of both.
        settings: changes to ``FitConfig`` such as ``["steps=500"]`` or ``{"steps": 500}``.
        resume: resume the selection in ``out``, or return its result if it is finished; start it where there is none.

    Raises:
        UserError: something given cannot work; the message says what would.
        Interrupted: Ctrl-C or SIGTERM while training; the state is saved.

    Examples:
        >>> result = selfsent.fit(corpus="tickets.jsonl", out="runs/fit", minutes=5)
        >>> print(result.sentences[0])
        >>> encoder = selfsent.load(result.model)
    """
    settings = [setting.removeprefix("fit.") for setting in with_column(settings, column)]
    given = {"minutes": minutes, "purpose": purpose, "dimensions": dimensions}
    named = {key: each for key, each in given.items() if each is not None}
    for key in sorted({setting.partition("=")[0].strip() for setting in settings} & {*named}):
        raise ConfigurationError(f"{key} is given twice, as {named[key]!r} and by --set: leave one of them out")
    _require_read(apply_settings({}, settings).get("corpus", {}))
    before = None if update is None else Before.open(Path(update))
    if before and base:
        raise ConfigurationError(f"--base does not fit --update: {update} has its own; leave it out")
    table = apply_settings({**(before.settings if before else {}), **named}, settings)
    config = build_config(FitConfig, table, "")
    read = [str(source) for source in corpus_sources(texts, corpus, column) or ()]
    sources = _different([*before.sources, *read] if before else read or [DEMO])
    bases = before.bases if before else [base] if isinstance(base, str | Path) else base
    names = _different([*map(_folder_of, bases)])
    _require_names(names)
    _begun(folder := Path(out), resume)  # refused before a name is looked up
    with locks.exclusive(folder):
        asked = None if queries is None else str(queries)
        command = _command(*((read, []) if before else (sources, names)), asked, settings, config, before)
        return _fit_in(folder, sources, names, config, command, asked, ask, before, resume=resume, progress=progress)


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
    different: dict[str, str] = {}
    for name in names:
        different.setdefault(str(Path(name).resolve()) if Path(name).exists() else name, name)
    return list(different.values())


def _require_names(bases: Sequence[str]) -> None:
    """Require that each base has a name of its own in tables and in the selection's folder, which no candidate has."""
    names = [short_name(base) for base in bases]
    for name in names:
        others = {STATIC, *names} - {name}
        if name in (STATIC, LATENT) or any(f"{other}{made}" in name for other in others for made in SEPARATORS):
            raise ConfigurationError(
                f"a base called {name} would be mixed up with the candidate of that name: rename its folder"
            )
        if names.count(name) > 1:
            raise ConfigurationError(f"two bases are called {name}: rename one of their folders")


def _fit_in(
    folder: Path,
    sources: list[str],
    names: list[str],
    config: FitConfig,
    command: str,
    queries: str | None,
    ask: Ask | None,
    before: Before | None,
    *,
    resume: bool,
    progress: Progress,
) -> Fitted:
    """Run a selection in a folder that no other process works in."""
    begun = _begun(folder, resume)
    own = [] if queries is None else read_queries(queries)
    if not begun:  # what is mistyped is refused before anything is written or read for minutes
        resolve_sources(sources, progress)
        for method in config.methods:
            _require_sentences(method)
        _require_base(names)
    asked: dict[str, Any] = {"sources": sources, "bases": names, "settings": asdict(config), "queries": queries}
    asked["update"] = before and str(before.folder)
    budget = _open_plan(folder, asked, begun, config.minutes, before.plan if before else {})
    identity = json.loads(json.dumps([source.identity() for source in resolve_sources(sources)]))
    for name, now, what in (("sources", identity, "its text"), ("queries", own, queries)):  # vectors of both are kept
        if budget.once("text", name, now) != now:
            raise ResumeError(f"{what} has changed since {folder} was begun: put it back, or choose another --out")
    if ask is None and (folder / REPORT).is_file() and (folder / MODEL).is_dir():
        left_out = atomic.read_sealed(folder / REPORT, _WRITE_AGAIN)["left_out"]
        for name in [name for name in names if short_name(name) not in left_out]:
            budget.require_same_base(short_name(name), encoder_digest(load_encoder(name)), name)
        atomic.verify(folder / MODEL, f"delete {folder / MODEL} and add --resume to make it again")
        progress.say(f"the selection in {folder} is finished: nothing is left to do")
        return _read(folder)
    # Before the first product: the threads decide the last bits of a factorisation, and a training sets them, too.
    progress.say(f"machine: {hardware.choose_hardware().line()}")
    limit = int(config.minutes * _BYTES_A_MINUTE)
    text = gather_material(sources, config.corpus, folder / "text", limit, progress)
    progress.say(text.facts.line())
    vectors = Vectors(folder / "vectors", make_tests(text, config), progress)
    board = Scoreboard(text.facts, vectors, config, progress)
    work = Workspace(folder / "candidates", text, config, budget, board, progress, before.made if before else None)
    work.folder.mkdir(exist_ok=True)
    make_candidates(work, names)
    choice = before.choose(board) if before else choose(board)
    searches = _searches(vectors, own) if board.structured else None
    examples = _find(vectors, searches, choice) if searches else []
    choice = ask_person(folder, examples, choice, ask)
    choice, folders, widths = save_kept(folder, choice, work)
    jobs = choice.jobs if config.purpose == "both" else {config.purpose: choice.kept}
    content = {
        "kept": choice.kept.name,
        "base": choice.base.name,
        "jobs": {job: [each.name, folders.get(each.name)] for job, each in jobs.items()},
        "search": asdict(choice.search) if choice.search else None,
        "sentences": [*choice.sentences, *say_widths(widths), *_read_before(names, sources), *_say_prompts(choice)],
        "rows": choice.rows,
        "widths": [*widths.items()],
        "left_out": [each.name for each in board.left_out],
        "queries": queries,
        "searched": len(searches.passages) if searches else 0,
        "examples": examples,
        "groups": _groups(vectors, text, choice),
        "read": text.facts.line(),
        "text": asdict(text.facts),
        "settings": asdict(config),
        "versions": versions(),
    }
    for each in {choice.kept, *choice.jobs.values()}:
        if where := folders.get(each.name):
            name = f"{folder.resolve().name}{where.removeprefix(MODEL)}"
            of = next((base for base in names if short_name(base) in each.name), None)
            report = {**content, "kept": each.name}
            write_card(folder / where, fit_card(report, command, name=name, pair=each.is_pair, base=of, texts=sources))
    atomic.write_text(folder / PAGE, render_selection(content, command))
    atomic.write_sealed(folder / REPORT, content)  # last: it says that the selection is finished
    return _read(folder)


def _folder_of(base: str | Path) -> str:
    try:
        return str(find_trained(base))
    except EncoderError:  # which is said where it is opened
        return str(base)


def _require_base(names: Sequence[str]) -> None:
    """Refuse bases none of which can be opened; where one can, the others become rows that say why they cannot."""
    failed: list[UserError] = []
    for name in names:
        try:
            open_base(name)
        except UserError as error:
            failed.append(error)
    if failed and len(failed) == len(names):
        raise no_base(failed)


def _require_sentences(method: str) -> None:
    """Refuse a method that cannot learn from single lines, before minutes of scoring."""
    if plan_objective(method, {}).unit != "sentences":
        raise ConfigurationError(
            f"methods = {method!r} does not fit: it learns from whole documents, and methods are tried on single "
            "lines; choose scd, simcse, denosent or whitenedcse"
        )


def _read_before(names: Sequence[str], sources: Sequence[str]) -> list[str]:
    """Say which bases learned from this text before, whose runs held other documents out."""
    learned = " and ".join(short_name(name) for name in names if has_learned_from(name, sources))
    said = f"{learned} learned from this text before: scores of it, and of what was made from it, may be too high."
    return [said] if learned else []


def _say_prompts(choice: Choice) -> list[str]:
    """Say which prompts the kept encoder was searched with, and is to be used with."""
    roles: tuple[Role, ...] = ("query", "document", "default")
    said = said_prompts([used_prompts(choice.kept.open(), roles)])
    return [f"By {choice.kept.name} {said}."] if said else []


def _searches(vectors: Vectors, own: Sequence[str]) -> Searches:
    """Return the searches of the page: of queries of the user's own, otherwise of sentences of held-out documents."""
    dev, test = (vectors.tests[split] for split in SPLITS)
    if own:
        vectors.tests["queries"] = Searches(own, list(dict.fromkeys([*dev.passages, *test.passages])), test.language)
        return vectors.tests["queries"]
    return Searches(test.queries, test.passages, test.language, own=range(len(test.queries)))


def _find(vectors: Vectors, searches: Searches, choice: Choice) -> list[dict[str, Any]]:
    """Search with the base, and with what was kept, with words where it is to be searched with them."""
    split = "queries" if "queries" in vectors.tests else "test"
    words = choice.search.words if choice.search else 0.0
    systems = {choice.base.name: (vectors.of(choice.base, split), 0.0)}
    systems[choice.kept.name] = (vectors.of(choice.kept, split), words)
    return searches.find(vectors.tests[split], systems)


def _groups(vectors: Vectors, text: Material, choice: Choice) -> dict[str, Any] | None:
    """Return the map of held-out texts by the base and by the encoder for grouping."""
    held = [f"{document.title} {document.text}".strip() for document in text.held_out("test")[0]]
    vectors.tests["groups"] = PromptedTexts(("default", each) for each in dict.fromkeys(held[:MOST]))
    systems = {each.name: vectors.of(each, "groups") for each in (choice.base, choice.jobs["grouping"])}
    return map_groups(vectors.tests["groups"].texts, systems)


def _command(
    sources: Sequence[str],
    bases: Sequence[str],
    queries: str | None,
    settings: Sequence[str],
    config: FitConfig,
    before: Before | None,
) -> str:
    named = ["--update", str(before.folder)] if before else []
    named += [word for base in bases for word in ("--base", base)]
    own = ("purpose=", "dimensions=", "minutes=")
    changed = [word for each in settings if not each.startswith(own) for word in ("--set", each)]
    job = ["--for", config.purpose] * (config.purpose != "both")
    job += ["--dimensions", str(config.dimensions)] * (config.dimensions is not None)
    if queries is not None:
        named += ["--queries", queries]
    return shlex.join(["selfsent", "fit", *sources, *named, *job, "--minutes", f"{config.minutes:g}", *changed])


def _begun(folder: Path, resume: bool) -> bool:
    """Tell whether a selection is in the folder; a plan alone is what a text that was refused has left."""
    try:
        paths = [path for path in folder.iterdir() if path.name != PLAN] if folder.exists() else []
    except OSError as error:
        raise ConfigurationError(f"cannot write to {folder}: {error.strerror}; choose another --out") from error
    begun = not all(map(atomic.is_unfinished, paths))
    if begun and not resume:
        raise ConfigurationError(
            f"{folder} is not empty: choose another --out, or add --resume to resume what is in it"
        )
    return begun


def _open_plan(folder: Path, asked: dict[str, Any], begun: bool, minutes: float, steps: dict[str, Any]) -> Budget:
    """Return what was planned before, or start a plan."""
    path, plan = folder / PLAN, {"asked": json.loads(json.dumps(asked)), "versions": versions(), **steps}
    if not begun:
        atomic.write_sealed(path, plan)
        return Budget(path, plan, minutes)
    before = atomic.read_sealed(path, "a selection cannot be resumed without it; choose another --out")
    if changed := [key for key in asked if before["asked"][key] != plan["asked"][key]]:
        raise ResumeError(
            f"{folder} was begun with other {' and '.join(changed)}: repeat its command with --resume, or choose "
            "another --out"
        )
    return Budget(path, before, minutes)


def _read(folder: Path) -> Fitted:
    content = atomic.read_sealed(folder / REPORT, _WRITE_AGAIN)
    figures = {key: content[key] for key in ("kept", "base", "sentences", "rows")}
    widths = dict(content["widths"])
    jobs = {job: folder / where for job, (_, where) in content["jobs"].items() if where}
    return Fitted(folder=folder, model=folder / MODEL, page=folder / PAGE, widths=widths, jobs=jobs, **figures)
