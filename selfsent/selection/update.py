"""A selection that goes on from an earlier one: what that kept is made again, of old and new text, and both compared.

Documents are held out by their content, so that those of the earlier selection stay held out.  Only the ways of making
candidates are taken that made what it kept, with as many steps.
"""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from selfsent.encoder.load import load_encoder
from selfsent.encoder.pair_module import parts_of
from selfsent.encoder.search_settings import read_search_settings
from selfsent.errors import ConfigurationError
from selfsent.selection.choose import Choice, choose
from selfsent.selection.held_out_tests import difference, figure
from selfsent.selection.keep import MODEL
from selfsent.selection.scoreboard import Candidate, Scoreboard, short_name
from selfsent.storage import atomic
from selfsent.storage.run_folder import PLAN, SELECTION

_STEPS = ("steps", "trainings")  # of its plan, that are taken over


@dataclass(frozen=True, kw_only=True)
class Before:
    """The earlier selection: what it was asked, what it kept, and its plan."""

    folder: Path
    kept: str  # the name of the candidate
    made: str  # how that, and what is best for the other job, was made
    sources: list[str]
    bases: list[str]
    settings: dict[str, Any]
    plan: dict[str, Any]

    @classmethod
    def open(cls, folder: Path) -> "Before":
        """Open the folder of a finished selection.

        Raises:
            UserError: it holds none, or is damaged.
        """
        if not ((folder / SELECTION).is_file() and (folder / MODEL).is_dir()):
            raise ConfigurationError(f"{folder} is no finished selection: give the --out of an earlier selfsent fit")
        report, plan = (atomic.read_sealed(folder / name, f"copy {folder} again") for name in (SELECTION, PLAN))
        jobs = {report["kept"], *(name for name, _ in report["jobs"].values())}
        made = "; ".join(f"{row['name']}: {row['how']}" for row in report["rows"] if row["name"] in jobs)
        asked, steps = plan["asked"], {key: plan[key] for key in _STEPS if key in plan}
        return cls(
            folder=folder,
            kept=report["kept"],
            made=made,
            sources=asked["sources"],
            bases=asked["bases"],
            settings=asked["settings"],
            plan=steps,
        )

    def choose(self, board: Scoreboard) -> Choice:
        """Choose among the candidates, and keep what was kept before instead where that is surely better."""
        name = f"{self.kept}, of {short_name(str(self.folder.resolve() / MODEL))}"
        old = Candidate(
            name=name, how="as it was kept", open=partial(load_encoder, self.folder / MODEL), eligible=False
        )
        board.add(old)
        board.score_on_test(old)
        choice = choose(board)
        new, base = choice.kept, choice.base
        if not board.judged:
            said = "Too little could be held out to compare it with what was kept before."
            return replace(choice, sentences=[said, *choice.sentences])
        change = difference(new.scores["test"], old.scores["test"], board.measure)
        told = f"{base.name} {figure(base.scores['test'], board.measure) or 0:.1f}, {old.name} {change.before:.1f}"
        again = f"{base.name} alone" if new is base else "made again"
        said = f"On held-out documents of old and new text: {told}, {again} {change.after:.1f} ({change.interval}): "
        if change.decision != "worse":
            better = "better, and" if change.decision == "better" else "not surely better or worse, and"
            said += f"{again} is {better} kept."
            return replace(choice, sentences=[said, *choice.sentences])
        old.is_pair = bool(parts_of(old.open()))
        notes = {new.name: "", base.name: "base", old.name: "kept"}
        rows = [{**row, "note": notes.get(row["name"], row["note"])} for row in choice.rows]
        jobs = {job: old if each is new else each for job, each in choice.jobs.items()}
        sentences = [f"{said}what was kept before is still the best, and stays."]
        search = read_search_settings(self.folder / MODEL)
        return replace(choice, kept=old, jobs=jobs, search=search, rows=rows, sentences=sentences)
