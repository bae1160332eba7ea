"""Run folders in, one HTML page out: self-contained, for people.

gather.py     folders -> plain records; seeds of one recipe together
table.py      scores -> tables, one protocol a column
published.py  the papers' figures
command.py    the command that repeats a run
inside.py     base and trained encoder at work on a few held-out texts
svg.py        matplotlib -> inline SVG in the page's colours
figures.py    the drawings
page.py       all of it -> HTML, through page.html
"""

import os
from collections.abc import Sequence
from pathlib import Path

from selfsent.errors import UserError
from selfsent.evaluation import hub
from selfsent.evaluation.senteval import files
from selfsent.progress import SILENT, Progress
from selfsent.report import inside, page, read

LIMIT = 3_000_000  # bytes of a page
LOOKED_AT = 4  # recipes whose encoders are opened


def write_report(
    folders: Sequence[str | Path],
    out: str | Path,
    *,
    data: str | Path | None = None,
    progress: Progress = SILENT,
) -> Path:
    """Write one self-contained HTML page about one run or several; return its place.

    Args:
        folders: of runs; those that differ in the seed alone are shown as mean and spread.
        out: the page; what is there already is replaced.
        data: a folder in SentEval's layout, or ``hub``, for pairs that people have judged.

    Raises:
        UserError: a folder holds no run that can be read, or the page cannot be written.
    """
    out = Path(out)
    _require_writable(out)
    evaluation = None if data is None else Path(data)
    if evaluation is not None and not hub.hub_requested(evaluation):
        files.find_folder(evaluation)
    runs: dict[Path, read.Record] = {}
    for folder in folders:
        runs.setdefault(Path(folder).resolve(), read.read_run(Path(folder)))
    if not runs:
        raise UserError("there is nothing to report on: give the folder of a run, such as runs/simcse")
    groups = read.group_runs(list(runs.values()))

    seen: dict[object, inside.Vectors] = {}
    looks: list[page.Look] = []
    for place, group in enumerate(groups[:LOOKED_AT]):
        progress.report("looking into the encoders", place, min(len(groups), LOOKED_AT))
        try:
            found, skipped = inside.look_inside(group.first, evaluation, seen, progress.report), None
        except inside.Skipped as reason:
            found, skipped = None, str(reason)
            progress.say(f"{group.name}: {reason}")
        looks.append(page.build_look(group, place, found, skipped))
    progress.report("drawing", 0, None)

    notes: list[str] = []
    if len(groups) > LOOKED_AT:
        notes.append(f"The encoders of the first {LOOKED_AT} of {len(groups)} recipes are looked into.")
    html = page.render_page(groups, looks, notes)
    while len(html.encode()) > LIMIT and looks:
        looks.pop()
        note = f"The encoders of {len(looks)} recipes are looked into: more would make this page too large."
        html = page.render_page(groups, looks, [note])
    if len(html.encode()) > LIMIT:
        raise UserError(
            f"a page about {len(runs)} runs would hold {len(html.encode()) / 1e6:.1f} MB, and "
            f"{LIMIT / 1e6:.0f} are allowed: give fewer runs"
        )
    partial = out.with_name(f".{out.name}.partial")
    try:
        partial.write_text(html, encoding="utf-8")
        partial.replace(out)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise UserError(f"cannot write {out}: {error.strerror}") from error
    return out


def _require_writable(out: Path) -> None:
    """Refuse before the work what would be refused after it."""
    if out.is_dir():
        raise UserError(f"cannot write {out}: it is a folder; give a file, such as {out / 'report.html'}")
    above = out.absolute().parent
    if not above.is_dir():
        raise UserError(f"cannot write {out}: there is no folder {above}")
    if not os.access(above, os.W_OK):
        raise UserError(f"cannot write {out}: {above} does not let you; choose another --out")
