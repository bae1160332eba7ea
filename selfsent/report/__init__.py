"""Run folders in, one self-contained HTML page out.

read.py        folders -> plain records; seeds of one recipe together
tables.py      scores -> tables, one protocol a column; the papers' figures
embeddings.py  base and trained encoder on a sample of held-out texts
figures.py     matplotlib -> inline SVG in the page's colours
command.py     the command that repeats a run
page.py        all of it -> HTML, through page.html
"""

import os
from collections.abc import Sequence
from pathlib import Path

from selfsent import atomic
from selfsent.errors import ConfigurationError
from selfsent.progress import SILENT, Progress
from selfsent.report import embeddings, page, read

MAX_SAMPLES = 4  # recipes whose encoders are opened


def write_report(folders: Sequence[str | Path], out: str | Path | None = None, *, progress: Progress = SILENT) -> Path:
    """Write one self-contained HTML page about one run or several; return its path.

    Args:
        folders: of runs; those that differ in the seed alone are shown as mean and spread.
        out: the page, which is replaced; None: report.html in the folder of the run, or, of several, here.

    Raises:
        UserError: a folder holds no run that can be read, or the page cannot be written.
    """
    by_folder = {Path(folder).resolve(): Path(folder) for folder in folders}
    if not by_folder:
        raise ConfigurationError("there is nothing to report on: give the folder of a run, such as runs/simcse")
    runs = [read.read_run(folder) for folder in by_folder.values()]
    out = Path(out) if out is not None else (runs[0].folder if len(runs) == 1 else Path()) / "report.html"
    _require_writable(out)
    groups = read.group_runs(runs)

    cache: dict[object, embeddings.Vectors] = {}
    samples: list[embeddings.EmbeddedSample | str] = []
    for place, group in enumerate(groups[:MAX_SAMPLES]):
        progress.report("comparing encoders", place, min(len(groups), MAX_SAMPLES))
        try:
            samples.append(embeddings.embed_sample(group.first, cache, progress))
        except embeddings.Unavailable as reason:
            samples.append(str(reason))
            progress.say(f"{group.name}: {reason}")
    progress.report("drawing", 0)
    notes = []
    if len(groups) > MAX_SAMPLES:
        notes.append(f"Only the encoders of the first {MAX_SAMPLES} of {len(groups)} recipes are compared on texts.")
    atomic.write_text(out, page.render_page(groups, samples, notes))
    return out


def _require_writable(out: Path) -> None:
    """Refuse before the encoders are opened."""
    above = out.absolute().parent
    if out.is_dir():
        raise ConfigurationError(f"cannot write {out}: it is a folder; give a file, such as {out / 'report.html'}")
    if not above.is_dir():
        raise ConfigurationError(f"cannot write {out}: there is no folder {above}")
    if not os.access(above, os.W_OK):
        raise ConfigurationError(f"cannot write {out}: no permission to write to {above}; choose another --out")
